"""Engine profiles from the catalogue's engine records: which record a version means, and its facts as fields."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ridgeline.catalog.profiles import checked
from ridgeline.core import FrozenMap, quadrature
from ridgeline.core.interval import Z_80
from ridgeline.errors import BadFact
from ridgeline.specs import EngineProfile

Record = dict[str, Any]

# The key of a fact and the field of the profile that it fills.
ENGINE_FIELDS: dict[str, str] = {
    "batching": "batching",
    "graphs": "graphs",
    "host_step": "host_step_s",
    "host_sequence": "host_sequence_s",
    "host_hidden": "host_hidden_frac",
    "kernel_floor": "kernel_floor_s",
    "layer_floor": "layer_floor_s",
    "stored_precision": "stored_precision",
    "channels_last": "channels_last",
    "attention_family": "attention_family",
    "expert_family": "expert_family",
    "query_reread": "query_reread_frac",
    "fused_projections": "fused_projections",
    "fused_epilogues": "fused_epilogues",
    "fused_quantisation": "fused_quantisation",
    "launches": "launches_frac",
    "traffic": "traffic_frac",
    "hidden_precision": "hidden_precision",
    "expand_rows": "expand_rows_count",
    "fused_relative": "fused_relative",
    "pool_basis": "pool_basis",
    "pool": "pool_frac",
    "context": "context_bytes",
    "workspace": "workspace_bytes",
    "block_tokens": "block_tokens",
    "window_cache": "window_cache",
    "max_batch": "max_batch_count",
    "max_batch_tokens": "max_batch_tokens",
    "budget_of_context": "budget_of_context",
    "small_batch": "small_batch_count",
    "small_batch_tokens": "small_batch_tokens",
    "large_device": "large_device_bytes",
    "small_architectures": "small_architectures",
    "mixed_steps": "mixed_steps",
    "admission": "admission",
    "bucket_tokens": "bucket_tokens",
    "padded_batch": "padded_batch",
    "all_experts": "all_experts",
    "masked_experts": "masked_experts",
    "gather_exchange": "gather_exchange",
    "expert_sort": "expert_sort_s",
    "stream_rows": "stream_rows_count",
    "release_spread": "release_sigma",
}
_WHOLE = {field for field in ENGINE_FIELDS.values() if field.endswith(("_count", "_tokens"))}
# What an engine version that no record covers adds to the spread between releases: the largest published move
# between two releases of one engine, 21 %, taken as the end of the central 80 %.
_UNKNOWN_VERSION_SIGMA = math.log(1.21) / Z_80


def engine_of(record: Record) -> EngineProfile:
    """The profile of one compiled record; `BadFact` for a fact that is no field of a profile."""
    fields: dict[str, Any] = {}
    ids: dict[str, str] = {}
    assumed: list[str] = []
    for key, fact in record["facts"].items():
        if key not in ENGINE_FIELDS:
            raise BadFact(f"{record['file']}: facts.{key}: no field of an engine; allowed: {', '.join(ENGINE_FIELDS)}")
        name = ENGINE_FIELDS[key]
        value = checked(record, key, name, EngineProfile)
        fields[name] = int(value) if name in _WHOLE else value
        ids[name] = f"{record['id']}.{key}"
        if fact["kind"] == "assumed":
            assumed.append(name)
    return EngineProfile(
        id=record["id"],
        name=record.get("name", ""),
        version=record.get("version", ""),
        date=record.get("date", ""),
        host_sigma=_widest(record["facts"], "host_step", "host_sequence"),
        floor_sigma=_widest(record["facts"], "kernel_floor", "layer_floor"),
        traffic_sigma=_widest(record["facts"], "traffic"),
        facts=FrozenMap(ids),
        assumed=tuple(assumed),
        **fields,
    )


def _widest(facts: Mapping[str, Any], *keys: str) -> float:
    """Spread of figures that err together: the widest of their ranges."""
    return max((_spread(facts[key]) for key in keys if key in facts), default=0.0)


def _spread(fact: Mapping[str, Any]) -> float:
    low, high = fact.get("low"), fact.get("high")
    if not low or not high:
        return 0.0
    return math.log(high / low) / (2 * Z_80)


def engine_for(records: Iterable[Record], version: str | None, date: str) -> EngineProfile:
    """The profile that holds for `version` of the engine whose `records` are given (each from its version on).

    Without a version, the one that was current at `date` (ISO, may be a year alone); without either, the newest.
    A version older than every record takes the oldest, and a version text without numbers the newest, with the
    spread of an unknown release.
    """
    known = sorted(records, key=lambda record: version_key(record.get("version", "")))
    newest = known[-1]
    if version is not None:
        wanted = version_key(version)
        held = [record for record in known if version_key(record.get("version", "")) <= wanted]
        if wanted and held:
            return engine_of(held[-1])
        return _widened(engine_of(known[0] if wanted else newest))
    if date:
        held = [record for record in known if record.get("date", "") <= date]
        return engine_of(held[-1]) if held else _widened(engine_of(known[0]))
    return engine_of(newest)


def _widened(profile: EngineProfile) -> EngineProfile:
    return replace(profile, release_sigma=quadrature(profile.release_sigma, _UNKNOWN_VERSION_SIGMA))


def version_key(text: str) -> tuple[int, ...]:
    """The first dotted number of a version as integers; empty where there is none.

    >>> version_key("v0.10.1rc2"), version_key("b2824"), version_key("nightly image")
    ((0, 10, 1), (2824,), ())
    """
    found = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()
