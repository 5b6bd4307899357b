"""How a cluster names devices: the resource that a container asks for, and the labels of nodes that have them.

NVIDIA's feature discovery writes `nvidia.com/gpu.product`, the name that the driver gives with blanks as hyphens; AMD's
node labeller writes `amd.com/gpu.product-name`; GKE labels TPU slices by kind and topology.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.specs import System

# Names that drivers give to the devices of the catalogue; several where boards or driver releases differ.
PRODUCTS: dict[str, tuple[str, ...]] = {
    "a10": ("NVIDIA-A10",),
    "a100-pcie-40": ("NVIDIA-A100-PCIE-40GB",),
    "a100-pcie-80": ("NVIDIA-A100-80GB-PCIe",),
    "a100-sxm4-40": ("NVIDIA-A100-SXM4-40GB",),
    "a100-sxm4-80": ("NVIDIA-A100-SXM4-80GB",),
    "a10g": ("NVIDIA-A10G",),
    "a2": ("NVIDIA-A2",),
    "a30": ("NVIDIA-A30",),
    "a40": ("NVIDIA-A40",),
    "b200-sxm": ("NVIDIA-B200",),
    "b300-sxm": ("NVIDIA-B300-SXM6-AC",),
    "gb200": ("NVIDIA-GB200",),
    "gb300": ("NVIDIA-GB300",),
    "gh200-96": ("NVIDIA-GH200-480GB",),
    "h100-nvl-94": ("NVIDIA-H100-NVL",),
    "h100-pcie-80": ("NVIDIA-H100-PCIe",),
    "h100-sxm5-80": ("NVIDIA-H100-80GB-HBM3",),
    "h20-sxm-96": ("NVIDIA-H20",),
    "h200-nvl-141": ("NVIDIA-H200-NVL",),
    "h200-sxm-141": ("NVIDIA-H200",),
    "l4": ("NVIDIA-L4",),
    "l40": ("NVIDIA-L40",),
    "l40s": ("NVIDIA-L40S",),
    "rtx-4090": ("NVIDIA-GeForce-RTX-4090",),
    "rtx-5090": ("NVIDIA-GeForce-RTX-5090",),
    "rtx-6000-ada": ("NVIDIA-RTX-6000-Ada-Generation",),
    "rtx-a6000": ("NVIDIA-RTX-A6000",),
    "t4": ("Tesla-T4",),
    "v100-pcie-16": ("Tesla-V100-PCIE-16GB",),
    "v100-pcie-32": ("Tesla-V100-PCIE-32GB",),
    "v100-sxm2-16": ("Tesla-V100-SXM2-16GB",),
    "v100-sxm2-32": ("Tesla-V100-SXM2-32GB",),
    "mi300x": ("AMD_Instinct_MI300X_OAM",),
    "mi325x": ("AMD_Instinct_MI325_OAM", "AMD_Instinct_MI325X"),
    "tpu-v4": ("tpu-v4-podslice",),
    "tpu-v5e": ("tpu-v5-lite-podslice",),
    "tpu-v5p": ("tpu-v5p-slice",),
    "tpu-v6e": ("tpu-v6e-slice",),
}  # src: gpu-feature-discovery, amd-node-labeller, gke-tpus
RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "google": "google.com/tpu"}
LABELS = {
    "nvidia": "nvidia.com/gpu.product",
    "amd": "amd.com/gpu.product-name",
    "google": "cloud.google.com/gke-tpu-accelerator",
}
# Slices of one host, by the number of chips (GKE).
_FLAT = {1: "1x1", 4: "2x2", 8: "2x4"}
_CUBE = {4: "2x2x1"}
TOPOLOGIES = {"tpu-v4": _CUBE, "tpu-v5p": _CUBE, "tpu-v5e": _FLAT, "tpu-v6e": _FLAT}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLabels:
    """The resource name, the label with its values (none known: empty), and further labels that must be equal."""

    resource: str
    label: str
    values: tuple[str, ...]
    exact: dict[str, str]


def node_labels(system: System, devices_count: int) -> NodeLabels | None:
    """How nodes with the devices of `system` are found, for a container with `devices_count`; None: no such resource.

    >>> from ridgeline.specs import Chip
    >>> chip = Chip(id="h200-sxm-141", vendor="NVIDIA")
    >>> node_labels(System(id="x", name="", chip=chip, devices_per_node_count=8, levels=()), 1).values
    ('NVIDIA-H200',)
    """
    chip = system.chip
    vendor = chip.vendor.lower().split(" ")[0]
    if vendor not in RESOURCES or (vendor == "google" and not chip.id.startswith("tpu-v")):
        return None
    exact = {}
    if vendor == "google":
        topology = TOPOLOGIES.get(chip.id, {}).get(devices_count)
        exact = {"cloud.google.com/gke-tpu-topology": topology} if topology else {}
    return NodeLabels(resource=RESOURCES[vendor], label=LABELS[vendor], values=PRODUCTS.get(chip.id, ()), exact=exact)
