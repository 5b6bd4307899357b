"""YAML files to compiled records: reads, checks and flattens; everything slow about the catalogue is here.

A compiled record is plain data: the few words that make its structure and `facts`, a flat map from key to fact with
values in SI. `shelf` stores compiled records and `loader` turns them into specs, both without pydantic or yaml.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from ridgeline.catalog import schema
from ridgeline.catalog.fields import (
    ARCHITECTURES,
    DEVICE_FIELDS,
    HOST_FIELDS,
    LEVEL_FIELDS,
    LINK_FIELDS,
    SYSTEM_FIELDS,
    TEXT,
    Field,
)
from ridgeline.catalog.records import RECORD_KINDS
from ridgeline.errors import BadFact, UnitError, few, nearest_names, shown
from ridgeline.units import DIMENSIONS, parse

Record = dict[str, Any]
Records = dict[str, dict[str, Record]]


class _Loader(yaml.CSafeLoader):
    """The fast safe loader, which also refuses a key that is given twice."""


def _unique_mapping(loader: _Loader, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key must be a plain word", key.start_mark)
    pairs = [(_read_node(loader, key), _read_node(loader, value)) for key, value in node.value]
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        raise yaml.constructor.ConstructorError(None, None, f"key given twice: {', '.join(twice)}", node.start_mark)
    return found


def _read_node(loader: _Loader, node: yaml.Node) -> Any:
    """What `node` holds; dates and numbers that cannot be are refused with their place."""
    try:
        return loader.construct_object(node, deep=True)
    except (ValueError, TypeError, LookupError) as error:
        problem = f"a value that cannot be read: {error}"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def read_yaml(path: Path, where: str) -> Any:
    """The content of one YAML file; `BadFact` with the line where it cannot be read."""
    try:
        return yaml.load(path.read_bytes(), _Loader)
    except yaml.YAMLError as error:
        detail = " ".join(str(error).replace('in "<byte string>", ', "").split())
        raise BadFact(f"{where}: not readable as YAML: {detail}") from error
    except OSError as error:
        raise BadFact(f"{where}: cannot be read: {error.strerror or error}") from error
    except (ValueError, LookupError, RecursionError) as error:
        raise BadFact(f"{where}: cannot be read: {str(error).splitlines()[0]}") from error


def compile_folder(folder: Path) -> Records:
    """All records of a data folder, checked one by one; `extends` is not resolved yet.

    The folder has one sub-folder a kind of record (see `RECORD_KINDS`) and the optional file labels.yaml.
    """
    if not folder.is_dir():
        found = "is a file, expected a folder" if folder.exists() else "no such folder"
        raise BadFact(f"{folder}: {found} of catalogue files")
    records: Records = {kind: {} for kind in RECORD_KINDS}
    for kind, path in data_files(folder):
        where = f"{folder.name}/{path.relative_to(folder).as_posix()}"
        content = read_yaml(path, where)
        if kind == "labels":
            records[kind] |= _labels(content, where)
            continue
        record = compile_record(kind, content, where)
        if record["id"] in records[kind]:
            raise BadFact(f"{where}: id {record['id']!r} is also in {records[kind][record['id']]['file']}")
        records[kind][record["id"]] = record
    return records


def data_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every YAML file of a data folder with its kind; `BadFact` for a folder or file that has no kind."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir():
            if entry.name not in RECORD_KINDS or entry.name == "labels":
                kinds = ", ".join(RECORD_KINDS[:-1])
                near = _nearest(entry.name, RECORD_KINDS[:-1])
                raise BadFact(f"{entry}: not a kind of record{near}; a folder of catalogue files holds {kinds}")
            for path in sorted(entry.iterdir()):
                if path.suffix in (".yaml", ".yml") and not path.name.startswith("."):
                    yield entry.name, path
        elif entry.name == "labels.yaml":
            yield "labels", entry
        elif entry.suffix in (".yaml", ".yml"):
            raise BadFact(f"{entry}: put it into the folder of its kind: {', '.join(RECORD_KINDS[:-1])}")


def compile_record(kind: str, content: Any, where: str) -> Record:
    """One file's content as a compiled record; `BadFact` names file, key path, what was got and what is allowed."""
    item = _validated(schema.SCHEMAS[kind], content, where)
    record = _COMPILERS[kind](item, where)
    if isinstance(item, schema.RecordIn):
        facts = record.setdefault("facts", {})
        for key, fact in item.more.items():
            if key in facts:
                raise BadFact(f"{where}: more.{key}: already given under facts")
            facts[key] = _fact(fact, None, f"{where}: more.{key}")
        record |= {
            key: value
            for key, value in (
                ("aliases", item.aliases),
                ("name", item.name),
                ("note", item.note),
                ("extends", item.extends),
            )
            if value
        }
    record["id"] = getattr(item, "id", "")
    record["file"] = where
    return record


def _validated(model: type[schema.Strict], content: Any, where: str) -> Any:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        lines = [_explain(model, problem, where) for problem in error.errors(include_url=False)]
        raise BadFact("\n".join(few(lines))) from error


