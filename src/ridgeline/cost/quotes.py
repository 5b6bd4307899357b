"""From many published prices to one quote a kind: newest of each provider, the middle one of the providers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline.core import Interval
from ridgeline.specs import Price

PURCHASE = "purchase"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """What one kind of price comes to, per device: [USD] to buy, [USD/s] to rent.

    `price` is the published price taken as best (a real offer, not a mean); the interval spans the offers.
    """

    kind: str
    per_device: Interval
    price: Price
    offers_count: int

    @property
    def fact(self) -> str:
        """Id of the price's fact."""
        return self.price.fact


def newest_quotes(prices: Sequence[Price], system_id: str = "") -> dict[str, Quote]:
    """One quote for each kind that `prices` has.

    Prices of `system_id` itself go before prices of its device elsewhere. Of each provider only the newest price
    counts. Of the providers the middle one is taken (the lower of two), so that one odd offer does not decide; the
    interval runs from the cheapest to the dearest, and over the range that a source gives for its own price.
    """
    kinds: dict[str, dict[str, Price]] = {}
    known_kinds = {price.kind for price in prices if price.system == system_id and _amount(price) is not None}
    for price in prices:
        if _amount(price) is None or (price.kind in known_kinds and price.system != system_id):
            continue
        newest = kinds.setdefault(price.kind, {})
        known = newest.get(price.provider)
        if known is None or _age_key(price) > _age_key(known):
            newest[price.provider] = price
    return {kind: _quote(kind, list(offers.values())) for kind, offers in sorted(kinds.items())}


def _quote(kind: str, offers: list[Price]) -> Quote:
    ordered = sorted(offers, key=lambda price: (_amount(price) or 0.0, price.provider, price.id))
    middle = ordered[(len(ordered) - 1) // 2]
    lows = [_low(price) for price in ordered]
    highs = [_high(price) for price in ordered]
    return Quote(
        kind=kind,
        per_device=Interval(min(lows), _amount(middle) or 0.0, max(highs)),
        price=middle,
        offers_count=len(ordered),
    )


def _age_key(price: Price) -> tuple[str, float, str]:
    """Newest date first; of equal dates the cheaper price, then the id, so that the choice is always the same."""
    return (price.date, -(_amount(price) or 0.0), price.id)


def _amount(price: Price) -> float | None:
    return price.per_device_usd if price.kind == PURCHASE else price.per_device_usd_per_s


def _low(price: Price) -> float:
    amount = _amount(price) or 0.0
    return min(amount, price.low_usd) if price.kind == PURCHASE and price.low_usd is not None else amount


def _high(price: Price) -> float:
    amount = _amount(price) or 0.0
    return max(amount, price.high_usd) if price.kind == PURCHASE and price.high_usd is not None else amount
