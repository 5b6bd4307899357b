"""U-shaped networks: the original U-Net, nnU-Net in two and three dimensions, MLPerf's 3D U-Net.

Sources: Ronneberger 2015 (arXiv 1505.04597, figure 1), Isensee 2018 (1809.10486) as in NVIDIA's example, MLPerf's
image-segmentation reference.
"""

from __future__ import annotations

from ridgeline.specs.network import Network
from ridgeline.workload.convnets.builder import Net, Sizes, start

# Patch, channels and classes of NVIDIA's nnU-Net on brain tumours, in two and three dimensions.
NNUNET_2D, NNUNET_3D = (192, 160), (128, 128, 128)  # src: ronneberger-2015
KITS = (128, 128, 128)  # src: mlperf-training
BRATS = (224, 224, 160)  # src: mlperf-inference


def unet(
    image: Sizes = 572,  # src: ronneberger-2015
    channels: int = 1,
    classes: int = 2,
    padded: bool = False,  # src: ronneberger-2015
) -> Network:  # src: ronneberger-2015
    """The original: four poolings, 64 to 1024 channels; unpadded, so that sizes shrink (572 to 388).

    >>> unet().parameters_count
    31030658
    """
    net = start(image, channels, norm=None)
    padding = None if padded else 0
    skips: list[int] = []
    x = -1
    for depth in range(5):  # src: ronneberger-2015
        if depth:
            x = net.pool(x, "max")
        for _ in range(2):
            x = net.block(x, 64 * 2**depth, 3, bias=True, padding=padding)  # src: ronneberger-2015
        skips.append(x)
    for depth in reversed(range(4)):  # src: ronneberger-2015
        x = net.up(x, 64 * 2**depth)  # src: ronneberger-2015
        skip = skips[depth]
        if net.shape(skip).spatial != net.shape(x).spatial:
            skip = net.rearrange(skip, net.channels(skip), net.shape(x).spatial, "crop")
        x = net.concat(skip, x)
        for _ in range(2):
            x = net.block(x, 64 * 2**depth, 3, bias=True, padding=padding)  # src: ronneberger-2015
    net.conv(x, classes, bias=True)
    return net.done("unet", "ronneberger-2015")


def nnunet(image: Sizes = NNUNET_3D, channels: int = 4, classes: int = 4) -> Network:  # src: isensee-2018
    """nnU-Net: pairs of convolution, instance normalisation and leaky rectifier; strided convolutions down.

    Levels halve the size while the smaller side stays at four or more; channels double from 32 up to 320 (512 in two
    dimensions).
    """
    net = start(image, channels, norm="instance", activation="leaky-relu")
    most = 320 if net.axes == 3 else 512  # src: isensee-2018
    levels = 1
    while min(net.image.spatial) // 2**levels >= 4:  # src: isensee-2018
        levels += 1
    widths = [min(32 * 2**level, most) for level in range(levels)]  # src: isensee-2018
    net_id = f"nnunet-{net.axes}d"
    _pairs(net, widths, classes, bias=True, deep=True)
    return net.done(net_id, "isensee-2018", "patch")


def unet3d_kits(image: Sizes = KITS) -> Network:
    """MLPerf's 3D U-Net for kidneys (KiTS19): the widths of nnU-Net, one input channel, three classes."""
    net = start(image, 1, norm="instance")
    _pairs(net, [32, 64, 128, 256, 320, 320], 3, bias=False, deep=False)  # src: mlperf-training
    return net.done("3d-unet-kits19", "mlperf-training", "patch")


def unet3d_brats(image: Sizes = BRATS) -> Network:
    """MLPerf inference's first 3D U-Net, for brain tumours (BraTS 2019): nnU-Net from 30 channels, whole volumes.

    >>> round(unet3d_brats().forward_flop() / 1e12, 1)
    3.3
    """
    net = start(image, 4, norm="instance", activation="leaky-relu")  # src: mlperf-inference
    _pairs(net, [30, 60, 120, 240, 320, 320], 4, bias=True, deep=False)  # src: mlperf-inference
    return net.done("3d-unet-brats", "mlperf-inference", "volume")


def _pairs(net: Net, widths: list[int], classes: int, *, bias: bool, deep: bool) -> None:
    skips: list[int] = []
    x = -1
    for depth, width in enumerate(widths):
        net.scope = f"down{depth}."
        x = net.block(x, width, 3, 2 if depth else 1, bias=bias)  # src: isensee-2018
        x = net.block(x, width, 3, bias=bias)  # src: isensee-2018
        skips.append(x)
    for depth in reversed(range(len(widths) - 1)):
        net.scope = f"up{depth}."
        x = net.concat(net.up(x, widths[depth], bias=bias), skips[depth])
        for _ in range(2):
            x = net.block(x, widths[depth], 3, bias=bias)  # src: isensee-2018
        if deep and 0 < depth < 3:  # src: isensee-2018
            first = len(net.nodes)
            net.conv(x, classes, bias=True)
            net.side(first)
    net.scope = ""
    net.conv(x, classes, bias=True)
