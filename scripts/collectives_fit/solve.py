"""Least squares on the logarithm of time, through the same `collective_time` that ships."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from collectives_fit.rows import Row
from ridgeline.core import FrozenMap
from ridgeline.network import collective_time
from ridgeline.specs import Calibration, Law

# name: (start, low, high); `local_frac` and `switch_power` are fitted as they are, everything else as a logarithm.
BOUNDS: dict[str, tuple[float, float, float]] = {
    "low_base_s": (6e-6, 5e-7, 1e-4),
    "low_hop_s": (1e-6, 1e-8, 2e-4),
    "low_frac": (0.3, 0.02, 0.6),
    "high_base_s": (1e-5, 5e-7, 2e-4),
    "high_hop_s": (2e-6, 1e-8, 2e-4),
    "high_frac": (0.8, 0.2, 1.0),
    "half_bytes": (1e6, 1e2, 1e8),
    "half_power": (0.7, 0.4, 1.0),
    "local_frac": (0.2, -0.9, 1.5),
    "switch_base_s": (3e-5, 1e-6, 3e-4),
    "switch_frac": (0.65, 0.2, 1.0),
    "switch_power": (0.05, 0.0, 0.3),
    "sharpness": (8.0, 1.5, 20.0),
}
LINEAR = ("local_frac", "switch_power")
SWITCH = ("switch_base_s", "switch_frac", "switch_power")
Parameters = dict[str, float]
OWN = "ridgeline-collective-laws"


@dataclass
class Fit:
    """One fitted law: the key in the catalogue, its parameters, errors, and what was said of it."""

    key: str
    level: str
    parameters: Parameters
    p50: float
    p90: float
    count: int
    kind: str = "measured"
    note: str = ""
    sources: tuple[str, ...] = ("aiconfigurator-core", OWN)
    extra: dict[str, str] = field(default_factory=dict)


def law(key: str, parameters: Mapping[str, float]) -> Law:
    """A law record with these parameters."""
    return Law(kind=key, level="fit", parameters=FrozenMap(parameters), ape_p50_frac=0.1, ape_p90_frac=0.2, fact=key)


def errors(rows: Sequence[Row], laws: Mapping[str, Mapping[str, float]]) -> np.ndarray:
    """log(predicted / measured) of each row."""
    calibration = Calibration(chip="fit", laws=FrozenMap({key: law(key, value) for key, value in laws.items()}))
    return np.array([math.log(predicted_s(row, calibration) / row.time_s) for row in rows])


def predicted_s(row: Row, calibration: Calibration) -> float:
    """The shipped estimate for one row."""
    engine = "any" if row.peer else ""
    time = collective_time(row.kind, row.message_bytes, row.group, row.system, calibration, peer_kernels=engine)
    return time.time_s


def apes(residuals: np.ndarray) -> tuple[float, float]:
    """Median and 90th percentile of |predicted / measured - 1|."""
    values = np.abs(np.expm1(residuals))
    return float(np.median(values)), float(np.quantile(values, 0.9))


def fit(
    rows: Sequence[Row],
    keys: Sequence[str],
    names: Sequence[str],
    fixed: Mapping[str, float],
    others: Mapping[str, Mapping[str, float]] | None = None,
    starts: int = 4,
    bounds: Mapping[str, tuple[float, float, float]] = BOUNDS,
) -> Parameters:
    """Parameters `names` of one law, filed under `keys`, that fit `rows`; the rest as in `fixed`."""
    rng = np.random.default_rng(1)

    def unpack(vector: np.ndarray) -> Parameters:
        free = {n: float(v if n in LINEAR else math.exp(v)) for n, v in zip(names, vector, strict=True)}
        return {**fixed, **free}

    def residuals(vector: np.ndarray) -> np.ndarray:
        parameters = unpack(vector)
        return errors(rows, {**(others or {}), **dict.fromkeys(keys, parameters)})

    low = np.array([bounds[n][1] if n in LINEAR else math.log(bounds[n][1]) for n in names])
    high = np.array([bounds[n][2] if n in LINEAR else math.log(bounds[n][2]) for n in names])
    first = np.array([bounds[n][0] if n in LINEAR else math.log(bounds[n][0]) for n in names])
    best = None
    for index in range(starts):
        spread = 0.0 if index == 0 else 0.25
        start = np.clip(first + spread * (high - low) * rng.uniform(-1, 1, len(names)), low + 1e-6, high - 1e-6)
        edges = (low - 1e-9, high + 1e-9)
        found = least_squares(residuals, start, bounds=edges, loss="soft_l1", f_scale=0.08, max_nfev=50, diff_step=1e-3)
        if best is None or found.cost < best.cost:
            best = found
    if best is None:
        raise ValueError("no start")
    return unpack(best.x)


def held_out(
    rows: Sequence[Row],
    keys: Sequence[str],
    names: Sequence[str],
    fixed: Mapping[str, float],
    *,
    anchors: Sequence[Row] = (),
    **options: Any,
) -> np.ndarray:
    """Errors of each row under the law fitted on the other half of the message sizes (and on all `anchors`)."""
    sizes = sorted({row.message_bytes for row in rows})
    half = {size: index % 2 for index, size in enumerate(sizes)}
    found = np.zeros(len(rows))
    for side in (0, 1):
        train = [*(row for row in rows if half[row.message_bytes] != side), *anchors]
        parameters = fit(train, keys, names, fixed, starts=2, **options)
        others = options.get("others") or {}
        scored = errors(rows, {**others, **dict.fromkeys(keys, parameters)})
        mask = np.array([half[row.message_bytes] == side for row in rows])
        found[mask] = scored[mask]
    return found


RING = (
    "low_base_s",
    "low_hop_s",
    "low_frac",
    "high_base_s",
    "high_hop_s",
    "high_frac",
    "half_bytes",
    "half_power",
    "local_frac",
    "sharpness",
)
# Between two ranks only, or one kernel without steps: nothing separates a step from the start.
PLAIN = ("low_base_s", "low_frac", "high_base_s", "high_frac", "half_bytes", "half_power")
SMALL_BYTES, LARGE_BYTES = 2**20, 2**24
EXCHANGES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
NVLINKS = ("nvlink3", "nvlink4", "nvlink5")
NO_SWITCH: Parameters = {"switch_base_s": 3e-5, "switch_frac": 0.65, "switch_power": 0.0}
NO_STEPS: Parameters = {"low_hop_s": 0.0, "high_hop_s": 0.0, "local_frac": 0.0, "sharpness": 12.0, **NO_SWITCH}


def fit_scale_up(table: Sequence[Row]) -> Iterator[Fit]:
    """One law for each NVLink generation and kind, one pooled over generations and scored with one left out."""
    for kind in EXCHANGES:
        mine = [r for r in table if r.kind == kind and r.source in ("nccl-table", "published") and not r.peer]
        for link in NVLINKS:
            rows = [r for r in mine if r.link == link]
            names, fixed = _names(rows, kind)
            yield _one(f"collective.{link}.{kind}", rows, names, fixed)
        pool = [r for r in mine if r.link in NVLINKS]
        yield _family(f"collective.scale-up.{kind}", pool, NVLINKS, *_names(pool, kind), key=f"{kind}")


def _names(rows: Sequence[Row], kind: str) -> tuple[tuple[str, ...], Parameters]:
    switched = kind == "all_reduce" and any(r.system.levels[0].in_switch_reduction for r in rows)
    return ((*RING, *SWITCH), {}) if switched else (RING, NO_SWITCH)


def _one(key: str, rows: Sequence[Row], names: Sequence[str], fixed: Parameters, **options: Any) -> Fit:
    """A law on the rows of one link, with the error of rows that the fit did not see."""
    parameters = fit(rows, (key,), names, fixed, **options)
    p50, p90 = apes(held_out(rows, (key,), names, fixed, **options))
    return Fit(key, "link", parameters, p50, p90, len(rows))


def _family(
    name: str,
    rows: Sequence[Row],
    links: Sequence[str],
    names: Sequence[str],
    fixed: Parameters,
    *,
    key: str,
    others: Mapping[str, Parameters] | None = None,
    bounds: Mapping[str, tuple[float, float, float]] = BOUNDS,
) -> Fit:
    """A law pooled over links; its error is that on a link that was left out of the fit, over all of them."""
    keys = {link: f"collective.{link}.{key}" for link in links}
    parameters = fit(rows, tuple(keys.values()), names, fixed, others, bounds=bounds)
    away = []
    for left in links:
        train = [r for r in rows if r.link != left]
        test = [r for r in rows if r.link == left]
        guess = fit(train, tuple(keys.values()), names, fixed, others, starts=2, bounds=bounds)
        away.append(errors(test, {**(others or {}), **dict.fromkeys(keys.values(), guess)}))
    p50, p90 = apes(np.concatenate(away))
    extra = {}
    for left, part in zip(links, away, strict=True):
        sizes = np.array([r.message_bytes for r in rows if r.link == left])
        for word, mask in (("small", sizes < SMALL_BYTES), ("large", sizes >= LARGE_BYTES)):
            if mask.any():
                extra[f"{left} left out, {word}"] = "{:.0f} / {:.0f}".format(*(100 * x for x in apes(part[mask])))
    return Fit(name, "family", parameters, p50, p90, len(rows), extra=extra)


def fit_pcie(table: Sequence[Row]) -> Iterator[Fit]:
    """PCIe without NVLink: an 8-device host of generation 5 with peer access; pairs and bridged fours of generation 4.

    The host with L40S has no peer access beyond a pair: its rows for 4 and 8 devices are of another machine. Of other
    generations the law of generation 4 is taken, with the error of one generation predicted from the other.
    """
    for kind in EXCHANGES:
        mine = [r for r in table if r.kind == kind and r.link.startswith("pcie")]
        five = [r for r in mine if r.link == "pcie5-x16" and r.source == "nccl-table"]
        four = [r for r in mine if r.link == "pcie4-x16" and (r.source == "vidur" or r.group.size_count == 2)]
        yield _one(f"collective.pcie5-x16.{kind}", five, RING, NO_SWITCH)
        fixed = {**NO_SWITCH, "low_hop_s": 1.6e-6, "high_hop_s": 4e-6, "local_frac": 0.0, "sharpness": 12.0}
        names = tuple(name for name in RING if name not in fixed)
        made = _one(f"collective.pcie4-x16.{kind}", four, names, fixed)
        sources = ("aiconfigurator-core", "vidur-network", OWN)
        yield replace(made, sources=sources, note="steps of the generation-5 host")
        pooled = _family("", five + four, ("pcie5-x16", "pcie4-x16"), names, fixed, key=kind)
        text = "law of generation 4; errors are those of one generation predicted from the other"
        family = replace(made, key=f"collective.pcie.{kind}", p50=pooled.p50, p90=pooled.p90, extra=pooled.extra)
        yield replace(family, level="family", kind="derived", note=text, sources=sources)


ENGINES = ("trtllm", "vllm", "sglang")


def fit_peer(table: Sequence[Row], nccl: Mapping[str, Parameters]) -> Iterator[Fit]:
    """All-reduce kernels over peer memory of inference engines, each and pooled; NCCL's laws stay beside them."""
    names = (*PLAIN, "high_hop_s", "sharpness")
    fixed = {"low_hop_s": 0.0, "local_frac": 0.0, **NO_SWITCH}
    mine = [r for r in table if r.peer]
    for link in NVLINKS:
        key = f"collective.{link}.peer_all_reduce"
        rows = [r for r in mine if r.link == link]
        yield _one(key, rows, names, fixed, others=nccl)
        for engine in ENGINES:
            some = [r for r in rows if r.label.endswith(engine)]
            made = _one(key, some, names, fixed, others=nccl)
            yield replace(made, key=f"{key}.{engine}")


