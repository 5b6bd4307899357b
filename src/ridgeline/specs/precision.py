"""Number formats: their storage width and the matrix rate that they run at."""

from __future__ import annotations

from ridgeline.errors import UnknownName

# Stored bits per element, scale factors of block formats included:
# mxfp4/mxfp8: one 8-bit scale a block of 32 (OCP MX 1.0); nvfp4: one 8-bit scale a block of 16 plus a
# tensor scale (NVFP4); int4_g128: one 16-bit scale a group of 128 (compressed-tensors, GPTQ, AWQ); nf4: one fp32
# maximum a block of 64; q4_k and the like: llama.cpp's blocks.
BITS_PER_ELEMENT: dict[str, float] = {
    "fp64": 64.0,  # src: ieee-754
    "fp32": 32.0,  # src: ieee-754
    "tf32": 32.0,  # src: nvidia-tf32
    "fp16": 16.0,  # src: ieee-754
    "bf16": 16.0,  # src: google-bf16
    "fp8": 8.0,  # src: ocp-fp8
    "int8": 8.0,  # src: integer-width
    "mxfp8": 8.25,  # src: ocp-mx-1.0
    "fp6": 6.0,  # src: ocp-mx-1.0
    "mxfp6": 6.25,  # src: ocp-mx-1.0
    "fp4": 4.0,  # src: ocp-mx-1.0
    "int4": 4.0,  # src: integer-width
    "mxfp4": 4.25,  # src: ocp-mx-1.0
    "nvfp4": 4.5,  # src: nvidia-nvfp4
    "int4_g32": 4.5,  # src: compressed-tensors-format
    "int4_g64": 4.25,  # src: compressed-tensors-format
    "int4_g128": 4.125,  # src: compressed-tensors-format
    "nf4": 4.5,  # src: bitsandbytes-nf4
    "int1": 1.0,
    "q4_0": 4.5,  # src: llama-cpp-quantize
    "q4_k": 4.5,  # src: llama-cpp-quantize
    "q4_k_m": 4.85,  # src: llama-cpp-quantize
    "q5_k_m": 5.7,  # src: llama-cpp-quantize
    "q6_k": 6.5625,  # src: llama-cpp-quantize
    "q8_0": 8.5,  # src: llama-cpp-quantize
}

# Formats of whole files: llama.cpp narrows embedding and head too, so that their bits are a mean over the whole file.
WHOLE_FILE_FORMATS = frozenset({"q4_0", "q4_k", "q4_k_m", "q5_k_m", "q6_k", "q8_0"})

# The peak of which entry of `Chip.peak_dense_flop_per_s` a format may use, best first. Weight-only formats
# (int4 weights with 16-bit activations) are a matter of the plan, not of this table.
PEAK_KEYS: dict[str, tuple[str, ...]] = {
    "fp64": ("fp64",),
    "fp32": ("fp32",),
    "tf32": ("tf32", "fp32"),
    "fp16": ("fp16", "bf16"),
    "bf16": ("bf16", "fp16"),
    "fp8": ("fp8",),
    "mxfp8": ("fp8",),
    "int8": ("int8",),
    "fp6": ("fp6", "fp8"),
    "mxfp6": ("fp6", "fp8"),
    "fp4": ("fp4",),
    "mxfp4": ("fp4",),
    "nvfp4": ("fp4",),
    "int4": ("int4",),
    "int4_g32": ("int4",),
    "int4_g64": ("int4",),
    "int4_g128": ("int4",),
    "nf4": ("int4",),
}


def bytes_per_element(precision: str) -> float:
    """Stored bytes of one element, scale factors included.

    >>> bytes_per_element("bf16"), bytes_per_element("nvfp4")
    (2.0, 0.5625)
    """
    if precision not in BITS_PER_ELEMENT:
        raise UnknownName("precision", precision, BITS_PER_ELEMENT)
    return BITS_PER_ELEMENT[precision] / 8  # src: bits-per-byte
