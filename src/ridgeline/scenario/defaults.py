"""What is taken where a scenario does not name its software: the usual stack of each kind of chip, said in a note."""

from __future__ import annotations

from ridgeline.specs import Chip, Transformer

# Serving engines by kind of chip: for models that generate, and for those that do not.
_GENERATING = {"gpu": "vllm", "tpu": "jetstream", "cpu": "llama-cpp", "edge": "llama-cpp"}
_ENCODING = {"gpu": "tensorrt", "tpu": "jetstream", "cpu": "openvino", "edge": "onnxruntime"}
_TRAINING = {"tpu": "maxtext-2023"}
_OTHER_TRAINING = "megatron-core-0.16"


def engine_name(chip: Chip, model: Transformer, output_tokens: int) -> str:
    """Id of the engine that serves `model` on `chip` where none is named."""
    if not (model.main.role == "decoder" and output_tokens > 0):
        return encoder_engine_name(chip)
    return "neuron" if chip.architecture == "neuron" else _GENERATING.get(chip.kind, "vllm")


def encoder_engine_name(chip: Chip) -> str:
    """Id of the engine that runs models that generate nothing on `chip` where none is named."""
    if chip.architecture == "neuron":
        return "neuron"
    if chip.kind == "gpu" and chip.vendor.lower() != "nvidia":
        return "onnxruntime"
    return _ENCODING.get(chip.kind, "onnxruntime")


def software_name(chip: Chip) -> str:
    """Id of the training software for `chip` where none is named."""
    if chip.architecture == "neuron":
        return "neuronx-2.19"
    return _TRAINING.get(chip.kind, _OTHER_TRAINING)
