"""Where an engine settles: step, rate and latencies of one replica with a given number of requests in service."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ridgeline.core import Breakdown, total
from ridgeline.core import model as formula
from ridgeline.serving.job import ServingJob
from ridgeline.serving.step import StepTime, step_time
from ridgeline.workload.engine_step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One replica in steady state with `running_count` requests in service.

    `requests_per_s` finish; a request's first token comes `ttft_s` after it was admitted (its share of a step's wait
    included, queueing not), further ones every `tpot_s`, the last at `e2e_s` = running / rate (Little's law).
    `mix` are the kinds of steps with the share of steps that are of the kind; `step_s` is the mean step.
    `prompt_s` is what one more prompt adds to the engine's work.
    """

    running_count: float
    requests_per_s: float
    ttft_s: float
    ttft_p95_s: float
    tpot_s: float
    e2e_s: float
    step_s: float
    prompt_s: float
    mix: tuple[tuple[float, StepTime], ...]

    @property
    def sigma(self) -> float:
        """Log standard deviation of the mean step; the kinds of steps err together."""
        weighted = [(share * time.time_s, time.sigma) for share, time in self.mix]
        whole = sum(value for value, _ in weighted)
        return sum(value * sigma for value, sigma in weighted) / whole if whole > 0 else 0.0

    @property
    def tree(self) -> Breakdown:
        """The mean step as a tree [s]."""
        if len(self.mix) == 1 and self.mix[0][0] == 1.0:
            return self.mix[0][1].tree
        names = ("steps without prompts", "steps with prompts")
        parts = [time.tree.scaled(share, name) for (share, time), name in zip(self.mix, names, strict=False)]
        return total("step", "s", parts)

    @property
    def flop_per_s(self) -> float:
        """Work of one device."""
        return sum(share * time.flop for share, time in self.mix) / self.step_s

    @property
    def moved_bytes_per_s(self) -> float:
        """Compulsory memory traffic of one device."""
        return sum(share * time.moved_bytes for share, time in self.mix) / self.step_s

    @property
    def device_busy_frac(self) -> float:
        """Share of the time that the device is busy rather than waiting for the host."""
        return min(1.0, sum(share * time.device_s for share, time in self.mix) / self.step_s)


def running_point(job: ServingJob, running_count: float) -> Point:
    """Continuous batching with `running_count` requests in service, each replaced as it ends.

    A request is `pieces` steps of prompt and out - 1 steps of one token. With N in service N / (pieces + out - 1)
    requests end and N pieces / (pieces + out - 1) pieces of prompts are read in a step. Below one piece a step, some
    steps carry one and the others none: their times are averaged, not their loads. The micro-batches of a pipeline
    are such steps each; a slow one does not hold up the others (true where prompts come in bursts; else optimistic).
    """
    if not job.generates:
        return batch_point(job, running_count)
    return _mixed(job, running_count) if job.engine.mixed_steps else _alternating(job, running_count)


@formula(id="mixed-steps", sources=("rl-derivation", "sarathi-serve-2024"))
def steady_pieces(running_count: float, prompt_pieces: float, output_tokens: float) -> float:
    """Pieces of prompts in a mean step when N requests run, each of so many pieces and output_tokens - 1 more steps.

    >>> steady_pieces(100, 1, 100)
    1.0
    """
    return running_count * prompt_pieces / (prompt_pieces + output_tokens - 1.0)


