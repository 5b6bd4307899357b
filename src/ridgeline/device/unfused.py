"""Attention before fused kernels: batched products with the scores written to memory in between."""

from __future__ import annotations

from ridgeline.specs import bytes_per_element
from ridgeline.workload.ops import AttentionPrefill, Elementwise, Gemm

# Bytes of a dropout mask element and how often the scores pass through memory besides the two products:
# forward: masked softmax reads and writes them, dropout reads and writes them and writes its mask;
# backward: dropout reads mask and gradient and writes the gradient, softmax reads output and gradient and writes one.
_MASK_BYTES = 1.0
_WIDE_BYTES = 4.0  # src: llama-cpp-source
_FORWARD_PASSES = 4.0  # src: korthikanti-2022
_BACKWARD_PASSES = 5.0  # src: korthikanti-2022


def unfused_parts(op: AttentionPrefill, wide: bool = False) -> tuple[Gemm | Elementwise, ...]:
    """The kernels that an attention without fusion consists of (Megatron-LM of 2021-22: fused mask and softmax).

    `wide`: forward with scores in fp32 between the kernels: the first product's narrow output is converted (read, write
    wide), the softmax with its mask reads and writes wide scores, which are converted again for the second product.

    Products are over the whole square, whatever the mask. Backward: four products and the gradients of dropout and
    softmax.
    """
    heads = op.batch_count * op.heads_count
    q, s, dk, dv = op.query_tokens, op.key_tokens, float(op.key_dim_count), float(op.value_dim_count)
    scores = heads * q * s
    width = bytes_per_element(op.precision)
    if op.backward:
        shapes: tuple[tuple[str, float, float, float], ...] = (
            ("grad-v", s, dv, q),
            ("grad-p", q, s, dv),
            ("grad-q", q, dk, s),
            ("grad-k", s, dk, q),
        )
        passes = _BACKWARD_PASSES
    else:
        shapes = (("scores", q, s, dk), ("context", q, dv, s))
        passes = _FORWARD_PASSES
    products = tuple(_product(f"{op.name}.{name}", m, n, k, heads, op.precision) for name, m, n, k in shapes)
    moved = scores * (passes * width + _MASK_BYTES)
    if wide and not op.backward:
        moved = scores * (2.0 * (width + _WIDE_BYTES) + 2.0 * _WIDE_BYTES)
    launches = 4.0 if wide else 2.0  # src: llama-cpp-source, korthikanti-2022
    softmax = Elementwise(name=f"{op.name}.softmax", kind="softmax", bytes=moved, launches_count=launches)
    return (*products, softmax)


def _product(name: str, m: float, n: float, k: float, batch: float, precision: str) -> Gemm:
    return Gemm(
        name=name,
        m=m,
        n=n,
        k=k,
        batch_count=batch,
        math_precision=precision,
        weight_precision=precision,
        activation_precision=precision,
        output_precision=precision,
    )
