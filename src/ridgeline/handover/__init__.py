"""Launch files for a sized serving system: command lines of engines, Triton models, Kubernetes manifests."""

from ridgeline.handover.deployment import Deployment, deployment_of
from ridgeline.handover.writing import handover_files, write_handover

__all__ = ["Deployment", "deployment_of", "handover_files", "write_handover"]
