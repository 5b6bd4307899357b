"""What a training row means: machine, software, layout and precision, with the documented fill for what is blank."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from ridgeline.catalog import Catalog
from ridgeline.errors import RidgelineError
from ridgeline.specs import Chip, SoftwareProfile, System
from ridgeline.specs.plan import Recompute, Sharding
from ridgeline.specs.precision import BITS_PER_ELEMENT
from ridgeline.training import PlanDraft
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.training_lambda import stages_in_host, through_host
from ridgeline.validation.training_models import RowModel, row_model, vit_tokens
from ridgeline.validation.training_recipes import as_in_recipe, remade_frac

# Which software a framework column means: the first entry whose word stands in it. A release is then chosen by date.
FRAMEWORKS: tuple[tuple[str, str], ...] = (
    ("automodel", "pytorch-fsdp-2.6"),
    ("megatron-deepspeed", "megatron-deepspeed-0.4"),
    ("megatron-lm", "megatron-lm-3.0"),
    ("megatron", "megatron-core-0.16"),
    ("nemo", "megatron-core-0.16"),
    ("fsdp", "pytorch-fsdp-2.6"),
    ("deepspeed", "deepspeed-0.17"),
    ("maxtext", "maxtext-2023"),
    ("levanter", "maxtext-2023"),
    ("paxml", "paxml-2023"),
    ("t5x", "paxml-2023"),
    ("neuron", "neuronx-2.19"),
    ("gaudi", "synapse-1.0"),
    ("llm.c", "llm-c-2024"),
    ("tensorflow", "tensorflow-1.15"),
    ("mxnet", "pytorch-ddp-2.4"),
    ("paddle", "pytorch-ddp-2.4"),
    ("pytorch", "pytorch-ddp-2.4"),
)
# Example scripts that carry their own model code of 2019-2021; a newer framework under them changes no kernel choice.
FROZEN_CODE = "deeplearningexamples"
# Mean share of 512 positions that carry text in the Wikipedia pre-training set of BERT: krell-2021-packing, table 1.
UNPADDED_512_FRAC = 0.498
# Sets whose 512-token BERT rows skip padding (their readme, or rates above the peak at full length).
SKIPS_PADDING = ("mlperf", "dle")
_FULL_LENGTH_FRAMEWORKS = ("tensorflow",)
# Sets whose scripts recompute activations only when a flag asks for it (nvidia-deeplearningexamples, BERT).
KEEPS_ACTIVATIONS = ("dle", "lambda")
_NEURON_CORES_PER_CHIP = 2  # neuron-architecture: two NeuronCores-v2 a Trainium chip
_CONTAINER = re.compile(r"(?:container|NeMo|release)[^0-9]{0,12}(2\d)\.(\d\d)", re.IGNORECASE)
_OPTIMIZER_OFFLOAD = re.compile(
    r"cpu offload|(adam\w*|optimi[sz]er)[^;,]*offload|offload[^;,]*(adam|optimi[sz]er)", re.IGNORECASE
)
# MosaicML's tables: pure bf16 is the flag of runs submitted with images of PyTorch 1.13 and 2.0 (llm-foundry-sweep),
# amp_bf16 and amp_fp8 of those with 2.1 (llm-foundry-sweep-2.1).
_OLD_COMPOSER = "precision flag bf16"
_PER_DEVICE_BATCH = ("maxtext", "paxml", "t5x")
_REMAT = re.compile(r"\bremat (minimal|full|none)\b")
_SHARDING: Mapping[str, Sharding] = {
    "none": "none",
    "zero1": "zero1",
    "zero2": "zero2",
    "zero3": "zero3",
    "fsdp": "zero3",
    "hsdp": "zero3",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCase:
    """A row as Ridgeline's own records, with the fills that were needed."""

    row: Row
    made: RowModel
    system: System
    software: SoftwareProfile
    draft: PlanDraft
    fills: tuple[str, ...] = field(default=())