def _explain(model: type[schema.Strict], problem: Any, where: str) -> str:
    parts = [str(part) for part in problem["loc"] if not _UNION_TAG.fullmatch(str(part))]
    place = f"{where}: {'.'.join(parts)}" if parts else where
    if problem["type"] == "extra_forbidden":
        names = _key_names(model if len(parts) == 1 else None)
        return f"{place}: unknown key{_nearest(parts[-1], names)}; allowed: {', '.join(names)}"
    if problem["type"] == "missing":
        return f"{place}: missing"
    got = problem.get("input")
    message = problem["msg"].removeprefix("Value error, ")
    if isinstance(got, dict) and problem["type"] == "value_error":
        return f"{place}: {message}"
    if problem["type"] in ("model_type", "dict_type", "model_attributes_type"):
        expected = "keys such as `v:`, `kind:` and `src:`" if parts else "keys such as `id:`"
        return f"{place}: {'is empty' if got is None else f'got {shown(got)}'}, expected {expected}"
    return f"{place}: got {shown(got)}: {message[:1].lower()}{message[1:]}"


# What pydantic puts into a place for the branch of a union that it tried.
_UNION_TAG = re.compile(r"[A-Z]\w*In|str|int|float|bool|[\w-]+\[.*\]|constrained-\w+|\[key\]")


def _key_names(model: type[schema.Strict] | None) -> list[str]:
    inner: tuple[type[schema.Strict], ...] = (
        schema.FactIn,
        schema.LevelIn,
        schema.HostIn,
        schema.PriceEntryIn,
        schema.LawIn,
    )
    models = (model,) if model else inner
    return sorted({info.alias or name for each in models for name, info in each.model_fields.items()})


def _nearest(name: str, known: Any) -> str:
    near = nearest_names(name, known)
    return f"; nearest: {', '.join(near)}" if near else ""


def _fact(fact: schema.FactIn, field: Field | None, where: str) -> Record:
    """One fact with its value in SI where it has a dimension."""
    dimension = field.dimension if field else fact.dim
    if dimension and dimension != TEXT and dimension not in DIMENSIONS:
        raise BadFact(f"{where}: dim: unknown dimension {dimension!r}{_nearest(dimension, DIMENSIONS)}")
    compiled: Record = {"value": _value(fact.v, dimension, where, field), "kind": fact.kind}
    if isinstance(fact.v, str) and dimension not in ("", TEXT):
        compiled["written"] = fact.v
    unit = DIMENSIONS[dimension].si if dimension not in ("", TEXT) else ""
    ends = {"low": fact.lo, "high": fact.hi}
    compiled |= {
        name: _value(end, dimension or "count", f"{where}.{name[:2]}") for name, end in ends.items() if end is not None
    }
    _check_range(compiled, fact, where)
    words = {
        "unit": unit,
        "src": [fact.src] if isinstance(fact.src, str) else fact.src,
        "at": fact.at,
        "note": fact.note,
        "why": fact.why,
        "basis": fact.basis,
        "date": fact.date,
        "was": fact.was,
        "conflict": fact.conflict,
    }
    return compiled | {key: value for key, value in words.items() if value}


def _check_range(compiled: Record, fact: schema.FactIn, where: str) -> None:
    if "low" not in compiled and "high" not in compiled:
        return
    value = compiled["value"]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadFact(f"{where}: got a range around {fact.v!r}, which is no number; give `dim` if it has a unit")
    if not compiled.get("low", value) <= value <= compiled.get("high", value):
        raise BadFact(f"{where}: value {fact.v!r} lies outside its own range {fact.lo!r} .. {fact.hi!r}")


def _value(value: Any, dimension: str, where: str, field: Field | None = None) -> Any:
    if dimension == TEXT:
        if not isinstance(value, str):
            raise BadFact(f"{where}: got {value!r}, expected text")
        return value
    if not dimension:
        return value
    try:
        number = parse(value, dimension, where)
    except UnitError as error:
        raise BadFact(str(error)) from error
    low, high = field.plausible if field else (-float("inf"), float("inf"))
    if not low <= number <= high:
        si = DIMENSIONS[dimension].si
        raise BadFact(f"{where}: got {value!r}, which is outside the plausible range {low:g} .. {high:g} {si}".rstrip())
    return number


def _table(facts: Mapping[str, schema.FactIn], fields: Mapping[str, Field], where: str) -> Record:
    """Facts whose keys are those of a field table."""
    compiled = {}
    for key, fact in facts.items():
        if key not in fields:
            near = _nearest(key, fields) or f"; allowed: {', '.join(fields)}"
            raise BadFact(f"{where}: facts.{key}: unknown fact{near}; free facts go under `more`")
        compiled[key] = _fact(fact, fields[key], f"{where}: facts.{key}")
    return compiled


def _source(item: schema.SourceIn, where: str) -> Record:
    return {key: value for key, value in item.model_dump().items() if value}


