"""Networks against the parameter counts and multiply-adds that their authors and libraries publish."""

from __future__ import annotations

import pytest

from ridgeline.workload.convnets.resnet import bit_resnet, resnet

# Published by the model library of PyTorch (parameters; multiply-adds of one image in billions).
LIBRARY = {
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
}


@pytest.mark.parametrize("name", LIBRARY)
def test_residual_networks(name: str) -> None:
    parameters, multiply_adds = LIBRARY[name]
    network = resnet(name)
    assert network.parameters_count == parameters
    if multiply_adds is not None:
        assert network.forward_flop() / 2e9 == pytest.approx(multiply_adds, abs=0.006)


def test_version_one_strides_earlier() -> None:
    assert resnet("resnet50-v1").parameters_count == resnet("resnet50").parameters_count
    assert resnet("resnet50-v1").forward_flop() / 2e9 == pytest.approx(3.86, abs=0.01)


def test_standardised_residual_network() -> None:
    assert bit_resnet().parameters_count == 25_549_352