def training_case(row: Row, catalog: Catalog) -> TrainingCase:
    """The case that a row states; `Unscored` where a fact is missing that no rule fills."""
    fills: list[str] = []
    system = system_of(row, catalog, fills)
    made = row_model(row, catalog)
    if made.model is None:
        raise Unscored(made.reason)
    software = _software(row, catalog, fills)
    if row.text("family") == "vit" and software.dropout:
        software = replace(software, dropout=False)
        fills.append("vision transformers train without dropout (default of timm and of the DeiT recipe)")
    software, recipe_recompute = as_in_recipe(row, made.model.id, software, fills)
    devices = row.count("n_devices")
    if not devices:
        raise Unscored("number of devices not stated")
    if row.count("global_batch") is None and row.count("micro_batch") is None:
        raise Unscored("no batch size")
    draft = PlanDraft(
        devices_count=devices,
        sequence_tokens=_sequence(row, fills),
        precision=_precision(row, system.chip, fills),
        recompute=_recompute(row, fills) or recipe_recompute,
        sharding=_SHARDING.get(row.text("sharding")),
        shard_group_count=_shard_group(row, devices),
        sequence_parallel={"0": False, "1": True}.get(row.text("sp")),
        offload_optimizer=bool(_OPTIMIZER_OFFLOAD.search(row.text("note"))),
        trainable_frac=made.trainable_frac,
        global_batch_count=row.count("global_batch"),
        expert_count=row.count("ep"),
        interleave_count=row.count("vpp"),
        ahead_count=_ahead(row, made.model.id, fills),
        recompute_layers_frac=remade_frac(made.model) if recipe_recompute == "full" else 1.0,
        **_degrees(row, devices),
    )
    return TrainingCase(row=row, made=made, system=system, software=software, draft=draft, fills=(*fills, *made.fills))


# Further tokens that Megatron Bridge's recipes predict: of its layouts "mtp" stages, and of its model's settings.
_AHEAD_COUNTS = {"deepseek-v3": 1, "nemotron-3-super-120b-a12b": 2}  # src: megatron-bridge-recipes


def _ahead(row: Row, model_id: str, fills: list[str]) -> int:
    """Tokens predicted ahead, as the recipe of the row's framework has it."""
    if "megatron-bridge" not in row.text("framework").lower() or "w/o MTP" in row.text("note"):
        return 0
    found = _AHEAD_COUNTS.get(model_id, 0)
    if found:
        fills.append(f"{found} further tokens are predicted, as the framework's recipe says")
    return found


def system_of(row: Row, catalog: Catalog, fills: list[str]) -> System:
    """The standard system of a row's device; `Unscored` where the label or the system is not known."""
    try:
        label = catalog.label(row.text("device"), row.text("source_title"))
    except RidgelineError as error:
        raise Unscored(f"device label {row.text('device')!r} cannot be mapped") from error
    if not label.system:
        raise Unscored(f"no standard system for device {label.device}")
    if not row.text("inter_link") and (row.count("n_devices") or 0) > (row.count("devices_per_node") or 8):
        fills.append(f"links of the standard system {label.system}")
    system = catalog.system(label.system)
    if stages_in_host(row, system):
        fills.append("devices exchange through the host's memory (NCCL_P2P_DISABLE=1 in the benchmark's script)")
        return through_host(system, catalog.calibration(system.chip.id))
    return system


def release_date(row: Row) -> str:
    """The date of the software: a container release in the note (24.11 is November 2024), else the year.

    >>> release_date(Row({"note": "container 26.06.01", "year": "2026"}, 2))
    '2026-06'
    """
    if _OLD_COMPOSER in row.text("note"):
        return "2023-05"
    found = _CONTAINER.search(row.text("note")) or _CONTAINER.search(row.text("framework"))
    if found and 1 <= int(found.group(2)) <= 12:
        return f"20{found.group(1)}-{found.group(2)}"
    return row.text("year")


def _software(row: Row, catalog: Catalog, fills: list[str]) -> SoftwareProfile:
    text = row.text("framework").lower()
    if row.source == "mlperf":
        name = "nvidia-mlperf-bert-2.1" if row.text("family") == "bert" else "megatron-core-0.16"
        fills.append("software of the benchmark's usual submission")
        return catalog.software(name, release_date(row))
    if FROZEN_CODE in text:
        fills.append("software of the benchmark's scripts (2019-2021), whatever the date of the run")
        return catalog.software("pytorch-ddp-1.9")
    name = next((name for word, name in FRAMEWORKS if word in text), "")
    if not name:
        name = "pytorch-ddp-2.4"
        fills.append("framework not stated: PyTorch data parallel")
    date = release_date(row)
    if not date:
        fills.append("date not stated: latest release")
        return catalog.software(name)
    return catalog.software(name, date)


