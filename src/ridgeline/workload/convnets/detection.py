"""Detectors: SSD on several backbones, RetinaNet, Mask R-CNN; decoding and suppressing boxes is not modelled.

Sources: Liu 2015 (arXiv 1512.02325) with the backbones of NVIDIA's example and of MLPerf, Lin 2017 (1708.02002,
1612.03144), He 2017 (1703.06870); regions and image sizes as in MLPerf's reference implementations.
"""

from __future__ import annotations

from dataclasses import replace

from ridgeline.specs.network import Network
from ridgeline.workload.convnets.builder import Net, Sizes, start
from ridgeline.workload.convnets.mobile import STAGES, Habits, body
from ridgeline.workload.convnets.resnet import MEMBERS, trunk

COCO = 81  # src: liu-2015
OPEN_IMAGES = 264  # src: mlperf-inference-rules
PYRAMID = 256  # src: liu-2015
# COCO photographs (640x480 mostly) with the short side at 800, padded to multiples of 32.
MASK_IMAGE = (800, 1088)  # src: mlperf-training
# Extra layers behind the backbone: channels of the 1x1 and 3x3 convolution, stride (v: without padding).
_EXTRAS_300 = "256-512/2 256-512/2 128-256/2 128-256/1v 128-256/1v"
_EXTRAS_1200 = "256-512/2 256-512/2 128-256/2 128-256/2v 128-256/1v"
_BOXES = (4, 6, 6, 6, 4, 4)  # src: liu-2015


def _extras(net: Net, x: int, layers: str) -> list[int]:
    """The feature maps of SSD: the backbone's and each pair of extra layers."""
    found = [x]
    for token in layers.split():
        widths, _, stride = token.partition("/")
        narrow, wide = (int(part) for part in widths.split("-"))
        step, padding = int(stride.removesuffix("v")), 0 if stride.endswith("v") else None
        x = net.block(net.block(x, narrow), wide, 3, step, padding=padding)  # src: liu-2015
        found.append(x)
    return found


def _heads(
    net: Net,
    maps: list[int],
    boxes: tuple[int, ...],
    classes: int,
    stride: int = 1,
    kernel: int = 3,  # src: liu-2015
) -> None:  # src: liu-2015
    """Box and class predictions on every map."""
    for x, count in zip(maps, boxes, strict=True):
        net.conv(x, 4 * count, kernel, stride, bias=True)  # src: liu-2015
        net.conv(x, classes * count, kernel, stride, bias=True)


def ssd300_resnet50(image: Sizes = 300, classes: int = COCO) -> Network:  # src: liu-2015
    """SSD300 on ResNet-50 up to its third stage, which keeps its stride (NVIDIA's example)."""
    net = start(image)
    member = replace(MEMBERS["resnet50"], blocks=(3, 4, 6), last_strides=(1, 2, 1))  # src: liu-2015
    x = trunk(net, member)[-1]
    net.scope = "ssd."
    _heads(net, _extras(net, x, _EXTRAS_300), _BOXES, classes)
    return net.done("ssd300-resnet50", "nvidia-deeplearningexamples")


def ssd_resnet34(image: Sizes = 1200, classes: int = COCO) -> Network:  # src: mlperf-inference-rules
    """SSD on ResNet-34 at 1200 pixels (MLPerf inference): heads with stride 3."""
    net = start(image)
    member = replace(MEMBERS["resnet34"], blocks=(3, 4, 6), last_strides=(1, 2, 1))  # src: mlperf-inference-rules
    x = trunk(net, member)[-1]
    net.scope, net.norm = "ssd.", None
    _heads(net, _extras(net, x, _EXTRAS_1200), _BOXES, classes, stride=3)  # src: mlperf-inference-rules
    return net.done("ssd-resnet34", "mlperf-inference-rules")


def ssd_mobilenet_v1(image: Sizes = 300, classes: int = 91) -> Network:  # src: liu-2015
    """SSD on MobileNet 1 with 1x1 heads (TensorFlow's detection library; MLPerf inference)."""
    net = start(image, activation="relu6", same=True)
    x = net.block(-1, 32, 3, 2)  # src: liu-2015
    found = body(net, x, STAGES["mobilenet-v1"], Habits())
    maps = [found[-2], *_extras(net, found[-1], "256-512/2 128-256/2 128-256/2 64-128/2")]
    _heads(net, maps, (3, 6, 6, 6, 6, 6), classes, kernel=1)  # src: liu-2015
    return net.done("ssd-mobilenet-v1", "mlperf-inference-rules")


