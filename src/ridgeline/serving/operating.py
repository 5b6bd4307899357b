"""Where an engine settles: step, rate and latencies of one replica with a given number of requests in service."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ridgeline.core import Breakdown, total
from ridgeline.core import model as formula
from ridgeline.serving.job import ServingJob
from ridgeline.serving.step import StepTime, micro_batches_count, step_time
from ridgeline.workload.engine_step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One replica in steady state with `running_count` requests in service.

    `requests_per_s` finish; a request's first token comes `ttft_s` after it was admitted (its share of a step's wait
    included, queueing not), further ones every `tpot_s`, the last at `e2e_s` = running / rate (Little's law).
    `mix` are the kinds of steps with the share of steps that are of the kind; `step_s` is the mean step.
    """

    running_count: float
    requests_per_s: float
    ttft_s: float
    ttft_p95_s: float
    tpot_s: float
    e2e_s: float
    step_s: float
    mix: tuple[tuple[float, StepTime], ...]

    @property
    def sigma(self) -> float:
        """Log standard deviation of the mean step; the kinds of steps err together."""
        weighted = [(share * time.time_s, time.sigma) for share, time in self.mix]
        whole = sum(value for value, _ in weighted)
        return sum(value * sigma for value, sigma in weighted) / whole if whole > 0 else 0.0

    @property
    def median_gap_s(self) -> float:
        """Median time between two tokens of a request: the step at the middle of all, ordered by their time."""
        reached = 0.0
        for share, time in sorted(self.mix, key=lambda part: part[1].time_s):
            reached += share
            if reached >= 0.5:  # src: rl-derivation
                return time.time_s
        return self.step_s

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
    requests end and N pieces / (pieces + out - 1) pieces of prompts are read in a step, a Poisson number: steps without
    prompts and steps with the mean number of those that have any are averaged, not their loads. The micro-batches of
    a pipeline are such steps each; a slow one does not hold up the others (true where prompts come in bursts; else
    optimistic).
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
    share, together, fullest = prompts_in_a_step(read / stages, groups)
    loaded = Step(
        decode_count=job.load.beams_count * max(0.0, running_count - together * stages),
        context_tokens=job.context_tokens,
        repeated_frac=shared_by_beams_frac(job),
        prompt_count=together * stages,
        prompt_tokens=piece,
        cached_tokens=(job.prompt_tokens - piece) / 2,
        finishing_count=together * stages / pieces,
        encoder_tokens=job.encoder_tokens,
        fullest_prompt_count=fullest * stages if groups > 1 else 0.0,
    )
    reading = step_time(job, loaded)
    plain = step_time(job, decode_step(job, running_count))
    mix = ((1.0 - share, plain), (share, reading))
    prompt_s = pieces * max(0.0, reading.time_s - plain.time_s) / together
    step_s = sum(part * time.time_s for part, time in mix)
    rate = running_count / ((pieces + output - 1.0) * step_s)
    met_s = sum(part * time.time_s**2 for part, time in mix) / step_s if running_count > 1.0 else 0.0
    # A prompt shares its step with those that arrived while the step before ran.
    beside = rate * met_s / job.schedulers_count
    own_s = max(0.0, reading.time_s + (1.0 + beside - together) * prompt_s / pieces)
    spread_s = math.hypot(0.45 * met_s, 1.645 * math.sqrt(beside) * prompt_s)  # src: uniform-p95, normal-quantiles
    return _point(job, running_count, rate, _First(pieces * own_s + met_s / 2, spread_s), mix)


@formula(id="prompts-in-a-step", sources=("rl-derivation", "raab-steger-1998"))
def prompts_in_a_step(pieces: float, groups: float) -> tuple[float, float, float]:
    """Share of steps that carry prompts, and in such a step the mean number of pieces and those of the fullest group.

    Ends and arrivals are independent, so the number in a step is Poisson with mean `pieces`: a step is free of prompts
    with chance exp(-pieces), and one that is not holds pieces / (1 - exp(-pieces)) on average. Data-parallel groups
    wait for each other in every layer: the fullest of G holds at least one, about f + sqrt(2 f ln G) with
    f = pieces / G when f is above one.

    >>> share, mean, fullest = prompts_in_a_step(0.5, 1.0)
    >>> round(share, 3), round(mean, 3), fullest == mean
    (0.393, 1.271, True)
    """
    share = -math.expm1(-pieces)
    mean = pieces / share
    if groups <= 1.0:
        return share, mean, mean
    each = pieces / groups
    return share, mean, max(1.0, mean / groups, each + math.sqrt(2.0 * each * math.log(groups)) if each > 1.0 else 0.0)


