"""How long one operation takes on one chip: matrix products, attention, expert products, element-wise work."""

from ridgeline.device.context import STREAM, KernelContext
from ridgeline.device.optime import OpTime, gemm_law, gemm_times, kernels_count, op_time, product_of

__all__ = ["STREAM", "KernelContext", "OpTime", "gemm_law", "gemm_times", "kernels_count", "op_time", "product_of"]