def ssd_mobilenet_v2(image: Sizes = 300, classes: int = 91) -> Network:  # src: liu-2015
    """SSD on MobileNet 2 with 1x1 heads (TensorFlow's detection library)."""
    net = start(image, activation="relu6", same=True)
    x = net.block(-1, 32, 3, 2)  # src: liu-2015
    found = body(net, x, STAGES["mobilenet-v2"], Habits())
    x = net.block(found[-1], 1280)  # src: liu-2015
    maps = [found[-3], *_extras(net, x, "256-512/2 128-256/2 128-256/2 64-128/2")]  # src: liu-2015
    _heads(net, maps, (3, 6, 6, 6, 6, 6), classes, kernel=1)  # src: liu-2015
    return net.done("ssd-mobilenet-v2", "liu-2015")


def pyramid(net: Net, maps: list[int]) -> list[int]:
    """Feature pyramid: 1x1 on every map, sums from the top down, 3x3 on every sum; coarse to fine order kept."""
    laterals = [net.conv(x, PYRAMID, bias=True) for x in maps]
    merged = [laterals[-1]]
    for lateral in reversed(laterals[:-1]):
        above = net.resize(merged[0])
        if net.shape(above) != net.shape(lateral):
            above = net.rearrange(merged[0], PYRAMID, net.shape(lateral).spatial, "resize")
        merged.insert(0, net.sum(lateral, above))
    return [net.conv(x, PYRAMID, 3, bias=True) for x in merged]  # src: lin-2017


def retinanet(
    image: Sizes = 800,  # src: lin-2017
    classes: int = OPEN_IMAGES,
    backbone: str = "resnext50-32x4d",  # src: lin-2017
) -> Network:  # src: lin-2017
    """RetinaNet with a five-level pyramid and shared heads (MLPerf: ResNeXt-50, 800 pixels, OpenImages).

    In training, normalisation of the backbone is frozen and so are its first two stages.
    """
    net = start(image, norm="frozen")
    stages = trunk(net, replace(MEMBERS[backbone], frozen=2))
    net.scope, net.norm = "fpn.", None
    levels = pyramid(net, stages[1:])
    p6 = net.conv(levels[-1], PYRAMID, 3, 2, bias=True)  # src: lin-2017
    levels += [p6, net.conv(net.act(p6), PYRAMID, 3, 2, bias=True)]  # src: lin-2017
    for name, outputs in (("classes.", 9 * classes), ("boxes.", 9 * 4)):  # src: lin-2017
        net.scope = name
        first = levels[0]
        own: list[int] = []
        for level in levels:
            x = level
            for depth in range(5):  # src: lin-2017
                wide = outputs if depth == 4 else PYRAMID  # src: lin-2017
                if level == first:
                    x = net.conv(x, wide, 3, bias=True)  # src: lin-2017
                    own.append(x)
                else:
                    x = net.shared(x, own[depth])
                if depth < 4:  # src: lin-2017
                    x = net.act(x)
    return net.done("retinanet-resnext50", "mlperf-inference-rules")


def mask_rcnn(
    image: Sizes = MASK_IMAGE,
    classes: int = COCO,
    regions: int = 512,  # src: he-2017
    masks: int = 128,  # src: he-2017
) -> Network:  # src: he-2017
    """Mask R-CNN on ResNet-50 with a pyramid; `regions` boxes and `masks` masks of each image go through the heads.

    Training draws 512 regions an image, a quarter of them with an object; inference keeps 1,000 proposals and 100
    masks.
    """
    net = start(image, norm="frozen")
    stages = trunk(net, replace(MEMBERS["resnet50"], first_stride=True, frozen=2))
    net.scope, net.norm = "fpn.", None
    levels = pyramid(net, stages)
    levels.append(net.pool(levels[-1], "max", 1, 2))
    net.scope = "proposals."
    own: list[int] = []
    for level in levels:
        if not own:
            x = net.conv(level, PYRAMID, 3, bias=True)  # src: he-2017
            y = net.act(x)
            own = [x, net.conv(y, 3, bias=True), net.conv(y, 12, bias=True)]  # src: he-2017
        else:
            y = net.act(net.shared(level, own[0]))
            net.shared(y, own[1])
            net.shared(y, own[2])
    net.scope, net.copies = "boxes.", float(regions)
    x = net.flatten(_aligned(net, levels[0], 7))  # src: he-2017
    x = net.act(net.dense(net.act(net.dense(x, 1024)), 1024))  # src: he-2017
    net.dense(x, classes)
    net.dense(x, 4 * classes)  # src: he-2017
    net.scope, net.copies = "masks.", float(masks)
    x = _aligned(net, levels[0], 14)  # src: he-2017
    for _ in range(4):  # src: he-2017
        x = net.act(net.conv(x, PYRAMID, 3, bias=True))  # src: he-2017
    net.conv(net.act(net.up(x, PYRAMID)), classes, bias=True)
    return net.done("mask-rcnn-resnet50", "he-2017")


def _aligned(net: Net, level: int, size: int) -> int:
    """A region cut from the pyramid by bilinear sampling at four points a cell."""
    return net.rearrange(level, PYRAMID, (size, size), "align", 16.0)  # src: he-2017
