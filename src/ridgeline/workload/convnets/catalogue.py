"""Every network by name: one place where a name becomes a graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ridgeline.errors import UnknownName
from ridgeline.specs.network import Network
from ridgeline.workload.convnets import (
    dense,
    detection,
    diffusion,
    inception,
    mobile,
    modern,
    plain,
    resnet,
    unet,
    yolo,
)

Image = int | tuple[int, ...] | None
Builder = Callable[[Image], Network]


def _sized(build: Callable[..., Network], *fixed: object, **options: object) -> Builder:
    """A builder that keeps its own image size unless it is given one."""

    def make(image: Image) -> Network:
        if image is None:
            return build(*fixed, **options)
        return build(*fixed, image=image, **options)

    return make


def _latent(name: str) -> Builder:
    def make(image: Image) -> Network:
        return diffusion.denoiser(name, image)

    return make


NETWORKS: dict[str, Builder] = {
    **{name: _sized(resnet.resnet, name) for name in resnet.MEMBERS},
    "resnetv2-50x1-bit": _sized(resnet.bit_resnet),
    "alexnet": _sized(plain.alexnet),
    **{f"{name}{tail}": _sized(plain.vgg, f"{name}{tail}") for name in plain.VGG for tail in ("", "-bn")},
    **{name: _sized(plain.squeezenet, name) for name in plain.SQUEEZENET},
    "mobilenet-v1": _sized(mobile.mobilenet_v1),
    "mobilenet-v1-0.75": _sized(mobile.mobilenet_v1, width=3 / 4),  # src: howard-2017
    "mobilenet-v1-0.5": _sized(mobile.mobilenet_v1, width=1 / 2),
    "mobilenet-v1-0.25": _sized(mobile.mobilenet_v1, width=1 / 4),  # src: howard-2017
    "mobilenet-v2": _sized(mobile.mobilenet_v2),
    "mobilenet-v2-1.4": _sized(mobile.mobilenet_v2, width=1.4),  # src: howard-2017
    "mobilenet-v3-large": _sized(mobile.mobilenet_v3, "large"),
    "mobilenet-v3-small": _sized(mobile.mobilenet_v3, "small"),
    **{f"efficientnet-{name}": _sized(mobile.efficientnet, name) for name in (*mobile.COMPOUND, *mobile.LITE)},
    **{f"efficientnet-widese-{name}": _sized(mobile.efficientnet, name, wide_gate=True) for name in mobile.COMPOUND},
    **{f"efficientnet-v2-{size}": _sized(mobile.efficientnet_v2, size) for size in "sml"},
    **{name: _sized(dense.densenet, name) for name in dense.DENSENET},
    "googlenet": _sized(inception.googlenet),
    "inception-v3": _sized(inception.inception_v3),
    "inception-v3-auxiliary": _sized(inception.inception_v3, auxiliary=True),
    "inception-v4": _sized(inception.inception_v4),
    "xception": _sized(inception.xception),
    **{name: _sized(modern.regnet, name) for name in modern.REGNET},
    **{name: _sized(modern.convnext, name) for name in modern.CONVNEXT},
    "nfnet-f0": _sized(modern.nfnet_f0),
    **{name: _sized(modern.repvgg, name) for name in modern.REPVGG},
    "ssd300-resnet50": _sized(detection.ssd300_resnet50),
    "ssd-resnet34": _sized(detection.ssd_resnet34),
    "ssd-mobilenet-v1": _sized(detection.ssd_mobilenet_v1),
    "ssd-mobilenet-v2": _sized(detection.ssd_mobilenet_v2),
    "retinanet-resnext50": _sized(detection.retinanet),
    "mask-rcnn-resnet50": _sized(detection.mask_rcnn),
    **{name: _sized(yolo.yolo, name) for name in yolo.SCALES},
    "yolov3": _sized(yolo.yolo_v3),
    "yolov3-tiny": _sized(yolo.yolo_v3_tiny),
    "unet": _sized(unet.unet),
    "nnunet-2d": lambda image: unet.nnunet(image or unet.NNUNET_2D),
    "nnunet-3d": lambda image: unet.nnunet(image or unet.NNUNET_3D),
    "3d-unet-kits19": _sized(unet.unet3d_kits),
    "3d-unet-brats": _sized(unet.unet3d_brats),
    **{name: _latent(name) for name in diffusion.DENOISERS},
}


@cache
def network(name: str, image: Image = None) -> Network:
    """The network `name` on images of size `image` (None: its usual one); `UnknownName` with the nearest otherwise.

    >>> network("resnet50").image.spatial, network("resnet50", 160).image.spatial
    ((224, 224), (160, 160))
    """
    if name not in NETWORKS:
        raise UnknownName("network", name, NETWORKS)
    return NETWORKS[name](image)
