"""What the writers of launch files need to know of a sized system, free of how it was found."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ridgeline.scenario.sizing import SizingAnswer
from ridgeline.search.sizing_result import Pool, Sized
from ridgeline.specs import Load, System, Transformer
from ridgeline.units import show


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A sized system: the model by the name that engines load, its pools, machine, engine and load.

    `name`: lower-case letters, digits and hyphens, for Kubernetes. `engine`, `engine_version`: what was modelled.
    `quantised`: the checkpoint itself is stored in a narrow format, which engines read from it.
    """

    name: str
    model_name: str
    model: Transformer
    system: System
    engine: str
    engine_version: str
    memory_frac: float
    sized: Sized
    load: Load

    @property
    def pools(self) -> tuple[Pool, ...]:
        """One pool, or prefill and decode."""
        return self.sized.pools

    @property
    def generates(self) -> bool:
        """Whether the model makes tokens (encoders do not)."""
        return self.model.main.role == "decoder" and self.load.output_tokens > 0

    @property
    def quantised(self) -> bool:
        """Whether the checkpoint is stored in a narrow format."""
        return bool(self.model.precisions)

    @property
    def context_tokens(self) -> int:
        """Longest request to be ready for: the asked lengths, within what the model can."""
        asked = math.ceil(self.load.input_tokens + self.load.output_tokens)
        most = self.model.max_context_tokens
        return asked if most is None else min(asked, most)

    def summary(self) -> list[str]:
        """What was promised, in sentences."""
        sized, latency = self.sized, self.sized.latencies
        lines = [
            f"{self.model_name} on {sized.devices_count:,} x {self.system.chip.name or self.system.chip.id}"
            f" ({sized.nodes_count:,} nodes of {self.system.id}), {sized.mode}: {sized.layout}",
            f"requests of {self.load.input_tokens:,.0f} tokens in, {self.load.output_tokens:,.0f} out:"
            f" {sized.requests_per_s.best:.4g} requests/s, {sized.output_tokens_per_s.best:,.0f} output tokens/s",
            f"predicted: first token p95 {show(latency.ttft_p95_s, 'time')}, per token p95"
            f" {show(latency.tpot_p95_s, 'time')}, whole request p95 {show(latency.e2e_p95_s, 'time')}",
            f"modelled on {self.engine} {self.engine_version}; other engines keep the layout, not the figures",
        ]
        return lines


def deployment_of(answer: SizingAnswer, sized: Sized | None = None) -> Deployment:
    """The best way of `answer` (or `sized`, one of its ways) with the names that launch files use."""
    chosen = sized if sized is not None else answer.sizing.options[0]
    scenario, model = answer.scenario, answer.scenario.model
    engine = scenario.catalog.engine(chosen.engine)
    serve = scenario.file.workload.serve
    if serve is None:
        raise ValueError("a sizing answer without a serving workload")
    return Deployment(
        name=kubernetes_name(model.id),
        model_name=_loaded_name(answer),
        model=model,
        system=chosen.system,
        engine=engine.id,
        engine_version=engine.version,
        memory_frac=engine.pool_frac,
        sized=chosen,
        load=Load(
            input_tokens=float(serve.input),
            output_tokens=float(serve.output),
            rate_per_s=serve.rate,
            concurrency_count=None if serve.concurrency is None else float(serve.concurrency),
            ttft_p95_s=serve.ttft_p95,
            tpot_p95_s=serve.tpot_p95,
            e2e_p95_s=serve.latency_p95,
        ),
    )


def _loaded_name(answer: SizingAnswer) -> str:
    """The name under which engines load the model: that of its repository, else what the scenario says."""
    scenario = answer.scenario
    asked = scenario.file.workload.model
    if asked.endswith(".json"):
        return asked.rsplit("/", 1)[0] if "/" in asked else "."
    names = [alias for alias, target in scenario.catalog.aliases("models").items() if target == scenario.model.id]
    return next((name for name in (asked, *names) if "/" in name), scenario.model.id)


def kubernetes_name(text: str) -> str:
    """`text` as a name that Kubernetes takes: lower-case letters, digits and hyphens, at most 40, a letter first.

    >>> kubernetes_name("Llama_3.1-8B"), kubernetes_name("4x")
    ('llama-3-1-8b', 'm-4x')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "model"
    plain = plain if plain[0].isalpha() else f"m-{plain}"
    return plain[:40].strip("-")
