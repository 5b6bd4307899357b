"""Networks designed after 2019: RegNet, ConvNeXt, NFNet, RepVGG as deployed.

Sources: Radosavovic 2020 (arXiv 2003.13678), Liu 2022 (2201.03545), Brock 2021 (2102.06171), Ding 2021 (2101.03697).
"""

from __future__ import annotations

from ridgeline.specs.network import Network, Rearrange
from ridgeline.workload.convnets.builder import Net, Sizes, start

IMAGE, CLASSES = 224, 1000  # src: liu-2022
# src: radosavovic-2020; depths | widths | group width; se: squeeze-excite with a quarter of the input width.
REGNET: dict[str, str] = {
    "regnetx-800mf": "1 3 7 5 | 64 128 288 672 | 16",
    "regnetx-1.6gf": "2 4 10 2 | 72 168 408 912 | 24",
    "regnety-3.2gf": "2 5 13 1 | 72 216 576 1512 | 24 se",
    "regnety-16gf": "2 4 11 1 | 224 448 1232 3024 | 112 se",
}
# src: liu-2022; depths | widths.
CONVNEXT: dict[str, str] = {
    "convnext-tiny": "3 3 9 3 | 96 192 384 768",
    "convnext-small": "3 3 27 3 | 96 192 384 768",
    "convnext-base": "3 3 27 3 | 128 256 512 1024",
    "convnext-large": "3 3 27 3 | 192 384 768 1536",
}
# src: ding-2021; depths | widths of the deployed form.
REPVGG: dict[str, str] = {
    "repvgg-a0": "2 4 14 1 | 48 96 192 1280",
    "repvgg-a1": "2 4 14 1 | 64 128 256 1280",
    "repvgg-a2": "2 4 14 1 | 96 192 384 1408",
}


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split()]


def regnet(name: str, image: Sizes = IMAGE, classes: int = CLASSES) -> Network:
    """A member by name.

    >>> regnet("regnety-3.2gf").parameters_count
    19436338
    """
    depths, widths, last = REGNET[name].split("|")
    group, *options = last.split()
    net = start(image)
    x = net.block(-1, 32, 3, 2)  # src: radosavovic-2020
    for depth, width in zip(_numbers(depths), _numbers(widths), strict=True):
        for index in range(depth):
            shortcut, inputs, stride = x, net.channels(x), 2 if index == 0 else 1
            y = net.block(net.block(x, width), width, 3, stride, groups=width // int(group))  # src: radosavovic-2020
            if "se" in options:
                y = net.squeeze_excite(y, round(inputs / 4))  # src: radosavovic-2020
            y = net.block(y, width, act="")
            if stride > 1 or inputs != width:
                shortcut = net.block(x, width, 1, stride, act="")
            x = net.act(net.sum(y, shortcut))
    net.classifier(x, classes)
    return net.done(name, "radosavovic-2020")


def convnext(name: str, image: Sizes = IMAGE, classes: int = CLASSES) -> Network:
    """A member by name; layer scale included.

    >>> convnext("convnext-tiny").parameters_count
    28589128
    """
    depths, widths = (_numbers(part) for part in CONVNEXT[name].split("|"))
    net = start(image, norm="layer", activation="gelu")
    x = net.normalise(net.conv(-1, widths[0], 4, 4, bias=True, padding=0))  # src: liu-2022
    for number, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        if number > 0:
            x = net.conv(net.normalise(x), width, 2, 2, bias=True, padding=0)
        for _ in range(depth):
            y = net.normalise(net.conv(x, width, 7, groups=width, bias=True))  # src: liu-2022
            y = net.dense(net.act(net.dense(y, 4 * width)), width)  # src: liu-2022
            y = net.add("scale", Rearrange(kind="scale", parameters_count=width), (y,), net.shape(y))
            x = net.sum(y, x)
    x = net.normalise(net.global_pool(x))
    net.dense(x, classes)
    return net.done(name, "liu-2022")


def nfnet_f0(image: Sizes = 256, classes: int = CLASSES) -> Network:  # src: brock-2021
    """NFNet-F0: residual network without normalisation, standardised weights, groups of 128.

    >>> round(nfnet_f0().parameters_count / 1e6, 2)
    71.49
    """
    net = start(image, norm=None, activation="gelu")
    x = -1
    for index, (width, stride) in enumerate(((16, 2), (32, 1), (64, 1), (128, 2))):  # src: brock-2021
        x = _scaled(net, x, width, 3, stride, 1)  # src: brock-2021
        if index < 3:  # src: brock-2021
            x = net.act(x)
    for number, (depth, width) in enumerate(zip((1, 2, 6, 3), (256, 512, 1536, 1536), strict=True)):  # src: brock-2021
        for index in range(depth):
            x = _nf_block(net, x, width, 2 if number > 0 and index == 0 else 1, first=index == 0)
    x = net.act(_scaled(net, x, 3072, 1, 1, 1))  # src: brock-2021
    net.classifier(x, classes)
    return net.done("nfnet-f0", "brock-2021")


def _scaled(net: Net, x: int, outputs: int, kernel: int, stride: int, groups: int) -> int:
    """A convolution with standardised weights and a gain for each channel."""
    x = net.conv(x, outputs, kernel, stride, groups=groups, bias=True)
    return net.add("gain", Rearrange(kind="view", reads_count=0.0, parameters_count=outputs), (x,), net.shape(x))


def _nf_block(net: Net, x: int, outputs: int, stride: int, first: bool) -> int:
    width = outputs // 2
    y, shortcut = net.act(x), x
    if first:
        short = net.pool(y, "average", 2, 2) if stride > 1 else y
        shortcut = _scaled(net, short, outputs, 1, 1, 1)
    y = net.act(_scaled(net, y, width, 1, 1, 1))
    y = net.act(_scaled(net, y, width, 3, stride, width // 128))  # src: brock-2021
    y = net.act(_scaled(net, y, width, 3, 1, width // 128))  # src: brock-2021
    y = _scaled(net, y, outputs, 1, 1, 1)
    y = net.squeeze_excite(y, outputs // 2)
    y = net.add("skip-gain", Rearrange(kind="view", reads_count=0.0, parameters_count=1), (y,), net.shape(y))
    return net.sum(y, shortcut)


def repvgg(name: str, image: Sizes = IMAGE, classes: int = CLASSES) -> Network:
    """A member as deployed: one 3x3 convolution a layer."""
    depths, widths = (_numbers(part) for part in REPVGG[name].split("|"))
    net = start(image, norm=None)
    x = net.block(-1, min(64, widths[0]), 3, 2, bias=True)  # src: ding-2021
    for depth, width in zip(depths, widths, strict=True):
        for index in range(depth):
            x = net.block(x, width, 3, 2 if index == 0 else 1, bias=True)  # src: ding-2021
    net.classifier(x, classes)
    return net.done(name, "ding-2021")
