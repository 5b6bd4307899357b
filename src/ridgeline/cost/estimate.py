"""Money of one run on one machine: every way of paying for it that has a price, and which one counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ridgeline.core import Breakdown, FrozenMap, Interval, Note, leaf, quadrature, total
from ridgeline.cost.own import Ownership, break_even_utilisation_frac, depreciation_usd
from ridgeline.cost.quotes import PURCHASE, Quote
from ridgeline.cost.rent import rent_usd
from ridgeline.specs import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTerms:
    """How money is counted: `basis` "rent" or "own" (empty: rent where there is a price, else own), and which
    rental price counts."""

    basis: str = ""
    price_kind: str = "on-demand"
    ownership: Ownership | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """`rent_usd` by kind of price, `own_usd`, and the `headline_usd` that a ranking by cost uses.

    None means that a price is missing; `missing` names the facts. `money` are the trees behind the figures.
    `break_even_frac` is the utilisation above which owning is cheaper than renting.
    """

    rent_usd: FrozenMap[str, Interval] = field(default_factory=FrozenMap)
    own_usd: Interval | None = None
    headline_usd: Interval | None = None
    headline_basis: str = ""
    break_even_frac: float | None = None
    money: tuple[Breakdown, ...] = ()
    quotes: FrozenMap[str, Quote] = field(default_factory=FrozenMap)
    missing: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    uses: tuple[str, ...] = ()


def estimate_cost(
    system_id: str,
    devices_count: int,
    time_s: Interval,
    energy_j: Interval | None,
    site: Site,
    quotes: Mapping[str, Quote],
    terms: CostTerms,
    energy_missing: str = "",
) -> CostEstimate:
    """What `time_s` on `devices_count` devices costs, with `energy_j` at the meter if the machine is one's own.

    `energy_j` None: not known, for want of the fact `energy_missing`; then there is no cost of owning.
    """
    rents: dict[str, Interval] = {}
    trees: list[Breakdown] = []
    for kind, quote in quotes.items():
        if kind != PURCHASE:
            rents[kind] = _rent(devices_count, time_s, quote)
            trees.append(leaf(f"rent {kind}", rents[kind].best, "USD", model="rent", uses=(quote.fact,)))
    own, own_tree = _own(devices_count, time_s, energy_j, site, quotes.get(PURCHASE), terms.ownership)
    if own_tree is not None:
        trees.append(own_tree)
    missing = _missing(system_id, quotes, site, terms, energy_missing if energy_j is None else "")
    headline, basis = _headline(rents, own, terms)
    return CostEstimate(
        rent_usd=FrozenMap(rents),
        own_usd=own,
        headline_usd=headline,
        headline_basis=basis,
        break_even_frac=_break_even(devices_count, time_s, energy_j, site, quotes, terms),
        money=tuple(trees),
        quotes=FrozenMap(quotes),
        missing=missing,
        notes=_notes(headline, missing, system_id),
        uses=_uses(quotes, own_tree, basis, terms),
    )


def _rent(devices_count: int, time_s: Interval, quote: Quote) -> Interval:
    best = rent_usd(devices_count, time_s.best, quote.per_device.best)
    return _ranged(best, time_s, quote.per_device)


def _ranged(best: float, time_s: Interval, price: Interval) -> Interval:
    """An interval whose ends combine the spread of the time and that of the offers, each side by itself."""
    if best <= 0:
        return Interval.exact(best)
    low = quadrature(1 - time_s.low / time_s.best, 1 - price.low / price.best if price.best else 0.0)
    high = quadrature(time_s.high / time_s.best - 1, price.high / price.best - 1 if price.best else 0.0)
    return Interval(best * max(0.0, 1 - low), best, best * (1 + high))


def _own(
    devices_count: int,
    time_s: Interval,
    energy_j: Interval | None,
    site: Site,
    purchase: Quote | None,
    ownership: Ownership | None,
) -> tuple[Interval | None, Breakdown | None]:
    if purchase is None or ownership is None or site.electricity_usd_per_j is None or energy_j is None:
        return None, None
    nodes_usd = devices_count * purchase.per_device.best
    life_s, busy = ownership.depreciation_s, ownership.utilisation_frac
    machine = depreciation_usd(nodes_usd, time_s.best, life_s.best, busy.best)
    network = machine * ownership.network_frac.best
    energy = energy_j.best * site.electricity_usd_per_j
    uses = tuple(fact for fact in (ownership.fact("depreciation_s"), ownership.fact("utilisation_frac")) if fact)
    network_uses = tuple(fact for fact in (ownership.fact("network_frac"),) if fact)
    tree = total(
        "own",
        "USD",
        [
            leaf("machine, written off", machine, "USD", model="depreciation", uses=(purchase.fact, *uses)),
            leaf("network, storage, racks", network, "USD", model="depreciation", uses=network_uses),
            leaf("energy", energy, "USD"),
        ],
    )
    if not tree.value:
        return Interval.exact(tree.value), tree
    written_off = (machine + network) * quadrature(purchase.per_device.sigma, life_s.sigma, busy.sigma)
    power_sigma = max(0.0, energy_j.sigma**2 - time_s.sigma**2) ** 0.5
    # The length of the run moves all parts together; what is left of each errs by itself.
    apart = (written_off, network * ownership.network_frac.sigma, energy * power_sigma, tree.value * time_s.sigma)
    return Interval.from_sigma(tree.value, quadrature(*apart) / tree.value), tree


def _break_even(
    devices_count: int,
    time_s: Interval,
    energy_j: Interval | None,
    site: Site,
    quotes: Mapping[str, Quote],
    terms: CostTerms,
) -> float | None:
    purchase, rent = quotes.get(PURCHASE), quotes.get(terms.price_kind)
    if purchase is None or rent is None or terms.ownership is None:
        return None
    if site.electricity_usd_per_j is None or energy_j is None:
        return None
    energy_usd_per_s = energy_j.best * site.electricity_usd_per_j / time_s.best if time_s.best else 0.0
    rent_usd_per_s = devices_count * rent.per_device.best
    if rent_usd_per_s <= energy_usd_per_s:
        return None
    capital = devices_count * purchase.per_device.best * (1 + terms.ownership.network_frac.best)
    return float(
        break_even_utilisation_frac(capital, terms.ownership.depreciation_s.best, rent_usd_per_s, energy_usd_per_s)
    )


def _headline(rents: Mapping[str, Interval], own: Interval | None, terms: CostTerms) -> tuple[Interval | None, str]:
    rent = rents.get(terms.price_kind)
    if terms.basis == "own":
        return own, "own" if own is not None else ""
    if rent is not None:
        return rent, terms.price_kind
    if terms.basis == "rent":
        return None, ""
    return own, "own" if own is not None else ""


def _missing(
    system_id: str, quotes: Mapping[str, Quote], site: Site, terms: CostTerms, energy_missing: str
) -> tuple[str, ...]:
    missing = [] if terms.price_kind in quotes else [f"prices.{system_id}.{terms.price_kind}"]
    if PURCHASE not in quotes:
        missing.append(f"prices.{system_id}.{PURCHASE}")
    elif site.electricity_usd_per_j is None:
        missing.append("site.electricity")
    elif energy_missing:
        missing.append(energy_missing)
    return tuple(missing)


def _notes(headline: Interval | None, missing: tuple[str, ...], system_id: str) -> tuple[Note, ...]:
    if headline is not None:
        return ()
    names = ", ".join(missing)
    return (Note("missing", f"{system_id} has no price and is ranked last on cost; missing: {names}", missing),)


def _uses(quotes: Mapping[str, Quote], own_tree: Breakdown | None, basis: str, terms: CostTerms) -> tuple[str, ...]:
    rent = (quotes[terms.price_kind].fact,) if terms.price_kind in quotes else ()
    own = own_tree.facts() if own_tree is not None else ()
    return own + rent if basis == "own" else rent + own