def _mixed(job: ServingJob, running_count: float) -> Point:
    output = job.load.output_tokens
    piece, pieces = _pieces(job, running_count)
    read = steady_pieces(running_count, pieces, output)
    stages, groups = float(job.plan.pipeline_count), float(job.plan.attention_data_count)
    share, fullest = fullest_group(read / stages, groups)
    loaded = Step(
        decode_count=max(0.0, running_count - max(read, 1.0)),
        context_tokens=job.context_tokens,
        prompt_count=read / share,
        prompt_tokens=piece,
        cached_tokens=(job.prompt_tokens - piece) / 2,
        finishing_count=read / share / pieces,
        encoder_tokens=job.encoder_tokens,
        fullest_prompt_count=fullest * stages if groups > 1 else 0.0,
    )
    reading = step_time(job, loaded)
    if share >= 1.0:
        mix: tuple[tuple[float, StepTime], ...] = ((1.0, reading),)
        prompt_s = pieces * _marginal_s(job, loaded, reading)
    else:
        plain = step_time(
            job, Step(decode_count=running_count, context_tokens=job.context_tokens, encoder_tokens=job.encoder_tokens)
        )
        mix = ((1.0 - share, plain), (share, reading))
        prompt_s = pieces * max(0.0, reading.time_s - plain.time_s)
    step_s = sum(part * time.time_s for part, time in mix)
    rate = running_count / ((pieces + output - 1.0) * step_s)
    return _finish(job, running_count, rate, pieces * reading.time_s, step_s, prompt_s, mix)


@formula(id="fullest-group", sources=("rl-derivation", "raab-steger-1998"))
def fullest_group(pieces: float, groups: float) -> tuple[float, float]:
    """Share of steps that carry prompts, and prompts in the fullest group of such a step, when `pieces` a step fall on
    `groups` data-parallel groups that wait for each other in every layer.

    With f = pieces / groups below one, a step is free of prompts with chance (1 - f)^groups; above, the fullest group
    holds about f + sqrt(2 f ln(groups)). One group: the pieces themselves.

    >>> fullest_group(0.25, 1.0), fullest_group(3.0, 1.0), fullest_group(1.0, 2.0)
    ((0.25, 1.0), (1.0, 3.0), (0.75, 1.0))
    """
    each = pieces / groups
    if each < 1.0:
        return 1.0 - (1.0 - each) ** groups, 1.0
    return 1.0, each + math.sqrt(2.0 * each * math.log(groups))


def _pieces(job: ServingJob, running_count: float) -> tuple[float, float]:
    """Tokens of one piece of a prompt and how many pieces it takes under the token budget."""
    room = max(1.0, job.max_batch_tokens - running_count / job.schedulers_count)
    pieces = max(1, math.ceil(job.prompt_tokens / room))
    return job.prompt_tokens / pieces, float(pieces)


def _marginal_s(job: ServingJob, loaded: Step, with_s: StepTime) -> float:
    """What one more prompt adds to a step that carries several."""
    lighter = Step(
        decode_count=loaded.decode_count,
        context_tokens=loaded.context_tokens,
        prompt_count=loaded.prompt_count / 2,
        prompt_tokens=loaded.prompt_tokens,
        cached_tokens=loaded.cached_tokens,
        finishing_count=loaded.finishing_count / 2,
        fullest_prompt_count=loaded.fullest_prompt_count / 2,
        encoder_tokens=loaded.encoder_tokens,
    )
    return max(0.0, with_s.time_s - step_time(job, lighter).time_s) / (loaded.prompt_count / 2)


def _alternating(job: ServingJob, running_count: float) -> Point:
    """Engines that stop decoding to read prompts: steps of prompts alone between steps of decoding alone."""
    output = job.load.output_tokens
    each_step = running_count / max(1.0, output)
    room = (
        max(1.0, math.floor(job.max_batch_tokens / job.prompt_tokens))
        if math.isfinite(job.max_batch_tokens)
        else math.inf
    )
    together = min(max(1.0, each_step), room)
    reading = step_time(job, prompt_step(job, together))
    decoding = step_time(
        job,
        Step(decode_count=running_count, context_tokens=job.context_tokens, encoder_tokens=job.encoder_tokens),
    )
    prompt_s = reading.time_s / together
    per_token_s = decoding.time_s + running_count / output * prompt_s
    rate = running_count / (output * per_token_s)
    reads = each_step / together
    mix = ((1.0 / (1.0 + reads), decoding), (reads / (1.0 + reads), reading))
    step_s = sum(part * time.time_s for part, time in mix)
    return _finish(job, running_count, rate, reading.time_s, step_s, prompt_s, mix, wait_s=decoding.time_s)


