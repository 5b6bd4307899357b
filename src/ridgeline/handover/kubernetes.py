"""Kubernetes manifests: a Deployment and a Service for each pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import yaml

from ridgeline.handover.commands import PORT, vllm_command
from ridgeline.handover.deployment import Deployment
from ridgeline.handover.labels import NodeLabels, node_labels
from ridgeline.search.sizing_result import Pool

# Slowest rate at which weights are taken to come from storage, and the time to compile and capture graphs after that.
_LOADED_BYTES_PER_S = 250e6
_WARMED_S = 300
_PERIOD_S = 10
_SHARED_BYTES_PER_DEVICE = 2 * 2**30  # as in vLLM's guide to Kubernetes
_IMAGES = {"nvidia": "vllm/vllm-openai", "amd": "rocm/vllm", "google": "vllm/vllm-tpu"}


def manifests(deployment: Deployment) -> list[dict[str, Any]]:
    """All objects, in the order in which they are applied; none for engines of more than a node."""
    found: list[dict[str, Any]] = []
    for pool in deployment.pools:
        labels = node_labels(deployment.system, pool.plan.devices_per_replica_count)
        served = deployment.generates or (labels is not None and labels.resource == "nvidia.com/gpu")
        if served and labels is not None and not spans_nodes(deployment, pool):
            found += [_service(deployment, pool), _workload(deployment, pool, labels)]
    return found


def spans_nodes(deployment: Deployment, pool: Pool) -> bool:
    """Whether one engine needs more devices than a node has (a Deployment cannot hold it)."""
    return pool.plan.devices_per_replica_count > deployment.system.devices_per_node_count


def manifests_text(deployment: Deployment, comments: Sequence[str]) -> str:
    """The objects as one YAML stream."""
    head = "".join(f"# {line}\n" for line in comments)
    return head + yaml.safe_dump_all(manifests(deployment), sort_keys=False, explicit_start=True)


def object_name(deployment: Deployment, pool: Pool) -> str:
    """Name of the objects of one pool."""
    return deployment.name if pool.role == "both" else f"{deployment.name}-{pool.role}"


def _workload(deployment: Deployment, pool: Pool, labels: NodeLabels) -> dict[str, Any]:
    name, devices = object_name(deployment, pool), pool.plan.devices_per_replica_count
    selector = {"app.kubernetes.io/name": deployment.name, "app.kubernetes.io/component": pool.role}
    spec: dict[str, Any] = {
        **_placement(labels),
        "containers": [_container(deployment, pool, labels.resource, devices)],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{_shared_gibibytes(devices)}Gi"}},
            {"name": "models", "emptyDir": {}},
        ],
        "terminationGracePeriodSeconds": max(30, math.ceil(deployment.sized.latencies.e2e_p95_s)),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": dict(selector)},
        "spec": {
            "replicas": pool.plan.replica_count,
            "selector": {"matchLabels": dict(selector)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {"metadata": {"labels": dict(selector)}, "spec": spec},
        },
    }


def _shared_gibibytes(devices: int) -> int:
    return _SHARED_BYTES_PER_DEVICE * devices // 2**30


def _placement(labels: NodeLabels) -> dict[str, Any]:
    """Which nodes: exact labels as a selector, a product with several spellings as an affinity; taints of the kind."""
    placed: dict[str, Any] = {}
    if labels.exact:
        placed["nodeSelector"] = dict(labels.exact)
    if labels.values:
        term = {"key": labels.label, "operator": "In", "values": list(labels.values)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
        placed["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    placed["tolerations"] = [{"key": labels.resource, "operator": "Exists", "effect": "NoSchedule"}]
    return placed


def _container(deployment: Deployment, pool: Pool, resource: str, devices: int) -> dict[str, Any]:
    weights = pool.memory.value_of("weights") * devices
    starting_s = _WARMED_S + weights / _LOADED_BYTES_PER_S
    path = "/health" if deployment.generates else "/v2/health/ready"
    health = {"httpGet": {"path": path, "port": "http"}, "periodSeconds": _PERIOD_S, "timeoutSeconds": 5}
    environment: list[dict[str, Any]] = [
        {
            "name": "HF_TOKEN",
            "valueFrom": {"secretKeyRef": {"name": "hugging-face", "key": "token", "optional": True}},
        },
        {"name": "HF_HOME", "value": "/models"},
    ]
    if pool.role != "both":
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        environment.append({"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": address})
    return {
        "name": "engine",
        "image": image(deployment),
        "command": _command(deployment, pool),
        "env": environment,
        "ports": [{"name": "http", "containerPort": PORT}],
        "resources": {"limits": {resource: str(devices)}, "requests": {resource: str(devices)}},
        "startupProbe": {**health, "failureThreshold": math.ceil(starting_s / _PERIOD_S)},
        "readinessProbe": {**health, "failureThreshold": 3},
        "livenessProbe": {**health, "failureThreshold": 6},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "models", "mountPath": "/models"}],
    }


def _command(deployment: Deployment, pool: Pool) -> list[str]:
    """vLLM for models that generate; Triton with its repository (the `triton` folder) on the volume for encoders."""
    if deployment.generates:
        return vllm_command(deployment, pool)
    return ["tritonserver", "--model-repository=/models/triton", f"--http-port={PORT}"]


def image(deployment: Deployment) -> str:
    """The image of the engine for the maker of the devices; vLLM is pinned where its release is the modelled one."""
    if not deployment.generates:
        return "nvcr.io/nvidia/tritonserver:latest"
    vendor = deployment.system.chip.vendor.lower().split(" ")[0]
    name = _IMAGES.get(vendor, _IMAGES["nvidia"])
    pinned = deployment.engine == "vllm" and vendor == "nvidia" and deployment.engine_version
    return f"{name}:v{deployment.engine_version}.0" if pinned else f"{name}:latest"


def _service(deployment: Deployment, pool: Pool) -> dict[str, Any]:
    selector = {"app.kubernetes.io/name": deployment.name, "app.kubernetes.io/component": pool.role}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": object_name(deployment, pool), "labels": dict(selector)},
        "spec": {"selector": dict(selector), "ports": [{"name": "http", "port": PORT, "targetPort": "http"}]},
    }
