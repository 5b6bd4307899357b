"""Residual networks: ResNet 18 to 152, ResNeXt, SE-ResNet, wide ones, and pre-activation BiT.

Sources: He 2015 (arXiv 1512.03385, table 1), Xie 2016 (1611.05431), Hu 2018 (1709.01507), Zagoruyko 2016 (1605.07146),
Kolesnikov 2019 (1912.11370). In version 1.5 the 3x3 convolution of a block has the stride, in version 1 the first 1x1.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.specs.network import Network
from ridgeline.workload.convnets.builder import Net, Sizes, start

BASIC, BOTTLENECK, SQUEEZE = 1, 4, 16  # src: he-2015


@dataclass(frozen=True, slots=True, kw_only=True)
class ResNet:
    """One member: blocks of each stage; `groups_count` x `group_width_count` channels in the 3x3 convolutions."""

    blocks: tuple[int, ...]
    expansion: int = BOTTLENECK
    groups_count: int = 1
    group_width_count: int = 64  # src: he-2015
    squeeze_count: int = 0
    first_stride: bool = False
    frozen: int = 0
    last_strides: tuple[int, ...] = (1, 2, 2, 2)
    source: str = "he-2015"


def _member(blocks: str, groups: str = "1x64", **options: object) -> ResNet:
    """A member from its counts of blocks and "groups x width" as published."""
    count, width = (int(part) for part in groups.split("x"))
    counts = tuple(int(part) for part in blocks.split())
    return ResNet(blocks=counts, groups_count=count, group_width_count=width, **options)  # type: ignore[arg-type]


# src: he-2015, xie-2016, zagoruyko-2016, hu-2018; blocks of the four stages, groups x width of the first stage.
MEMBERS: dict[str, ResNet] = {
    "resnet18": _member("2 2 2 2", expansion=BASIC),
    "resnet34": _member("3 4 6 3", expansion=BASIC),
    "resnet26": _member("2 2 2 2"),
    "resnet50": _member("3 4 6 3"),
    "resnet101": _member("3 4 23 3"),
    "resnet152": _member("3 8 36 3"),
    "resnet50-v1": _member("3 4 6 3", first_stride=True),
    "resnet101-v1": _member("3 4 23 3", first_stride=True),
    "resnet152-v1": _member("3 8 36 3", first_stride=True),
    "resnext26-32x4d": _member("2 2 2 2", "32x4", source="xie-2016"),
    "resnext50-32x4d": _member("3 4 6 3", "32x4", source="xie-2016"),
    "resnext101-32x4d": _member("3 4 23 3", "32x4", source="xie-2016"),
    "resnext101-32x8d": _member("3 4 23 3", "32x8", source="xie-2016"),
    "wide-resnet50-2": _member("3 4 6 3", "1x128", source="zagoruyko-2016"),
    "wide-resnet101-2": _member("3 4 23 3", "1x128", source="zagoruyko-2016"),
    "se-resnet50": _member("3 4 6 3", squeeze_count=SQUEEZE, source="hu-2018"),
    "se-resnext101-32x4d": _member("3 4 23 3", "32x4", squeeze_count=SQUEEZE, source="hu-2018"),
}
IMAGE, CLASSES = 224, 1000  # src: he-2015


def resnet(name: str, image: Sizes = IMAGE, classes: int = CLASSES) -> Network:  # src: he-2015
    """A member of the family by name.

    >>> resnet("resnet50").parameters_count
    25557032
    """
    member = MEMBERS[name]
    net = start(image)
    features = trunk(net, member)
    net.scope = ""
    net.classifier(features[-1], classes)
    return net.done(name, member.source)


def trunk(net: Net, member: ResNet, x: int = -1) -> list[int]:
    """Stem and stages; returns the output of each stage. The first `frozen` of stem and stages get no gradient."""
    trained = net.trained
    net.trained = trained and member.frozen < 1
    x = net.block(x, 64, 7, 2)  # src: he-2015
    x = net.pool(x, "max", 3, 2, 1)  # src: he-2015
    found = []
    for stage, (count, stride) in enumerate(zip(member.blocks, member.last_strides, strict=False)):
        net.trained = trained and member.frozen < stage + 2
        for index in range(count):
            net.scope = f"stage{stage + 1}.{index}."
            x = _block(net, x, 64 * 2**stage, stride if index == 0 else 1, member)  # src: he-2015
        found.append(x)
    net.trained = trained
    return found


def _block(net: Net, x: int, planes: int, stride: int, member: ResNet) -> int:
    shortcut, outputs = x, planes * member.expansion
    if member.expansion == BASIC:
        x = net.block(x, planes, 3, stride)  # src: he-2015
        x = net.block(x, planes, 3, act="")  # src: he-2015
    else:
        width = planes * member.group_width_count // 64 * member.groups_count  # src: he-2015
        first, second = (stride, 1) if member.first_stride else (1, stride)
        x = net.block(x, width, 1, first)
        x = net.block(x, width, 3, second, groups=member.groups_count)  # src: he-2015
        x = net.block(x, outputs, act="")
    if member.squeeze_count:
        x = net.squeeze_excite(x, outputs // member.squeeze_count)
    if stride > 1 or net.channels(shortcut) != outputs:
        shortcut = net.block(shortcut, outputs, 1, stride, act="")
    return net.act(net.sum(x, shortcut))


def bit_resnet(
    name: str = "resnetv2-50x1-bit",
    image: Sizes = IMAGE,
    classes: int = 1000,  # src: kolesnikov-2019
) -> Network:  # src: kolesnikov-2019
    """Pre-activation ResNet-50 with group normalisation and standardised weights (BiT-M, width 1).

    >>> bit_resnet().parameters_count
    25549352
    """
    net = start(image, norm="group")
    x = _standard(net, -1, 64, 7, 2)  # src: kolesnikov-2019
    x = net.pool(x, "max", 3, 2, 1)  # src: kolesnikov-2019
    for stage, count in enumerate((3, 4, 6, 3)):  # src: kolesnikov-2019
        outputs = 256 * 2**stage  # src: kolesnikov-2019
        for index in range(count):
            stride = 2 if index == 0 and stage > 0 else 1
            shortcut = x
            y = net.act(net.normalise(x))
            if index == 0:
                shortcut = _standard(net, y, outputs, 1, stride)
            y = net.act(net.normalise(_standard(net, y, outputs // 4, 1, 1)))  # src: kolesnikov-2019
            y = net.act(net.normalise(_standard(net, y, outputs // 4, 3, stride)))  # src: kolesnikov-2019
            x = net.sum(_standard(net, y, outputs, 1, 1), shortcut)
    x = net.act(net.normalise(x))
    net.classifier(x, classes)
    return net.done("resnetv2-50x1-bit", "kolesnikov-2019")


def _standard(net: Net, x: int, outputs: int, kernel: int, stride: int) -> int:
    """A convolution whose weights are standardised before use."""
    return net.conv(x, outputs, kernel, stride)
