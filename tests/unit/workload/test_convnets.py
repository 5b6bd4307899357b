"""Networks against the parameter counts and multiply-adds that their authors and libraries publish."""

from __future__ import annotations

import pytest

from ridgeline.errors import BadModelFile, UnknownName
from ridgeline.specs.network import Convolution, Normalise
from ridgeline.workload.convnets.builder import start
from ridgeline.workload.convnets.catalogue import NETWORKS, network
from ridgeline.workload.network_graph import fused_tails, gradient_flow
from ridgeline.workload.network_memory import kept_activations_count, largest_working_set_count

# Parameters (exact) and multiply-adds of one image in billions, as published by the model libraries of PyTorch
# (torchvision, timm), Keras (Xception), TensorFlow (MobileNet 1, EfficientNet-lite) and Diffusers.
PUBLISHED: dict[str, tuple[int, float | None]] = {
    "resnet18": (11_689_512, 1.81),
    "resnet34": (21_797_672, 3.66),
    "resnet50": (25_557_032, 4.09),
    "resnet101": (44_549_160, 7.80),
    "resnet152": (60_192_808, 11.51),
    "resnext50-32x4d": (25_028_904, 4.23),
    "resnext101-32x8d": (88_791_336, 16.41),
    "wide-resnet50-2": (68_883_240, 11.40),
    "wide-resnet101-2": (126_886_696, 22.75),
    "se-resnet50": (28_088_024, None),
    "se-resnext101-32x4d": (48_955_416, None),
    "resnext101-32x4d": (44_177_704, None),
    "resnetv2-50x1-bit": (25_549_352, None),
    "alexnet": (61_100_840, 0.71),
    "vgg11": (132_863_336, 7.61),
    "vgg13": (133_047_848, 11.31),
    "vgg16": (138_357_544, 15.47),
    "vgg19": (143_667_240, 19.63),
    "squeezenet1.0": (1_248_424, 0.82),
    "squeezenet1.1": (1_235_496, 0.35),
    "mobilenet-v1": (4_231_976, 0.57),
    "mobilenet-v2": (3_504_872, 0.30),
    "mobilenet-v3-large": (5_483_032, 0.22),
    "mobilenet-v3-small": (2_542_856, 0.06),
    "efficientnet-b0": (5_288_548, 0.39),
    "efficientnet-b1": (7_794_184, 0.69),
    "efficientnet-b4": (19_341_616, 4.39),
    "efficientnet-b7": (66_347_960, 37.75),
    "efficientnet-lite0": (4_652_008, 0.385),
    "efficientnet-lite4": (13_006_568, None),
    "efficientnet-v2-s": (21_458_488, None),
    "efficientnet-v2-m": (54_139_356, None),
    "efficientnet-v2-l": (118_515_272, None),
    "densenet121": (7_978_856, 2.83),
    "densenet161": (28_681_000, 7.73),
    "densenet169": (14_149_480, 3.36),
    "densenet201": (20_013_928, 4.29),
    "googlenet": (6_624_904, 1.50),
    "inception-v3": (23_834_568, 5.71),
    "inception-v3-auxiliary": (27_161_264, None),
    "inception-v4": (42_679_816, 12.25),
    "xception": (22_855_952, None),
    "regnetx-1.6gf": (9_190_136, 1.60),
    "regnety-3.2gf": (19_436_338, 3.18),
    "regnety-16gf": (83_590_140, 15.91),
    "convnext-tiny": (28_589_128, 4.46),
    "convnext-small": (50_223_688, 8.68),
    "convnext-base": (88_591_464, 15.36),
    "convnext-large": (197_767_336, 34.36),
    "yolov3": (61_949_149, 32.93),
    "yolov5n": (1_872_157, None),
    "yolov5s": (7_235_389, 8.22),
    "yolov5m": (21_190_557, None),
    "yolov5l": (46_563_709, None),
    "yolov5x": (86_749_405, None),
    "yolov8n": (3_157_200, 4.37),
    "yolov8s": (11_166_560, 14.30),
    "yolov8m": (25_902_640, 39.47),
    "yolov8l": (43_691_520, None),
    "yolov8x": (68_229_648, None),
    "sd-1.5": (859_520_964, None),
    "sd-2": (865_910_724, None),
    "sdxl": (2_567_463_684, None),
}
# Counts that are published rounded: parameters in millions, multiply-adds in billions.
ROUNDED: dict[str, tuple[float, float]] = {
    "nfnet-f0": (71.5, 12.4),
    "repvgg-a1": (12.8, 2.36),
    "unet": (31.0, 150.4),
    "nnunet-3d": (31.2, 482.8),
    "3d-unet-kits19": (31.2, 477.3),
    "mask-rcnn-resnet50": (44.3, 234.4),
    "ssd-mobilenet-v1": (6.8, 1.23),
    "ssd-resnet34": (20.0, 216.5),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_counts(name: str) -> None:
    parameters, multiply_adds = PUBLISHED[name]
    made = network(name)
    assert made.parameters_count == parameters
    if multiply_adds is not None:
        assert made.forward_flop() / 2e9 == pytest.approx(multiply_adds, abs=0.009)


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_counts(name: str) -> None:
    millions, multiply_adds = ROUNDED[name]
    made = network(name)
    assert made.parameters_count / 1e6 == pytest.approx(millions, rel=0.005)
    assert made.forward_flop() / 2e9 == pytest.approx(multiply_adds, rel=0.01)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_is_a_graph_in_order(name: str) -> None:
    made = network(name)
    for index, node in enumerate(made.nodes):
        assert all(each < index for each in node.inputs)
        if isinstance(node.operator, Convolution):
            read = made.input_shape(node)
            assert read.channels_count == node.operator.inputs_count
            assert node.shape.channels_count == node.operator.outputs_count
            assert min(node.shape.spatial) >= 1
        if isinstance(node.operator, Normalise):
            assert node.shape == made.input_shape(node)


def test_version_one_strides_earlier() -> None:
    assert network("resnet50-v1").parameters_count == network("resnet50").parameters_count
    assert network("resnet50-v1").forward_flop() / 2e9 == pytest.approx(3.86, abs=0.01)


def test_unpadded_u_net_shrinks_as_in_its_figure() -> None:
    assert network("unet").nodes[-1].shape.spatial == (388, 388)


def test_names_and_shapes_that_do_not_exist() -> None:
    with pytest.raises(UnknownName, match="resnet50"):
        network("resnet-50")
    with pytest.raises(BadModelFile, match="groups"):
        start(32).conv(-1, 10, 3, groups=2)


def test_what_fuses_and_what_is_kept() -> None:
    """conv - norm - relu - conv - norm - add - relu: training fuses relu, add and relu behind the two norms."""
    net = start(8, 16)
    first = net.block(-1, 16, 3)
    second = net.normalise(net.conv(first, 16, 3))
    net.act(net.sum(second, first))
    made = net.done("block", "test")
    names = [made.nodes[index].name for index in sorted(fused_tails(made, True))]
    assert names == ["act", "add", "act"]
    assert len(fused_tails(made, False)) == 5  # both normalisations fold away too
    # Eager: both convolution outputs (inputs of norms), the first activation and the last one, 16 x 8 x 8 each;
    # fused kernels keep no more and no less, as norm inputs and activations are what the gradients need.
    assert kept_activations_count(made, fused=False) == 3 * 1024
    assert gradient_flow(made) == (True,) * len(made.nodes)
    assert largest_working_set_count(made) >= 3 * 1024


def test_frozen_layers_get_no_gradient() -> None:
    made = network("mask-rcnn-resnet50")
    flow = gradient_flow(made)
    assert not flow[0]
    assert flow[-1]
    assert made.trained_parameters_count < made.parameters_count
