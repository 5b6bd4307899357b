"""Densely connected networks. Source: Huang 2016 (arXiv 1608.06993, table 1)."""

from __future__ import annotations

from ridgeline.specs.network import Network
from ridgeline.workload.convnets.builder import Sizes, start

IMAGE, CLASSES = 224, 1000  # src: huang-2016
# src: huang-2016; layers of each block, growth, channels of the first layer.
DENSENET: dict[str, str] = {
    "densenet121": "6 12 24 16 | 32 64",
    "densenet161": "6 12 36 24 | 48 96",
    "densenet169": "6 12 32 32 | 32 64",
    "densenet201": "6 12 48 32 | 32 64",
}
_BOTTLENECK = 4  # src: huang-2016


def densenet(name: str, image: Sizes = IMAGE, classes: int = CLASSES) -> Network:
    """A member by name. Every layer reads the concatenation of all layers of its block before it.

    >>> densenet("densenet121").parameters_count
    7978856
    """
    blocks, widths = DENSENET[name].split("|")
    growth, first = (int(part) for part in widths.split())
    net = start(image)
    x = net.pool(net.block(-1, first, 7, 2), "max", 3, 2, 1)  # src: huang-2016
    counts = [int(part) for part in blocks.split()]
    for number, count in enumerate(counts):
        for index in range(count):
            net.scope = f"block{number + 1}.{index}."
            y = net.act(net.normalise(x))
            y = net.block(y, _BOTTLENECK * growth)
            x = net.concat(x, net.conv(y, growth, 3))  # src: huang-2016
        if number < len(counts) - 1:
            net.scope = f"transition{number + 1}."
            x = net.conv(net.act(net.normalise(x)), net.channels(x) // 2)
            x = net.pool(x, "average")
    net.scope = ""
    net.classifier(net.act(net.normalise(x)), classes)
    return net.done(name, "huang-2016")
