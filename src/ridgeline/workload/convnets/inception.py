"""Networks of parallel branches: GoogLeNet, Inception 3 and 4, Xception.

Sources: Szegedy 2014 (arXiv 1409.4842, with batch normalisation as libraries ship it), Szegedy 2015 (1512.00567),
Szegedy 2016 (1602.07261), Chollet 2016 (1610.02357). A branch is written as its layers: channels, kernel, stride.
"""

from __future__ import annotations

from ridgeline.specs.network import Network
from ridgeline.workload.convnets.builder import Net, Sizes, start

IMAGE, SMALL, CLASSES = 299, 224, 1000  # src: szegedy-2015


def branch(net: Net, x: int, layers: str) -> int:
    """ "64": 1x1; "96@3" 3x3; "64@1x7" one row; "v" without padding, as with a stride "/2"; "max", "avg": 3x3.

    A final "+" splits: the last two layers read the same input and are concatenated.
    """
    tokens = layers.split()
    split = tokens[-1] == "+"
    if split:
        tokens.pop()
    for token in tokens[: len(tokens) - 2 if split else None]:
        x = _layer(net, x, token)
    if split:
        x = net.concat(*(_layer(net, x, token) for token in tokens[-2:]))
    return x


def _layer(net: Net, x: int, token: str) -> int:
    name, _, stride = token.partition("/")
    step = int(stride or 1)
    if name in ("max", "avg"):
        return net.pool(x, "max" if name == "max" else "average", 3, step, 0 if step > 1 else 1)  # src: szegedy-2015
    channels, _, size = name.partition("@")
    open_edge = step > 1 or size.endswith("v")
    size = size.removesuffix("v")
    kernel = tuple(int(part) for part in size.split("x")) if "x" in size else int(size or 1)
    return net.block(x, int(channels), kernel, step, padding=0 if open_edge else None)


def mixed(net: Net, x: int, *branches: str) -> int:
    """Branches on the same input, concatenated ("": the input itself)."""
    return net.concat(*(branch(net, x, layers) if layers else x for layers in branches))


# src: szegedy-2014; 1x1; 3x3 reduce, 3x3; 5x5 reduce, 5x5 (3x3 in libraries); pool projection. M: pooling.
_GOOGLENET = (
    "64 96-128 16-32 32; 128 128-192 32-96 64; M; 192 96-208 16-48 64; 160 112-224 24-64 64; 128 128-256 24-64 64; "
    "112 144-288 32-64 64; 256 160-320 32-128 128; M2; 256 160-320 32-128 128; 384 192-384 48-128 128"
)


def googlenet(image: Sizes = SMALL, classes: int = CLASSES) -> Network:
    """GoogLeNet (Inception 1) with batch normalisation, without auxiliary heads.

    >>> googlenet().parameters_count
    6624904
    """
    net = start(image)
    x = net.pool(net.block(-1, 64, 7, 2), "max", 3, 2, ceil=True)  # src: szegedy-2014
    x = net.pool(net.block(net.block(x, 64), 192, 3), "max", 3, 2, ceil=True)  # src: szegedy-2014
    for text in _GOOGLENET.split(";"):
        words = text.split()
        if words[0].startswith("M"):
            x = net.pool(x, "max", 2 if words[0] == "M2" else 3, 2, ceil=True)  # src: szegedy-2014
            continue
        one, three, five, pooled = words
        (a, b), (c, d) = three.split("-"), five.split("-")
        x = mixed(net, x, one, f"{a} {b}@3", f"{c} {d}@3", f"max {pooled}")
    net.classifier(x, classes)
    return net.done("googlenet", "szegedy-2014")