def fit_send(table: Sequence[Row]) -> Iterator[Fit]:
    """Point to point inside a node."""
    mine = [r for r in table if r.kind == "send"]
    for link in ("nvlink3", "nvlink4"):
        made = _one(f"collective.{link}.send", [r for r in mine if r.link == link], PLAIN, NO_STEPS)
        yield replace(made, sources=("vidur-network", OWN))
    pooled = _family("collective.scale-up.send", mine, ("nvlink3", "nvlink4"), PLAIN, NO_STEPS, key="send")
    yield replace(pooled, sources=("vidur-network", OWN))


# A port of 50 GB/s gives 46 to 48 GB/s (NVIDIA/nccl-tests#290): no more than that share between nodes.
RAIL_BOUNDS = {**BOUNDS, "high_frac": (0.9, 0.5, 0.96), "low_frac": (0.2, 0.02, 0.6)}
EFA = ("efa-v1-p4d", "efa-v2-p5", "efa-v4-p6-b200")
BETWEEN = ("low_base_s", "low_hop_s", "low_frac", "high_base_s", "high_hop_s", "high_frac", "half_bytes", "half_power")


def fit_rails(table: Sequence[Row], inside: Mapping[str, Parameters]) -> Iterator[Fit]:
    """All-reduce between nodes, with the laws inside the node as they are.

    The 1,440-device rows are kept out: they show how far the law carries. InfiniBand has two rows of small messages:
    they count four times, and the start of its low-latency protocol is NCCL's planning figure.
    """
    mine = [r for r in table if r.kind == "all_reduce" and r.source == "published" and r.group.size_count < 1000]
    fixed = {"local_frac": 0.0, "sharpness": 8.0, **NO_SWITCH}
    options: dict[str, Any] = {"others": inside, "bounds": RAIL_BOUNDS}
    for link in EFA:
        rows = [r for r in mine if r.link == link]
        made = _one(f"collective.{link}.all_reduce", rows, BETWEEN, fixed, **options)
        yield replace(made, sources=("stas00-network", "aws-nccl-tests", OWN))
    pool = [r for r in mine if r.link in EFA]
    pooled = _family("collective.efa.all_reduce", pool, EFA, BETWEEN, fixed, key="all_reduce", **options)
    yield replace(pooled, sources=("stas00-network", "aws-nccl-tests", OWN))
    links = ("ib-ndr", "ib-hdr")
    bands = [r for r in mine if r.link in links]
    keys = tuple(f"collective.{link}.all_reduce" for link in links)
    anchors = 4 * [r for r in bands if r.message_bytes < SMALL_BYTES]
    bands = [r for r in bands if r.message_bytes >= SMALL_BYTES]
    fixed |= {"low_base_s": 6.6e-6}
    names = tuple(name for name in BETWEEN if name not in fixed)
    parameters = fit([*bands, *anchors], keys, names, fixed, **options)
    p50, p90 = apes(held_out(bands, keys, names, fixed, anchors=anchors, **options))
    sources = ("coreweave-nccl-tests", "nccl-threads", "nccl-tuner", OWN)
    yield Fit("collective.rdma.all_reduce", "family", parameters, p50, p90, len(bands), sources=sources)


