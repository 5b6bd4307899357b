"""What `list` and `show` print: records of the catalogue and models, as plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ridgeline.catalog import RECORD_KINDS, Catalog
from ridgeline.errors import ScenarioError, UnknownName
from ridgeline.scenario.plain import SCHEMA_VERSION, finite

# Words that people use for a kind of record.
_SYNONYMS = {"chip": "devices", "chips": "devices", "device": "devices", "config": "models", "configs": "models"}

_CONTEXT, _KV = "8192", "bf16"


def list_records(catalog: Catalog, kind: str) -> dict[str, Any]:
    """Ids, names and aliases of a kind of record."""
    kinds = [name for name in RECORD_KINDS if name != "labels"]
    plural = kind if kind in kinds else _SYNONYMS.get(kind, f"{kind}s")
    if plural not in kinds:
        raise UnknownName("kind", kind, kinds, "list")
    aliases: dict[str, list[str]] = {}
    for alias, target in catalog.aliases(plural).items():
        aliases.setdefault(target, []).append(alias)
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": plural,
        "records": [
            {"id": id, "name": _name(catalog, plural, id), "aliases": sorted(aliases.get(id, []))}
            for id in catalog.ids(plural)
        ],
    }


def _name(catalog: Catalog, kind: str, id: str) -> str:
    record = catalog.record(kind, id)
    return str(record.get("name") or record.get("title") or "")


def show_record(catalog: Catalog, ref: str, *, context: str = _CONTEXT, kv: str = _KV) -> dict[str, Any]:
    """One record by id, alias or path, with every figure that it has and the names of those that no source gives."""
    if (context, kv) != (_CONTEXT, _KV):
        _context_tokens(context), _kv_precision(kv)  # wrong ones are told whatever is shown
    if ref.endswith(".json") or (ref and _is_there(Path(ref))):
        return _model(catalog, ref, context, kv)
    kind = catalog.kind_of(ref)
    if kind == "models":
        return _model(catalog, ref, context, kv)
    id = catalog.resolve(kind, ref)
    record = {key: value for key, value in catalog.record(kind, id).items() if key not in ("facts", "file")}
    facts = _facts(catalog, kind, id)
    if kind == "systems":
        facts += [fact | {"key": f"chip.{fact['key']}"} for fact in _facts(catalog, "devices", record["chip"])]
    shown: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "record": kind, **record, "facts": facts}
    if kind in ("devices", "systems"):
        shown["missing"] = list(catalog.chip(id if kind == "devices" else record["chip"]).missing())
    if kind in ("devices", "systems"):
        shown["prices"] = [
            {
                "kind": price.kind,
                "provider": price.provider,
                "date": price.date,
                "usd": price.per_device_usd,
                "usd_per_hour": None if price.per_device_usd_per_s is None else price.per_device_usd_per_s * 3600,
                "fact": price.fact,
                "note": price.note,
            }
            for price in catalog.prices(id)
        ]
    return dict(finite(shown))


def _facts(catalog: Catalog, kind: str, id: str) -> list[dict[str, Any]]:
    return [{"key": fact.id.removeprefix(f"{id}."), **fact.to_dict()} for fact in catalog.facts_of(kind, id)]


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _model(catalog: Catalog, ref: str, context: str, kv: str) -> dict[str, Any]:
    from ridgeline.intake import load_model
    from ridgeline.workload.summary import model_summary

    summary = model_summary(load_model(ref, catalog), _context_tokens(context), _kv_precision(kv))
    return dict(finite({"schema_version": SCHEMA_VERSION, "record": "models", **summary}))


def _context_tokens(context: str) -> int:
    from ridgeline.scenario.quantities import quantity

    try:
        return int(quantity("count", "1", "1e9", whole=True)(context))
    except ValueError as error:
        raise ScenarioError(f"--context: {error}") from None


def _kv_precision(kv: str) -> str:
    from ridgeline.scenario.schema import KV_PRECISIONS

    if kv not in KV_PRECISIONS:
        raise UnknownName("precision", kv, KV_PRECISIONS, "--kv")
    return kv