def inception_v3(image: Sizes = IMAGE, classes: int = CLASSES, auxiliary: bool = False) -> Network:
    """Inception 3; `auxiliary`: with the second head of training.

    >>> inception_v3().parameters_count, inception_v3(auxiliary=True).parameters_count
    (23834568, 27161264)
    """
    net = start(image)
    x = branch(net, -1, "32@3/2 32@3v 64@3 max/2 80 192@3v max/2")
    for pooled in (32, 64, 64):  # src: szegedy-2015
        x = mixed(net, x, "64", "48 64@5", "64 96@3 96@3", f"avg {pooled}")
    x = mixed(net, x, "384@3/2", "64 96@3 96@3/2", "max/2")
    for c in (128, 160, 160, 192):  # src: szegedy-2015
        x = mixed(net, x, "192", f"{c} {c}@1x7 192@7x1", f"{c} {c}@7x1 {c}@1x7 {c}@7x1 192@1x7", "avg 192")
    if auxiliary:
        first = len(net.nodes)
        y = net.pool(x, "average", 5, 3)  # src: szegedy-2015
        y = net.block(net.block(y, 128), 768, 5, padding=0)  # src: szegedy-2015
        net.dense(net.global_pool(y), classes)
        net.side(first)
    x = mixed(net, x, "192 320@3/2", "192 192@1x7 192@7x1 192@3/2", "max/2")
    for _ in range(2):
        x = mixed(net, x, "320", "384 384@1x3 384@3x1 +", "448 384@3 384@1x3 384@3x1 +", "avg 192")
    net.classifier(x, classes)
    return net.done("inception-v3", "szegedy-2015")


def inception_v4(image: Sizes = IMAGE, classes: int = CLASSES) -> Network:
    """Inception 4.

    >>> inception_v4().parameters_count
    42679816
    """
    net = start(image)
    x = branch(net, -1, "32@3/2 32@3v 64@3")
    x = mixed(net, x, "max/2", "96@3/2")
    x = mixed(net, x, "64 96@3v", "64 64@1x7 64@7x1 96@3v")
    x = mixed(net, x, "192@3/2", "max/2")
    for _ in range(4):  # src: szegedy-2016
        x = mixed(net, x, "96", "64 96@3", "64 96@3 96@3", "avg 96")
    x = mixed(net, x, "384@3/2", "192 224@3 256@3/2", "max/2")
    for _ in range(7):  # src: szegedy-2016
        x = mixed(net, x, "384", "192 224@1x7 256@7x1", "192 192@7x1 224@1x7 224@7x1 256@1x7", "avg 128")
    x = mixed(net, x, "192 192@3/2", "256 256@1x7 320@7x1 320@3/2", "max/2")
    for _ in range(3):  # src: szegedy-2016
        x = mixed(net, x, "256", "384 256@1x3 256@3x1 +", "384 448@3x1 512@1x3 256@1x3 256@3x1 +", "avg 256")
    net.classifier(x, classes)
    return net.done("inception-v4", "szegedy-2016")


def xception(image: Sizes = IMAGE, classes: int = CLASSES) -> Network:
    """Xception: depthwise-separable convolutions with residuals.

    >>> xception().parameters_count
    22855952
    """
    net = start(image)
    x = net.block(-1, 32, 3, 2, padding=0)  # src: chollet-2016
    x = net.block(x, 64, 3, padding=0)  # src: chollet-2016
    for number, width in enumerate((128, 256, 728)):  # src: chollet-2016
        x = _separable_block(net, x, (width, width), 2, first_act=number > 0)
    for _ in range(8):  # src: chollet-2016
        x = _separable_block(net, x, (728, 728, 728), 1)  # src: chollet-2016
    x = _separable_block(net, x, (728, 1024), 2)  # src: chollet-2016
    for width in (1536, 2048):  # src: chollet-2016
        x = net.act(_separable(net, x, width))
    net.classifier(x, classes)
    return net.done("xception", "chollet-2016")


def _separable(net: Net, x: int, outputs: int) -> int:
    y = net.conv(x, net.channels(x), 3, groups=net.channels(x))  # src: chollet-2016
    return net.normalise(net.conv(y, outputs))


def _separable_block(net: Net, x: int, widths: tuple[int, ...], stride: int, first_act: bool = True) -> int:
    y = x
    for index, width in enumerate(widths):
        if index > 0 or first_act:
            y = net.act(y)
        y = _separable(net, y, width)
    if stride > 1:
        y = net.pool(y, "max", 3, stride, 1)  # src: chollet-2016
        x = net.block(x, widths[-1], 1, stride, act="")
    return net.sum(y, x)