def few_points(fits: Sequence[Fit]) -> Iterator[Fit]:
    """Links with one to five published figures: their share of the rate, and latencies of the nearest fitted law.

    The ranges are judgement: half of the single figures lie within a sixth of each other between machines.
    """
    by_key = {item.key: item.parameters for item in fits}
    mi300x = "RCCL all-reduce on MI300X: 47.7 of 64 GB/s for 2 devices, 312.9 of 448 GB/s for 8"
    gaudi3 = "HCCL on 8 Gaudi 3: 513 GB/s all-reduce, 509 GB/s all-gather of 525 GB/s"
    shares = {"mesh": (0.72, mi300x, "stas00-network"), "gaudi3-roce": (0.97, gaudi3, "habana-collectives")}
    for link, (share, note, source) in shares.items():
        for kind in (*EXCHANGES, "send"):
            start = by_key[f"collective.scale-up.{kind}"]
            made = {**start, "high_frac": share, "local_frac": 0.0, "low_frac": min(start["low_frac"], share / 2)}
            text = f"{note}; latencies of the pooled NVLink law"
            yield Fit(f"collective.{link}.{kind}", "published", made, 0.15, 0.5, 2, "derived", text, (source, OWN))
    torus = {
        "low_base_s": 2.2e-6,
        "low_hop_s": 1e-6,
        "low_frac": 0.5,
        "high_base_s": 2.2e-6,
        "high_hop_s": 1e-6,
        "half_bytes": 0.0,
        "half_power": 1.0,
        "local_frac": 0.0,
        "sharpness": 12.0,
        **NO_SWITCH,
    }
    ici = (
        "v6e 16x16 psum 235.8 of 360 GB/s; v7 all-gather 178.8 GB/s on 2 and on 3 links of 100 GB/s, start 2.2 us; "
        "1 us a hop; how the source defines bandwidth is not stated"
    )
    for kind in (*EXCHANGES, "send"):
        made = {**torus, "high_frac": 0.65 if kind == "all_reduce" else 0.75}
        sources = ("tpu-recipes", "scaling-book", OWN)
        yield Fit(f"collective.torus.{kind}", "published", made, 0.2, 0.6, 6, "derived", ici, sources)
    cores = "1 to 2 us a hop of a ring through all cores; start and share of the rate as other tori"
    for kind in (*EXCHANGES, "send"):
        made = {**torus, "low_hop_s": 1.5e-6, "high_hop_s": 1.5e-6, "high_frac": 0.65 if kind == "all_reduce" else 0.75}
        sources = ("neuron-intranode-collectives", OWN)
        yield Fit(f"collective.neuronlink-v2.{kind}", "published", made, 0.25, 0.6, 0, "derived", cores, sources)
    sockets = {"low_base_s": 2e-5, "low_hop_s": 2.5e-5, "high_base_s": 4e-5, "high_hop_s": 5e-5, "high_frac": 0.8}
    tcp = "no sweep with a named card: 0.8 of the line rate is the best case, 40 us to start over sockets"
    for kind in (*EXCHANGES, "send"):
        made = {**torus, **sockets}
        yield Fit(f"collective.tcp.{kind}", "published", made, 0.3, 1.0, 0, "assumed", tcp, ("stas00-network", OWN))


