"""How long the expert products of a mixture take: many small products in one kernel."""

from __future__ import annotations

from ridgeline.device.gemm import Product
from ridgeline.specs import bytes_per_element
from ridgeline.workload.ops import GroupedGemm


def experts_product(op: GroupedGemm) -> Product:
    """The grouped product as a batch of as many products as experts have rows.

    Each touched expert multiplies the mean number of rows, padded to a tile of its own: that is what makes few rows
    an expert slow. Its weights are read once. With unequal experts (`imbalance_frac`) the last tile of each is half
    full on average. The fullest expert lengthens nothing on one device (all units share the tiles); between devices
    it does, and that is for the caller, who gives the rows of the fullest device.

    >>> op = GroupedGemm(name="e", rows_count=64, experts_count=8, touched_count=8, n=1024, k=512)
    >>> experts_product(op).m, experts_product(op).batch_count
    (8.0, 8.0)
    """
    touched = max(float(op.touched_count), 1.0)
    return Product(
        op.rows_count / touched,
        op.n,
        op.k,
        touched,
        bytes_per_element(op.activation_precision),
        bytes_per_element(op.weight_precision),
        bytes_per_element(op.output_precision),
        op.imbalance_frac > 0,
    )