def _sequence(row: Row, fills: list[str]) -> int:
    stated = row.count("seq_len")
    if row.text("family") == "vit":
        stated = stated or vit_tokens(row)
    if not stated:
        raise Unscored("sequence length not stated")
    framework = row.text("framework").lower()
    packs = row.source in SKIPS_PADDING and not any(word in framework for word in _FULL_LENGTH_FRAMEWORKS)
    if row.text("family") == "bert" and stated == 512 and packs:
        fills.append(f"padding skipped: mean length {UNPADDED_512_FRAC:.1%} of 512")
        return round(stated * UNPADDED_512_FRAC)
    return stated


def _precision(row: Row, chip: Chip, fills: list[str]) -> str:
    stated = row.text("precision")
    if stated and stated not in BITS_PER_ELEMENT:
        raise Unscored(f"precision {stated[:20]!r} is not known")
    if stated:
        return stated
    year = row.count("year") or 2024
    if row.text("family") == "bert":
        filled = "fp8" if chip.has_peak("fp8") and year >= 2022 else "fp16"
    else:
        filled = "fp8" if chip.has_peak("fp8") and year >= 2024 and row.source == "mlperf" else "bf16"
    fills.append(f"precision not stated: {filled}, usual for the benchmark in {year}")
    return filled


def _recompute(row: Row, fills: list[str]) -> Recompute | None:
    """What the row states; scripts that recompute only when a flag asks for it are taken at their default.

    MaxText's policy "minimal" keeps the results of all products but those of the scores: selective recompute.
    """
    text = row.text("recompute")
    named = _REMAT.search(row.text("note"))
    if named and text not in ("none", "selective", "full"):
        text = {"minimal": "selective"}.get(named.group(1), named.group(1))
    if text in ("none", "selective", "full"):
        return cast(Recompute, text)
    if row.source in KEEPS_ACTIVATIONS and row.text("family") == "bert":
        fills.append("recompute not stated: none, the default of the benchmark's scripts")
        return "none"
    return None


def _shard_group(row: Row, devices: int) -> int | None:
    """Data ranks over which full sharding reaches: those of a slice or a node where the row shards in a hierarchy."""
    replicas = row.count("dp") or 1
    if row.text("sharding") == "hsdp" or (row.text("sharding") == "fsdp" and "slice" in row.text("inter_link")):
        each = replicas * (row.count("tp") or 1) * (row.count("pp") or 1) * (row.count("cp") or 1)
        if 1 < replicas < devices and devices % each == 0:
            return devices // each
        return None if replicas == 1 else row.count("devices_per_node")
    return None


def _degrees(row: Row, devices: int) -> dict[str, int | None]:
    """Parallel degrees in devices, and the micro-batch of one model replica.

    Neuron rows count cores, two a chip. MaxText and Paxml state the batch of one device whatever the tensor degree, and
    run all of it at once: a replica of t devices has t times as many sequences.
    """
    tensor, pipeline, context = row.count("tp"), row.count("pp"), row.count("cp")
    micro = row.count("micro_batch")
    if "neuron" in row.text("framework").lower():
        if tensor is not None and tensor >= _NEURON_CORES_PER_CHIP:
            tensor //= _NEURON_CORES_PER_CHIP
        elif micro is not None:
            micro *= _NEURON_CORES_PER_CHIP
    replica = (tensor or 1) * (context or 1)
    if micro is not None and _states_batch_of_device(row, micro * devices):
        micro *= replica
    single = devices == 1
    return {
        "tensor_count": 1 if single else tensor,
        "pipeline_count": 1 if single else pipeline,
        "context_count": 1 if single else context,
        "micro_batch_count": micro,
    }


def _states_batch_of_device(row: Row, whole: int) -> bool:
    """Whether `micro_batch` is that of a device: in JAX's trainers, where it times all devices is the global batch."""
    framework = row.text("framework").lower()
    return any(word in framework for word in _PER_DEVICE_BATCH) and whole == row.count("global_batch")