def _finish(
    job: ServingJob,
    running_count: float,
    rate: float,
    first_s: float,
    step_s: float,
    prompt_s: float,
    mix: tuple[tuple[float, StepTime], ...],
    wait_s: float | None = None,
) -> Point:
    """A request that arrives waits for the step under way, half of one on average, then for its own prompt's steps."""
    whole_s = running_count / rate
    waiting_s = 0.0 if running_count <= 1.0 else (step_s if wait_s is None else wait_s)
    further = max(0.0, job.load.output_tokens - 1.0)
    ttft_s = min(whole_s, first_s + waiting_s / 2)
    tpot_s = (whole_s - ttft_s) / further if further > 0 else 0.0
    return Point(
        running_count=running_count,
        requests_per_s=rate,
        ttft_s=ttft_s,
        ttft_p95_s=ttft_s + 0.45 * waiting_s,  # src: uniform-p95
        tpot_s=tpot_s,
        e2e_s=whole_s,
        step_s=step_s,
        prompt_s=prompt_s,
        mix=mix,
    )


def prompt_step(job: ServingJob, prompt_count: float) -> Step:
    """A step that reads whole prompts and nothing else."""
    return Step(
        prompt_count=prompt_count,
        prompt_tokens=job.prompt_tokens,
        finishing_count=prompt_count,
        encoder_tokens=job.encoder_tokens,
    )


def batch_point(job: ServingJob, batch_count: float) -> Point:
    """A batch of encoder inputs that starts and ends together: batch / step requests a second."""
    time = step_time(job, prompt_step(job, batch_count))
    return Point(
        running_count=batch_count,
        requests_per_s=batch_count / time.time_s,
        ttft_s=time.time_s,
        ttft_p95_s=time.time_s,
        tpot_s=0.0,
        e2e_s=time.time_s,
        step_s=time.time_s,
        prompt_s=time.time_s / batch_count,
        mix=((1.0, time),),
    )


def static_point(job: ServingJob, batch_count: float) -> Point:
    """A static batch: all prompts are read (in as many steps as the token budget asks), then all decode to the end.

    Decode steps are linear in the context, so that at the mean context stands for all. e2e = prompts + (out - 1) steps;
    rate = batch / e2e; no request leaves early.
    """
    if not job.generates:
        return batch_point(job, batch_count)
    together, passes = _passes(job, batch_count)
    reading = step_time(job, prompt_step(job, together))
    first_s = passes * reading.time_s
    further = max(0.0, job.load.output_tokens - 1.0)
    if further <= 0:
        mix: tuple[tuple[float, StepTime], ...] = ((1.0, reading),)
        decode_s = 0.0
    else:
        step = Step(decode_count=batch_count, context_tokens=job.context_tokens, encoder_tokens=job.encoder_tokens)
        decoding = step_time(job, step)
        decode_s = decoding.time_s
        mix = ((further / (further + passes), decoding), (passes / (further + passes), reading))
    whole_s = first_s + further * decode_s
    return Point(
        running_count=batch_count,
        requests_per_s=batch_count / whole_s,
        ttft_s=first_s,
        ttft_p95_s=first_s,
        tpot_s=decode_s,
        e2e_s=whole_s,
        step_s=whole_s / (further + passes),
        prompt_s=first_s / batch_count,
        mix=mix,
    )


def _passes(job: ServingJob, batch_count: float) -> tuple[float, float]:
    """Prompts read together and the passes that a batch of them takes."""
    passes = float(math.ceil(batch_count / _prompts_a_step(job)))
    passes = max(1.0, passes)
    return batch_count / passes, passes


def _prompts_a_step(job: ServingJob) -> float:
    """Whole prompts that the token budget lets into one step (at least one)."""
    if not math.isfinite(job.max_batch_tokens):
        return math.inf
    return max(1.0, float(math.floor(job.max_batch_tokens / job.prompt_tokens)))
