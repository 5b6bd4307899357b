"""Training software from the catalogue's records: which release a date means, and its facts as fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ridgeline.catalog.profiles import checked
from ridgeline.core import FrozenMap
from ridgeline.errors import BadFact
from ridgeline.specs import SoftwareProfile

Record = dict[str, Any]

# The key of a fact and the field of the profile that it fills.
SOFTWARE_FIELDS: dict[str, str] = {
    "attention": "attention",
    "fused_kernels": "fused_kernels",
    "fused_softmax": "fused_softmax",
    "wide_softmax": "wide_softmax",
    "fused_norm": "fused_norm",
    "fused_norm_gradient": "fused_norm_gradient",
    "fused_activation": "fused_activation",
    "fused_rope": "fused_rope",
    "fused_dropout_add": "fused_dropout_add",
    "fused_bias_gradient": "fused_bias_gradient",
    "fused_bias": "fused_bias",
    "fused_expert_bias": "fused_expert_bias",
    "joined_projections": "joined_projections",
    "fused_cast": "fused_cast",
    "fused_wgrad_accumulation": "fused_wgrad_accumulation",
    "fused_permute": "fused_permute",
    "network_fusion": "network_fusion",
    "channels_last": "channels_last",
    "channels_last_wide": "channels_last_wide",
    "fused_optimizer": "fused_optimizer",
    "engines_overlap": "engines_overlap",
    "depthwise": "depthwise_frac",
    "loss": "loss",
    "logit_metrics": "logit_metrics_count",
    "dropout": "dropout",
    "random": "random_bytes",
    "wide_stream": "wide_stream",
    "norm_reductions": "norm_reductions_count",
    "gradient_precision": "gradient_precision",
    "reduce_precision": "reduce_precision",
    "states": "states",
    "master": "master_bytes",
    "moments": "moment_bytes",
    "narrow_weights": "narrow_weights",
    "flat_gradients": "flat_gradients",
    "casts_gradients": "casts_gradients",
    "casts_weights": "casts_weights",
    "clips_micro_batches": "clips_micro_batches",
    "adapter_rank": "adapter_rank",
    "adapter_targets": "adapter_targets",
    "fused_adapter": "fused_adapter",
    "sharding": "sharding",
    "recompute": "recompute",
    "cheap_recompute": "cheap_recompute",
    "recompute_stops_early": "recompute_stops_early",
    "sequence_parallel": "sequence_parallel",
    "interleaved": "interleaved",
    "tensor_overlap": "tensor_overlap",
    "data_overlap": "data_overlap",
    "gather_overlap": "gather_overlap",
    "pipeline_overlap": "pipeline_overlap",
    "prefetch_layers": "prefetch_layers_count",
    "prefetch_backward": "prefetch_backward",
    "owner_broadcast": "owner_broadcast",
    "context_overlap": "context_overlap",
    "deduplicated_dispatch": "deduplicated_dispatch",
    "expert_launches": "expert_launches",
    "routed_launch": "routed_launch_s",
    "whole_graphs": "whole_graphs",
    "expert_overlap": "expert_overlap",
    "bucket": "bucket_bytes",
    "bucket_parameters": "bucket_parameters_count",
    "rank_bucket_parameters": "rank_bucket_parameters_count",
    "graphs": "graphs",
    "host_launch": "host_launch_s",
    "host_optimizer": "host_optimizer_frac",
    "context": "context_bytes",
    "exchange_buffer": "exchange_buffer_bytes",
    "live_parameters": "live_parameters_count",
    "fragmentation": "fragmentation_frac",
    "overlap_slowdown": "overlap_slowdown_frac",
    "spread_sigma": "spread_sigma_frac",
    "release_spread": "release_sigma",
    "expert_spread": "expert_sigma",
}
_BY_ARCHITECTURE = "real_data."


def software_of(record: Record) -> SoftwareProfile:
    """The profile of one compiled record; `BadFact` for a fact that is no field of a profile.

    Facts `real_data.<architecture>` make the map of rates on real values.
    """
    fields: dict[str, Any] = {}
    ids: dict[str, str] = {}
    real: dict[str, float] = {}
    assumed: list[str] = []
    for key, fact in record["facts"].items():
        if key.startswith(_BY_ARCHITECTURE):
            real[key.removeprefix(_BY_ARCHITECTURE)] = float(fact["value"])
            ids["real_data_frac"] = f"{record['id']}.{key}"
            continue
        if key not in SOFTWARE_FIELDS:
            allowed = ", ".join(SOFTWARE_FIELDS)
            raise BadFact(f"{record['file']}: facts.{key}: no field of training software; allowed: {allowed}")
        name = SOFTWARE_FIELDS[key]
        value = checked(record, key, name, SoftwareProfile)
        fields[name] = int(value) if name.endswith("_count") else value
        if name == "fragmentation_frac":
            fields["fragmentation_high_frac"] = fact.get("high", value)
        ids[name] = f"{record['id']}.{key}"
        if fact["kind"] == "assumed":
            assumed.append(name)
    return SoftwareProfile(
        id=record["id"],
        name=record.get("name", ""),
        framework=framework_of(record),
        version=record.get("version", ""),
        date=record.get("date", ""),
        real_data_frac=FrozenMap(real),
        facts=FrozenMap(ids),
        assumed=tuple(assumed),
        **fields,
    )


def framework_of(record: Record) -> str:
    """The framework that a record is a release of ("" for a record that others only start from)."""
    return str(record.get("data", {}).get("framework", ""))


def release_at(records: Iterable[Record], date: str) -> Record:
    """The release of one framework that was current at `date` (ISO; a year alone means its end); else the oldest.

    >>> releases = [{"id": "a", "date": "2021-03"}, {"id": "b", "date": "2024-07"}]
    >>> [release_at(releases, date)["id"] for date in ("2020", "2023", "2024", "2024-06")]
    ['a', 'a', 'b', 'a']
    """
    known = sorted(records, key=lambda record: str(record.get("date", "")))
    limit = date + "-12-31"[(len(date) - 4) :] if len(date) >= len("2024") else date
    held = [record for record in known if str(record.get("date", "")) <= limit]
    return held[-1] if held else known[0]
