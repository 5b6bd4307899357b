"""Chains without residuals: AlexNet, VGG, SqueezeNet.

Sources: Krizhevsky 2014 (arXiv 1404.5997), Simonyan 2014 (1409.1556, table 1), Iandola 2016 (1602.07360).
"""

from __future__ import annotations

from ridgeline.specs.network import Network
from ridgeline.workload.convnets.builder import Net, Sizes, start

IMAGE, CLASSES, HIDDEN = 224, 1000, 4096  # src: simonyan-2014
# src: simonyan-2014; channels of the 3x3 convolutions; M: pooling.
VGG: dict[str, str] = {
    "vgg11": "64 M 128 M 256 256 M 512 512 M 512 512 M",
    "vgg13": "64 64 M 128 128 M 256 256 M 512 512 M 512 512 M",
    "vgg16": "64 64 M 128 128 M 256 256 256 M 512 512 512 M 512 512 512 M",
    "vgg19": "64 64 M 128 128 M 256 256 256 256 M 512 512 512 512 M 512 512 512 512 M",
}
# src: iandola-2016; fire modules as squeeze and expand widths; M: pooling. First layer: channels, kernel.
SQUEEZENET: dict[str, str] = {
    "squeezenet1.0": "96 7 M 16-64 16-64 32-128 M 32-128 48-192 48-192 64-256 M 64-256",
    "squeezenet1.1": "64 3 M 16-64 16-64 M 32-128 32-128 M 48-192 48-192 64-256 64-256",
}


def vgg(name: str, image: Sizes = IMAGE, classes: int = CLASSES) -> Network:
    """A member by name; "-bn" behind it adds batch normalisation.

    >>> vgg("vgg16").parameters_count
    138357544
    """
    plain = name.removesuffix("-bn")
    net = start(image, norm="batch" if name != plain else None)
    x = features(net, VGG[plain])
    if net.shape(x).spatial != (7, 7):  # src: simonyan-2014
        x = net.rearrange(x, net.channels(x), (7, 7), "adaptive-pool")  # src: simonyan-2014
    x = net.flatten(x)
    for _ in range(2):
        x = net.act(net.dense(x, HIDDEN))
    net.dense(x, classes)
    return net.done(name, "simonyan-2014")


def features(net: Net, layers: str, x: int = -1) -> int:
    """The convolutions and poolings of a VGG."""
    for token in layers.split():
        x = net.pool(x, "max") if token == "M" else net.block(x, int(token), 3, bias=True)  # src: simonyan-2014
    return x


def alexnet(image: Sizes = IMAGE, classes: int = CLASSES) -> Network:
    """AlexNet in its single-column form.

    >>> alexnet().parameters_count
    61100840
    """
    net = start(image, norm=None)
    x = net.block(-1, 64, 11, 4, bias=True, padding=2)  # src: krizhevsky-2014
    x = net.pool(x, "max", 3, 2)  # src: krizhevsky-2014
    x = net.pool(net.block(x, 192, 5, bias=True), "max", 3, 2)  # src: krizhevsky-2014
    for width in (384, 256, 256):  # src: krizhevsky-2014
        x = net.block(x, width, 3, bias=True)  # src: krizhevsky-2014
    x = net.flatten(net.pool(x, "max", 3, 2))  # src: krizhevsky-2014
    for _ in range(2):
        x = net.act(net.dense(x, HIDDEN))
    net.dense(x, classes)
    return net.done("alexnet", "krizhevsky-2014")


def squeezenet(name: str, image: Sizes = IMAGE, classes: int = CLASSES) -> Network:
    """A member by name.

    >>> squeezenet("squeezenet1.1").parameters_count
    1235496
    """
    net = start(image, norm=None)
    first, kernel, *rest = SQUEEZENET[name].split()
    x = net.block(-1, int(first), int(kernel), 2, bias=True, padding=0)
    for token in rest:
        if token == "M":
            x = net.pool(x, "max", 3, 2, ceil=True)  # src: iandola-2016
            continue
        squeeze, expand = (int(part) for part in token.split("-"))
        s = net.block(x, squeeze, bias=True)
        x = net.concat(net.block(s, expand, bias=True), net.block(s, expand, 3, bias=True))  # src: iandola-2016
    x = net.block(x, classes, bias=True)
    net.global_pool(x)
    return net.done(name, "iandola-2016")