def _pieces(job: ServingJob, running_count: float) -> tuple[float, float]:
    """Tokens of one piece of a prompt and how many pieces it takes under the token budget."""
    room = max(1.0, job.max_batch_tokens - running_count / job.schedulers_count)
    pieces = max(1, math.ceil(job.prompt_tokens / room))
    return job.prompt_tokens / pieces, float(pieces)


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
        decode_step(job, running_count),
    )
    prompt_s = reading.time_s / together
    per_token_s = decoding.time_s + running_count / output * prompt_s
    rate = running_count / (output * per_token_s)
    reads = each_step / together
    mix = ((1.0 / (1.0 + reads), decoding), (reads / (1.0 + reads), reading))
    waiting_s = decoding.time_s if running_count > 1.0 else 0.0
    first = _First(reading.time_s + waiting_s / 2, 0.45 * waiting_s)  # src: uniform-p95
    return _point(job, running_count, rate, first, mix)


@dataclass(frozen=True, slots=True)
class _First:
    """Mean time to the first token, from admission, and how far its 95th percentile is above."""

    mean_s: float
    spread_s: float


def _point(
    job: ServingJob, running_count: float, rate: float, first: _First, mix: tuple[tuple[float, StepTime], ...]
) -> Point:
    """The point with `running_count` in service that ends `rate` requests a second: e2e from Little's law, the time of
    a further token from what is left after the first."""
    whole_s = running_count / rate
    further = max(0.0, job.load.output_tokens - 1.0)
    ttft_s = min(whole_s, first.mean_s)
    return Point(
        running_count=running_count,
        requests_per_s=rate,
        ttft_s=ttft_s,
        ttft_p95_s=ttft_s + first.spread_s,
        tpot_s=(whole_s - ttft_s) / further if further > 0 else 0.0,
        e2e_s=whole_s,
        step_s=sum(share * time.time_s for share, time in mix),
        mix=mix,
    )


def decode_step(job: ServingJob, requests_count: float) -> Step:
    """A step in which every request advances by a token (each of its beams, with beam search)."""
    if job.engine.padded_batch and math.isfinite(job.max_batch_count):
        requests_count = max(requests_count, job.max_batch_count * job.schedulers_count)
    return Step(
        decode_count=job.load.beams_count * requests_count,
        context_tokens=job.context_tokens,
        encoder_tokens=job.encoder_tokens,
        repeated_frac=shared_by_beams_frac(job),
    )


def shared_by_beams_frac(job: ServingJob) -> float:
    """Share of the cached tokens of a beam that another beam of its request reads at the same time: all beams read the
    prompt, which is kept once, and each what it has written itself."""
    beams = job.load.beams_count
    if beams <= 1.0:
        return 0.0
    return (1.0 - 1.0 / beams) * min(1.0, job.load.input_tokens / job.context_tokens)


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
        mix=((1.0, time),),
    )


def static_point(job: ServingJob, batch_count: float) -> Point:
    """A static batch: all prompts are read (in as many steps as the token budget asks), then all decode to the end.

    Prompts above the budget are cut where the engine cuts prompts. Steps of one micro-batch follow each other through
    the stages of a pipeline: n of them take (n + stages - 1) / stages times the way of one.

    Decode steps are linear in the context, so that at the mean context stands for all. e2e = prompts + (out - 1) steps;
    rate = batch / e2e; no request leaves early.
    """
    if not job.generates:
        return batch_point(job, batch_count)
    reading, passes, first_s = _reading(job, batch_count)
    further = max(0.0, job.load.output_tokens - 1.0)
    if further <= 0:
        mix: tuple[tuple[float, StepTime], ...] = ((1.0, reading),)
        decode_s = 0.0
    else:
        decoding = step_time(job, decode_step(job, batch_count))
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
        mix=mix,
    )


def _reading(job: ServingJob, batch_count: float) -> tuple[StepTime, float, float]:
    """How the prompts of a static batch are read: one step, how many of them, and the time of all."""
    if job.engine.mixed_steps and job.prompt_tokens > job.max_batch_tokens:
        pieces = math.ceil(job.prompt_tokens / job.max_batch_tokens)
        passes = batch_count * pieces
        piece = job.prompt_tokens / pieces
        step = Step(
            prompt_count=1.0,
            prompt_tokens=piece,
            cached_tokens=(job.prompt_tokens - piece) / 2,
            finishing_count=1.0 / pieces,
            encoder_tokens=job.encoder_tokens,
        )
    else:
        together, passes = _passes(job, batch_count)
        step = prompt_step(job, together)
    reading = step_time(job, step)
    if micro_batches_count(job, step) > 1.0:
        return reading, passes, passes * reading.time_s
    stages = float(job.plan.pipeline_count)
    return reading, passes, (passes + stages - 1.0) / stages * reading.time_s


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