def _device(item: schema.DeviceIn, where: str) -> Record:
    if item.architecture is not None and item.architecture not in ARCHITECTURES:
        raise BadFact(
            f"{where}: architecture: got {item.architecture!r}{_nearest(item.architecture, ARCHITECTURES)}; "
            f"allowed: {', '.join(ARCHITECTURES)}"
        )
    words = {"vendor": item.vendor, "kind": item.kind, "architecture": item.architecture}
    return {k: v for k, v in words.items() if v} | {"facts": _table(item.facts, DEVICE_FIELDS, where)}


def _link(item: schema.LinkIn, where: str) -> Record:
    return ({"type": item.type} if item.type else {}) | {"facts": _table(item.facts, LINK_FIELDS, where)}


def _system(item: schema.SystemIn, where: str) -> Record:
    facts: Record = {}
    for key, field in SYSTEM_FIELDS.items():
        if (value := getattr(item, key)) is not None:
            facts[key] = _fact(_as_fact(value, item), field, f"{where}: {key}")
    host = {}
    for key, field in HOST_FIELDS.items():
        value = getattr(item.host, key)
        if isinstance(value, schema.FactIn):
            facts[f"host.{key}"] = _fact(value, field, f"{where}: host.{key}")
        elif value:
            host[key] = value
    levels = [_level(level, facts, where) for level in item.levels]
    words = {
        "chip": item.chip,
        "devices_per_node": item.devices_per_node,
        "host": host,
        "sizes": item.sizes,
        "cloud": item.cloud,
        "default_for": item.default_for,
        "levels": levels,
        "src": [item.src] if isinstance(item.src, str) else item.src,
        "at": item.at,
    }
    return {key: value for key, value in words.items() if value} | {"facts": facts}


def _as_fact(value: schema.FactIn | int, item: schema.SystemIn) -> schema.FactIn:
    """A bare count of a system stands on the source of the system's structure."""
    if isinstance(value, schema.FactIn):
        return value
    return schema.FactIn(v=value, kind="datasheet", src=item.src)


def _level(level: schema.LevelIn, facts: Record, where: str) -> Record:
    for key, field in LEVEL_FIELDS.items():
        if (fact := getattr(level, key)) is not None:
            facts[f"levels.{level.name}.{key}"] = _fact(fact, field, f"{where}: levels.{level.name}.{key}")
    plain = level.model_dump(exclude=set(LEVEL_FIELDS), exclude_defaults=True)
    if level.oversubscription < 1:
        raise BadFact(f"{where}: levels.{level.name}.oversubscription: got {level.oversubscription}, expected >= 1")
    return plain


def _price(item: schema.PriceIn, where: str) -> Record:
    facts, entries = {}, []
    for entry in item.prices:
        key = f"{entry.term}.{entry.date or 'undated'}"
        while key in facts:
            key += "+"
        place = f"{where}: prices.{key}"
        dimension = "money" if entry.term == "purchase" else "money_rate"
        facts[key] = _fact(entry, Field(dimension, plausible=(0.0, 1e9)), place)
        entries.append({"key": key, "term": entry.term, "date": entry.date, "per": entry.per})
    words = {
        "system": item.system,
        "instance": item.instance,
        "device": item.device,
        "devices": item.devices,
        "provider": item.provider,
        "region": item.region,
    }
    return {k: v for k, v in words.items() if v} | {"prices": entries, "facts": facts}


def _model(item: schema.ModelIn, where: str) -> Record:
    src = [item.src] if isinstance(item.src, str) else item.src
    words = {"config": item.config, "date": item.date, "src": src, "at": item.at}
    facts = {key: _fact(fact, None, f"{where}: facts.{key}") for key, fact in item.facts.items()}
    return {k: v for k, v in words.items() if v} | {"facts": facts}


def _efficiency(item: schema.EfficiencyIn, where: str) -> Record:
    facts: Record = {}
    for key, law in item.laws.items():
        words = law.model_dump(exclude={"parameters", "src", "kind"}, exclude_defaults=True)
        src = [law.src] if isinstance(law.src, str) else law.src
        facts[key] = {"value": law.parameters, "kind": law.kind, "src": src, **words}
    scope = {"level": item.level, "device": item.device, "architecture": item.architecture}
    return {k: v for k, v in scope.items() if v} | {"facts": facts}


def _free(item: schema.FreeIn, where: str) -> Record:
    src = [item.src] if isinstance(item.src, str) else item.src
    words = {"version": item.version, "date": item.date, "src": src, "data": item.data}
    facts = {key: _fact(fact, None, f"{where}: facts.{key}") for key, fact in item.facts.items()}
    return {k: v for k, v in words.items() if v} | {"facts": facts}


def _labels(content: Any, where: str) -> dict[str, Record]:
    item = _validated(schema.LabelsIn, content, where)
    found = {}
    for text, label in item.labels.items():
        full = schema.LabelIn(device=label) if isinstance(label, str) else label
        found[text] = {"id": text, "file": where} | {k: v for k, v in full.model_dump().items() if v}
    return found


_COMPILERS: dict[str, Callable[[Any, str], Record]] = {
    "sources": _source,
    "devices": _device,
    "links": _link,
    "systems": _system,
    "prices": _price,
    "tariffs": _free,
    "assumptions": _free,
    "models": _model,
    "engines": _free,
    "software": _free,
    "efficiency": _efficiency,
}