def other_kinds(fits: Sequence[Fit]) -> Iterator[Fit]:
    """Between nodes only all-reduce was swept: the other kinds take its law, with a wider range."""
    text = "law of the all-reduce on this link: no sweep of this kind between nodes is public"
    for item in fits:
        link = item.key.split(".")[1]
        if link in (*EFA, "efa", "rdma") and item.key.endswith("all_reduce"):
            p50, p90 = max(item.p50, 0.15), max(item.p90, 0.5)
            for kind in (*EXCHANGES[1:], "send"):
                key = f"collective.{link}.{kind}"
                yield replace(item, key=key, p50=p50, p90=p90, kind="derived", note=text, extra={})


def siblings(fits: Sequence[Fit]) -> Iterator[Fit]:
    """Generations of one fabric that have one figure or none: the law of the nearest generation."""
    nearest = {"efa-v3-p5en-trn2": "efa-v4-p6-b200", "efa-v4-p6-b300": "efa-v4-p6-b200"}
    for link, measured in nearest.items():
        for item in fits:
            if item.key.startswith(f"collective.{measured}."):
                key = f"collective.{link}.{item.key.rsplit('.', 1)[1]}"
                p50, p90 = max(item.p50, 0.2), max(item.p90, 0.5)
                text = f"law of {measured}"
                yield replace(item, key=key, p50=p50, p90=p90, kind="derived", note=text, count=0)


def fit_all(table: Sequence[Row]) -> list[Fit]:
    """Every law, in the order of the page."""
    found: list[Fit] = []

    def take(fits: Iterator[Fit]) -> None:
        for item in fits:
            found.append(item)
            print(f"{item.key:46s} {item.count:4d} rows  {100 * item.p50:5.1f} / {100 * item.p90:5.1f} %", flush=True)

    take(fit_scale_up(table))
    inside = {item.key: item.parameters for item in found}
    take(fit_pcie(table))
    take(fit_send(table))
    take(fit_peer(table, inside))
    take(fit_rails(table, inside))
    take(few_points(list(found)))
    take(other_kinds(list(found)))
    take(siblings(list(found)))
    return found
