"""What published rows call a layered network, and which graph on which image that is. An exact table, no guesses.

Training and inference rows share it. Sizes: that of the row where it states one, else the one given here, else the
network's own.
"""

from __future__ import annotations

import re

from ridgeline.specs.network import Network
from ridgeline.validation.corpus import Row
from ridgeline.workload.convnets.catalogue import Image, network

# Name in a row -> network of the catalogue and the usual image of that row's source (None: the network's own).
NAMES: dict[str, tuple[str, Image]] = {
    "ResNet-50 v1.5": ("resnet50", None),
    "ResNet50 v1.5": ("resnet50", None),
    "ResNet-50": ("resnet50", None),
    "ResNet50 LARS": ("resnet50", None),
    "ResNet50 (Keras LARS)": ("resnet50", None),
    "ResNet50 (Keras SGD)": ("resnet50", None),
    "resnet50": ("resnet50", None),
    "resnet-50": ("resnet50", None),
    "resnet": ("resnet50", None),
    "resnet18": ("resnet18", None),
    "resnet34": ("resnet34", None),
    "resnet101": ("resnet101", None),
    "resnet152": ("resnet152", None),
    "resnext50_32x4d": ("resnext50-32x4d", None),
    "resnext26_32x4d": ("resnext26-32x4d", None),
    "resnext101_32x8d": ("resnext101-32x8d", None),
    "ResNeXt101": ("resnext101-32x4d", None),
    "ResNeXt101-32x4d": ("resnext101-32x4d", None),
    "SE-ResNeXt101-32x4d": ("se-resnext101-32x4d", None),
    "seresnet50": ("se-resnet50", None),
    "wide_resnet50_2": ("wide-resnet50-2", None),
    "resnetv2_50x1_bit_distilled": ("resnetv2-50x1-bit", None),
    "vgg11": ("vgg11", None),
    "vgg16": ("vgg16", None),
    "vgg19": ("vgg19", None),
    "squeezenet_v1.1": ("squeezenet1.1", None),
    "torchvision_squeezenet": ("squeezenet1.0", None),
    "torchvision_resnet50": ("resnet50", None),
    "torchvision_inception_v3": ("inception-v3", None),
    "EfficientNet-B0": ("efficientnet-b0", None),
    "EfficientNet-B4": ("efficientnet-b4", None),
    "EfficientNet v1-B0": ("efficientnet-b0", None),
    "EfficientNet v1-B4": ("efficientnet-b4", None),
    "EfficientNet v2-S": ("efficientnet-v2-s", 384),
    "efficientnet-b0": ("efficientnet-b0", None),
    "efficientnet-b4": ("efficientnet-b4", None),
    "efficientnet-widese-b0": ("efficientnet-widese-b0", None),
    "efficientnet-widese-b4": ("efficientnet-widese-b4", None),
    "efficientnet_b0": ("efficientnet-b0", None),
    "efficientnet_b3": ("efficientnet-b3", None),
    "efficientnet_b4": ("efficientnet-b4", None),
    "efficientnet_lite0": ("efficientnet-lite0", None),
    "efficientnet_lite1": ("efficientnet-lite1", None),
    "efficientnet_lite2": ("efficientnet-lite2", None),
    "efficientnet_lite3": ("efficientnet-lite3", None),
    "efficientnet_lite4": ("efficientnet-lite4", None),
    "tf_efficientnetv2_s": ("efficientnet-v2-s", None),
    "tf_efficientnetv2_m": ("efficientnet-v2-m", None),
    "mobilenet-v2": ("mobilenet-v2", None),
    "mobilenet_v1": ("mobilenet-v1", None),
    "mobilenet_v1_1.0_224_quant": ("mobilenet-v1", None),
    "mobilenet_v2_1.0": ("mobilenet-v2", None),
    "mobilenet_v2_1.0_224_quant": ("mobilenet-v2", None),
    "mobilenet_v2_1.4": ("mobilenet-v2-1.4", None),
    "mobilenet_v3": ("mobilenet-v3-large", None),
    "mobilenetv2_100": ("mobilenet-v2", None),
    "mobilenetv3_large_100": ("mobilenet-v3-large", None),
    "inception_v1": ("googlenet", None),
    "inception_v1_224_quant": ("googlenet", None),
    "inception_v3": ("inception-v3", None),
    "inception_v4": ("inception-v4", None),
    "inception_v4_299_quant": ("inception-v4", None),
    "xception": ("xception", None),
    "densenet121": ("densenet121", None),
    "regnety_032": ("regnety-3.2gf", None),
    "regnety_160": ("regnety-16gf", None),
    "regnetx_800mf": ("regnetx-800mf", None),
    "regnetx_1.6gf": ("regnetx-1.6gf", None),
    "convnext_tiny": ("convnext-tiny", None),
    "convnext_small": ("convnext-small", None),
    "convnext_base": ("convnext-base", None),
    "convnext_large": ("convnext-large", None),
    "nfnet_f0": ("nfnet-f0", None),
    "repvgg_a1": ("repvgg-a1", None),
    "repvgg_a2": ("repvgg-a2", None),
    "resnet_v1_18": ("resnet18", None),
    "resnet_v1_34": ("resnet34", None),
    "resnet_v1_50": ("resnet50-v1", None),
    "SSD300": ("ssd300-resnet50", None),
    "ssd-resnet34": ("ssd-resnet34", None),
    "ssd-resnet34-1200": ("ssd-resnet34", None),
    "ssd-mobilenet": ("ssd-mobilenet-v1", None),
    "ssd-mobilenet-non-quantized": ("ssd-mobilenet-v1", None),
    "ssd_mobilenet_v1": ("ssd-mobilenet-v1", None),
    "ssd_mobilenet_v1_coco_quant_postprocess": ("ssd-mobilenet-v1", None),
    "ssd_mobilenet_v2": ("ssd-mobilenet-v2", None),
    "SSD MobileNet v2 (300x300)": ("ssd-mobilenet-v2", None),
    "retinanet": ("retinanet-resnext50", None),
    "Mask R-CNN R50": ("mask-rcnn-resnet50", None),
    "yolov3": ("yolov3", 608),
    "yolov3_416": ("yolov3", 416),
    "yolov3_gluon": ("yolov3", 608),
    "yolov3_gluon_416": ("yolov3", 416),
    "tiny_yolov3": ("yolov3-tiny", 416),
    "yolov5s": ("yolov5s", 640),
    "yolov5m": ("yolov5m", 640),
    "yolov8n": ("yolov8n", 640),
    "yolov8s": ("yolov8s", 640),
    "yolov8m": ("yolov8m", 640),
    "yolov8l": ("yolov8l", 640),
    "yolov8x": ("yolov8x", 640),
    "yolo_v8n": ("yolov8n", 640),
    "UNet (medical)": ("unet", None),
    "Unet2D": ("nnunet-2d", None),
    "nnUNet 2D": ("nnunet-2d", None),
    "nnUNet 3D": ("nnunet-3d", None),
    "3D U-Net (KiTS19)": ("3d-unet-kits19", None),
    "Stable-Diffusion-2-base": ("sd-2", None),
    "Stable Diffusion v2 UNet (MLPerf)": ("sd-2", None),
    "cf_resnet50_imagenet_224_224_7.7G": ("resnet50-v1", None),
    "cf_resnet18_imagenet_224_224_3.65G": ("resnet18", None),
    "cf_inceptionv1_imagenet_224_224_3.16G": ("googlenet", None),
    "cf_inceptionv3_imagenet_299_299_11.4G": ("inception-v3", None),
    "cf_inceptionv4_imagenet_299_299_24.5G": ("inception-v4", None),
    "cf_squeeze_imagenet_227_227_0.76G": ("squeezenet1.1", None),
    "cf_mobilenetv2_imagenet_224_224_0.59G": ("mobilenet-v2", None),
    "tf_inceptionv1_imagenet_224_224_3G": ("googlenet", None),
    "tf_inceptionv3_imagenet_299_299_11.45G": ("inception-v3", None),
    "tf_inceptionv4_imagenet_299_299_24.55G": ("inception-v4", None),
    "tf_resnetv1_50_imagenet_224_224_6.97G": ("resnet50-v1", None),
    "tf_resnetv1_101_imagenet_224_224_14.4G": ("resnet101", None),
    "tf_resnetv1_152_imagenet_224_224_21.83G": ("resnet152", None),
    "tf_vgg16_imagenet_224_224_30.96G": ("vgg16", None),
    "tf_vgg19_imagenet_224_224_39.28G": ("vgg19", None),
    "tf_mlperf_resnet50_imagenet_224_224_8.19G": ("resnet50", None),
    "tf_mlperf_resnet34_coco_1200_1200_433G": ("ssd-resnet34", None),
    "tf2_resnet50_imagenet_224_224_7.76G": ("resnet50-v1", None),
    "tf_mobilenetv1_0.25_imagenet_128_128_27.15M": ("mobilenet-v1-0.25", None),
    "tf_mobilenetv1_0.5_imagenet_160_160_150.07M": ("mobilenet-v1-0.5", None),
    "tf_mobilenetv1_1.0_imagenet_224_224_1.14G": ("mobilenet-v1", None),
    "tf_mobilenetv2_1.0_imagenet_224_224_0.59G": ("mobilenet-v2", None),
    "tf_mobilenetv2_1.4_imagenet_224_224_1.16G": ("mobilenet-v2-1.4", None),
    "tf2_mobilenetv1_imagenet_224_224_1.15G": ("mobilenet-v1", None),
    "tf2_inceptionv3_imagenet_299_299_11.5G": ("inception-v3", None),
    "tf_ssdmobilenetv1_coco_300_300_2.47G": ("ssd-mobilenet-v1", None),
    "tf_ssdmobilenetv2_coco_300_300_3.75G": ("ssd-mobilenet-v2", None),
    "dk_yolov3_voc_416_416_65.42G": ("yolov3", 416),
    "tf_yolov3_voc_416_416_65.63G": ("yolov3", 416),
    "dk_tiny-yolov3_416_416_5.46G": ("yolov3-tiny", 416),
}
# MLPerf inference's 3D U-Net: on brain tumours in its first rounds, on kidneys after (mlperf-inference).
MLPERF_VOLUMES = ("3d-unet", "3d-unet-99", "3d-unet-99.9")
BRATS_ROUNDS = ("v0.7", "v1.0", "v1.1")
# Networks whose item is not one pass over one picture of that size: the row's size is not the network's.
_OWN_SIZE = ("sd-1.5", "sd-2", "sdxl", "3d-unet-kits19", "mask-rcnn-resnet50", "unet", "nnunet-2d", "nnunet-3d")
_PIXELS = re.compile(r"(\d{2,4})px")
_SHAPE = re.compile(r"^(\d{2,4})x(\d{2,4})(?:x[13])?$")


def row_network(row: Row) -> Network | None:
    """The network that a training or inference row is about; None where its name is not in the table."""
    if row.text("model") in MLPERF_VOLUMES and row.text("source_title").startswith("MLPerf Inference"):
        early = any(version in row.text("source_title") for version in BRATS_ROUNDS)
        return network("3d-unet-brats" if early else "3d-unet-kits19")
    found = NAMES.get(row.text("model"))
    if found is None:
        return None
    name, image = found
    return network(name, image if name in _OWN_SIZE else _stated_image(row) or image)


def _stated_image(row: Row) -> Image:
    """The image size that a row states: "224x224" in its shape, "288px" in its note."""
    shape = _SHAPE.match(row.text("input_shape_or_seq"))
    if shape:
        return int(shape.group(1)), int(shape.group(2))
    pixels = _PIXELS.search(row.text("note"))
    return int(pixels.group(1)) if pixels else None
