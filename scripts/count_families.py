"""Count the parameters of Hugging Face classes on the meta device, as an independent check of the intake.

Writes tests/reference/family_counts.json: for each family its class defaults, pared to the keys that matter, and the
number of parameters that the class has. Needs torch and transformers, which nothing else here does:

    python -m venv /tmp/t && /tmp/t/bin/pip install torch transformers==5.24.0
    PYTHONPATH=src /tmp/t/bin/python scripts/count_families.py tests/reference/family_counts.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto as auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ridgeline.errors import RidgelineError
from ridgeline.intake.families import BUILDERS
from ridgeline.intake.models import transformer_from_config

# The class that is counted, where it is not the first of the tasks below: base models with pooler, and the like.
CLASSES = {
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
    "camembert": "CamembertModel",
    "clip": "CLIPModel",
    "siglip": "SiglipModel",
    "bart": "BartForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "pegasus": "PegasusForConditionalGeneration",
    "marian": "MarianMTModel",
    "blenderbot": "BlenderbotForConditionalGeneration",
    "whisper": "WhisperForConditionalGeneration",
    "electra": "ElectraForMaskedLM",
    "megatron-bert": "MegatronBertForMaskedLM",
}
TASKS = (
    auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    auto.MODEL_FOR_CTC_MAPPING_NAMES,
    auto.MODEL_MAPPING_NAMES,
)
# Parts of larger models have no head of their own as a class; LongCat's class sizes its experts with the idle ones.
LEFT_OUT = ("qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text", "glm4v_text", "longcat_flash")
# Real classes of image models are published with the labels of ImageNet-1k.
CLASSIFIERS = ("vit", "deit", "dinov2", "beit", "swin", "convnext", "convnextv2", "resnet")


def class_of(family: str) -> str:
    """Name of the class to count."""
    if family in CLASSES:
        return CLASSES[family]
    for task in TASKS:
        if family in task:
            name = task[family]
            return name if isinstance(name, str) else name[0]
    raise KeyError(family)


def count(family: str) -> tuple[str, int, dict[str, Any]]:
    """The class, its parameters, and its configuration."""
    config = CONFIG_MAPPING[family](**({"num_labels": 1000} if family in CLASSIFIERS else {}))
    name = class_of(family)
    with torch.device("meta"):
        model = getattr(transformers, name)._from_config(config)
    model.tie_weights()
    data = json.loads(json.dumps(config.to_dict()))
    data.update(model_type=family, architectures=[name])
    return name, sum(item.numel() for item in model.parameters()), data


def pared(data: dict[str, Any], total: int) -> dict[str, Any]:
    """The configuration without the keys whose absence changes nothing."""

    def parameters(candidate: dict[str, Any]) -> int | None:
        try:
            return transformer_from_config(candidate, id="x", where="x").parameters_count
        except RidgelineError:
            return None

    def smaller(path: tuple[str, ...], section: dict[str, Any], whole: dict[str, Any]) -> None:
        for key in list(section):
            kept = section.pop(key)
            if parameters(whole) != total:
                section[key] = kept
                if isinstance(kept, dict):
                    smaller((*path, key), kept, whole)

    small = json.loads(json.dumps(data))
    smaller((), small, small)
    return small


def main(out: Path) -> None:
    """Count every family that both sides know."""
    found = []
    for family in sorted(set(BUILDERS) & set(CONFIG_MAPPING) - set(LEFT_OUT)):
        try:
            name, total, data = count(family)
            ours = transformer_from_config(data, id=family, where=family).parameters_count
        except Exception as error:
            print(f"{family}: {type(error).__name__}: {str(error)[:120]}")
            continue
        print(f"{family}: {name} {total} {ours - total:+d}", flush=True)
        found.append({"family": family, "class": name, "parameters": total, "config": pared(data, ours)})
    lines = ",\n".join(json.dumps(entry) for entry in found)
    source = f"transformers {transformers.__version__}: class defaults, parameters counted on the meta device"
    out.write_text(f'{{"counted_by": "{source}", "families": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main(Path(sys.argv[1]))
