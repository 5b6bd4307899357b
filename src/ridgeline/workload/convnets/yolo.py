"""One-stage detectors of the YOLO line: versions 3 (and tiny), 5 and 8. Box decoding and suppression are not modelled.

Sources: Redmon 2018 (arXiv 1804.02767), the model definitions of Ultralytics for versions 5 (6.0) and 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ridgeline.specs.network import Network, Rearrange
from ridgeline.workload.convnets.builder import Net, Sizes, start

COCO = 80  # src: ultralytics-models
# src: ultralytics-models; depth, width, most channels of the widest stage.
SCALES: dict[str, str] = {
    "yolov5n": "0.33 0.25 1024",
    "yolov5s": "0.33 0.50 1024",
    "yolov5m": "0.67 0.75 1024",
    "yolov5l": "1.0 1.0 1024",
    "yolov5x": "1.33 1.25 1024",
    "yolov8n": "0.33 0.25 1024",
    "yolov8s": "0.33 0.50 1024",
    "yolov8m": "0.67 0.75 768",
    "yolov8l": "1.0 1.0 512",
    "yolov8x": "1.0 1.25 512",
}


@dataclass(frozen=True, slots=True)
class _Scale:
    depth: float
    width: float
    most: int

    def channels(self, count: int) -> int:
        """Channels of a stage at this scale."""
        return math.ceil(min(count, self.most) * self.width / 8) * 8  # src: ultralytics-models

    def repeats(self, count: int) -> int:
        """Repeats of a block at this scale."""
        return max(round(count * self.depth), 1)


def yolo(name: str, image: Sizes = 640, classes: int = COCO) -> Network:  # src: ultralytics-models
    """A member of version 5 or 8 by name.

    >>> yolo("yolov8n").parameters_count, yolo("yolov5s").parameters_count
    (3157200, 7235389)
    """
    depth, width, most = SCALES[name].split()
    scale = _Scale(float(depth), float(width), int(most))
    eight = name.startswith("yolov8")
    net = start(image, activation="silu")
    block = _split_block if eight else _partial_block
    x = net.block(-1, scale.channels(64), 3 if eight else 6, 2, padding=1 if eight else 2)  # src: ultralytics-models
    levels = []
    for channels, repeats in ((128, 3), (256, 6), (512, 6 if eight else 9), (1024, 3)):  # src: ultralytics-models
        x = net.block(x, scale.channels(channels), 3, 2)  # src: ultralytics-models
        x = block(net, x, scale.channels(channels), scale.repeats(repeats), True)
        levels.append(x)
    p3, p4 = levels[1:3]  # src: ultralytics-models
    p5 = _pyramid_pool(net, levels[-1], scale.channels(1024))  # src: ultralytics-models
    down: list[int] = []
    x = p5
    for channels, skip in ((512, p4), (256, p3)):  # src: ultralytics-models
        if not eight:
            x = net.block(x, scale.channels(channels))
        down.append(x)
        x = block(
            net,
            net.concat(net.resize(x), skip),
            scale.channels(channels),
            scale.repeats(3),  # src: ultralytics-models
            False,  # src: ultralytics-models
        )  # src: ultralytics-models
    maps = [x]
    for channels, skip in ((512, down[1]), (1024, down[0])):  # src: ultralytics-models
        x = net.concat(net.block(x, net.channels(x), 3, 2), skip)  # src: ultralytics-models
        x = block(net, x, scale.channels(channels), scale.repeats(3), False)  # src: ultralytics-models
        maps.append(x)
    if eight:
        _decoupled_heads(net, maps, classes)
    else:
        for x in maps:
            net.conv(x, 3 * (classes + 5), bias=True)  # src: ultralytics-models
    return net.done(name, "ultralytics-models")


def _bottleneck(net: Net, x: int, shortcut: bool, first: int) -> int:
    y = net.block(net.block(x, net.channels(x), first), net.channels(x), 3)  # src: ultralytics-models
    return net.sum(y, x) if shortcut else y


def _partial_block(net: Net, x: int, outputs: int, repeats: int, shortcut: bool) -> int:
    """Cross-stage partial block of version 5: one half through bottlenecks, the other past them."""
    half = outputs // 2
    y, past = net.block(x, half), net.block(x, half)
    for _ in range(repeats):
        y = _bottleneck(net, y, shortcut, 1)
    return net.block(net.concat(y, past), outputs)


def _split_block(net: Net, x: int, outputs: int, repeats: int, shortcut: bool) -> int:
    """Block of version 8: one half through bottlenecks, every stage of it kept."""
    half = outputs // 2
    whole = net.block(x, 2 * half)
    y = net.rearrange(whole, half, net.shape(whole).spatial, "split", 0.0)
    kept = [whole]
    for _ in range(repeats):
        y = _bottleneck(net, y, shortcut, 3)  # src: ultralytics-models
        kept.append(y)
    return net.block(net.concat(*kept), outputs)


def _pyramid_pool(net: Net, x: int, outputs: int) -> int:
    x = net.block(x, net.channels(x) // 2)
    pools = [x]
    for _ in range(3):  # src: ultralytics-models
        pools.append(net.pool(pools[-1], "max", 5, 1, 2))  # src: ultralytics-models
    return net.block(net.concat(*pools), outputs)


def _decoupled_heads(net: Net, maps: list[int], classes: int) -> None:
    """Boxes as distributions over 16 bins a side, classes apart."""
    box, kind = (
        max(16, net.channels(maps[0]) // 4, 64),  # src: ultralytics-models
        max(net.channels(maps[0]), min(classes, 100)),  # src: ultralytics-models
    )  # src: ultralytics-models
    for x in maps:
        for width, outputs in ((box, 64), (kind, classes)):  # src: ultralytics-models
            net.conv(net.block(net.block(x, width, 3), width, 3), outputs, bias=True)  # src: ultralytics-models
    bins = Rearrange(kind="bins", parameters_count=16)  # src: ultralytics-models
    net.add("bins", bins, (len(net.nodes) - 1,), net.shape(len(net.nodes) - 1))


def darknet53(net: Net) -> list[int]:
    """The backbone of version 3; returns its last three stages."""
    x = net.block(-1, 32, 3)  # src: redmon-2018
    found = []
    for stage, repeats in enumerate((1, 2, 8, 8, 4)):  # src: redmon-2018
        x = net.block(x, 64 * 2**stage, 3, 2)  # src: redmon-2018
        for _ in range(repeats):
            x = net.sum(net.block(net.block(x, net.channels(x) // 2), net.channels(x), 3), x)  # src: redmon-2018
        found.append(x)
    return found[2:]


def yolo_v3(image: Sizes = 416, classes: int = COCO) -> Network:  # src: redmon-2018
    """Version 3 on Darknet-53.

    >>> yolo_v3().parameters_count
    61949149
    """
    net = start(image, activation="leaky-relu")
    p3, p4, x = darknet53(net)
    for width, skip in ((512, p4), (256, p3), (128, None)):  # src: redmon-2018
        for _ in range(2):
            x = net.block(net.block(x, width), 2 * width, 3)  # src: redmon-2018
        x = net.block(x, width)
        net.conv(net.block(x, 2 * width, 3), 3 * (classes + 5), bias=True)  # src: redmon-2018
        if skip is not None:
            x = net.concat(net.resize(net.block(x, width // 2)), skip)
    return net.done("yolov3", "redmon-2018")


def yolo_v3_tiny(image: Sizes = 416, classes: int = COCO) -> Network:  # src: redmon-2018
    """The small form of version 3.

    >>> round(yolo_v3_tiny().parameters_count / 1e6, 2)
    8.85
    """
    net = start(image, activation="leaky-relu")
    x = -1
    skip = x
    for stage in range(6):  # src: redmon-2018
        x = net.block(x, 16 * 2**stage, 3)  # src: redmon-2018
        skip = x if stage == 4 else skip  # src: redmon-2018
        x = net.pool(x, "max", 2, 2) if stage < 5 else net.pool(x, "max", 3, 1, 1)  # src: redmon-2018
    x = net.block(net.block(x, 1024, 3), 256)  # src: redmon-2018
    net.conv(net.block(x, 512, 3), 3 * (classes + 5), bias=True)  # src: redmon-2018
    x = net.concat(net.resize(net.block(x, 128)), skip)  # src: redmon-2018
    net.conv(net.block(x, 256, 3), 3 * (classes + 5), bias=True)  # src: redmon-2018
    return net.done("yolov3-tiny", "redmon-2018")
