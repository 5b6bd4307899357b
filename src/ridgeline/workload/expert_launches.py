"""How much a host has to issue for the part of a layer that routing shapes, in units of one library call.

A profile of Megatron-Core with 16 experts a device, one sequence at a time, gives host times by range: a call of the
matrix library 13.7 us (median), all products of the experts going forward 2.19 ms for 32 of them, dispatch without
waiting 0.29 ms. Each expert's product so costs as much as 5 calls (views, allocations and bookkeeping of a framework in
Python), an exchange as much as 21.
"""

from __future__ import annotations

from ridgeline.specs import bytes_per_element

_PRODUCT_CALLS = 5.0  # src: megatron-moe-zoo-7 (2.19 ms / 32 / 13.7 us)
_NARROW_CALLS = 2.0  # src: transformer-engine-grouped-linear (quantisation, and the order of its scales)
EXCHANGE_LAUNCHES = 21.0  # src: megatron-moe-zoo-7 (0.29 ms / 13.7 us)


def expert_launches_count(precision: str) -> float:
    """Calls that the host spends on the product of one expert whose operands are in `precision`.

    >>> expert_launches_count("bf16"), expert_launches_count("fp8")
    (5.0, 7.0)
    """
    narrow = bytes_per_element(precision) < bytes_per_element("bf16")
    return _PRODUCT_CALLS + (_NARROW_CALLS if narrow else 0.0)
