"""Operations of engine steps told apart by what they depend on, and timed many at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.device import STREAM, attention, elementwise, kernels_count, op_time
from ridgeline.device.optime import attention_law, decode_attention_law, gemm_law, gemm_times, product_of, scores_of
from ridgeline.device.rates import find_law, is_gpu, rates_of
from ridgeline.device.settled import sustained_clock_frac, unthrottled
from ridgeline.network import collective_time
from ridgeline.serving.job import ServingJob
from ridgeline.serving.kernels import engine_calibration, expert_kernels, kernel_context
from ridgeline.serving.work import op_bytes, op_flop
from ridgeline.simulation.loop_layout import CHANNELS
from ridgeline.specs import Calibration
from ridgeline.workload.engine_step import Step
from ridgeline.workload.inference import inference_ops
from ridgeline.workload.ops import (
    AttentionDecode,
    AttentionPrefill,
    Collective,
    ComputeOp,
    Elementwise,
    Gemm,
    Op,
)

Array = NDArray[np.float64]

PROBE = 64.0  # src: rl-numerics


class Bench:
    """Operations of steps of one job in four families: those that depend on the tokens of a step, on the rows that end
    in a token (head), on decoding sequences and their context, and on prompts and theirs."""

    def __init__(self, job: ServingJob) -> None:
        self.job = job
        self.encoder_tokens = job.encoder_tokens
        self.groups = float(job.plan.attention_data_count)
        self.calibration: Calibration = unthrottled(engine_calibration(job.calibration, expert_kernels(job.engine)))
        self._channels: dict[Op, Array] = {}
        self._kept: dict[str, float] = {}
        self._known: dict[Step, dict[Op, float]] = {}
        decode = self._ops(self.decoding(PROBE, PROBE))
        # As many prompts of one token: the same sums of tokens, to the bit.
        prompt = self._ops(self.reading(PROBE, 1.0, 0.0))
        ending = self._ops(replace(self.reading(PROBE, 1.0, 0.0), finishing_count=PROBE))
        tokens = {op for op in decode if op in prompt}
        head = {op for op in ending if op not in prompt}
        self._keys = {
            "tokens": {_key(op) for op in tokens},
            "head": {_key(op) for op in head},
            "decode": {_key(op) for op in decode if op not in tokens and op not in head},
            "prompt": {_key(op) for op in prompt if op not in tokens},
        }
        for family in ("decode", "prompt"):
            attends = {_key(op) for op in (*decode, *prompt) if self._attends(op)} & self._keys[family]
            self._keys[f"{family} attention"] = attends
            self._keys[f"{family} rest"] = self._keys[family] - attends

    def decoding(self, count: float, context: float) -> Step:
        """A micro-batch of sequences alone."""
        return Step(decode_count=float(count), context_tokens=float(context), encoder_tokens=self.encoder_tokens)

    def reading(self, prompts: float, tokens: float, cached: float) -> Step:
        """A micro-batch of prompts alone, none of them at its end."""
        return Step(
            prompt_count=float(prompts),
            prompt_tokens=float(tokens),
            cached_tokens=float(cached),
            encoder_tokens=self.encoder_tokens,
        )

    def table(self, family: str, steps: Sequence[Step]) -> Array:
        """Sum over the operations of one family for each step [step, channel]."""
        return self._sums([self._family(family, step) for step in steps])

    def decode_table(self, counts: Array, contexts: Array) -> Array:
        """Channels of what decoding sequences ask for [sequences, context, channel]."""
        size = (len(counts), len(contexts), len(CHANNELS))
        ones = [self._family("decode attention", self.decoding(self.groups, context)) for context in contexts]
        found = self._grid(ones, counts / self.groups, np.ones(len(counts)))
        if not self._keys["decode rest"]:
            return found
        ends = [self._family("decode rest", self.decoding(PROBE, context)) for context in (contexts[0], contexts[-1])]
        told = contexts[:1] if ends[0] == ends[1] else contexts  # states of recurrences do not grow with the context
        rest = self.table("decode rest", [self.decoding(b, s) for b in counts for s in told])
        return found + np.broadcast_to(rest.reshape(len(counts), len(told), len(CHANNELS)), size)

    def prompt_table(self, prompts: Array, lengths: Array, cached: Array) -> Array:
        """Channels of what prompts ask for [prompts, new tokens, cached tokens, channel]."""
        size = (len(prompts), len(lengths), len(cached), len(CHANNELS))
        ones = [self._family("prompt attention", self.reading(self.groups, q, c)) for q in lengths for c in cached]
        # Fewer than one prompt a group is one prompt in some of the steps.
        each = prompts / self.groups
        found = self._grid(ones, np.maximum(1.0, each), np.minimum(1.0, each)).reshape(size)
        if not self._keys["prompt rest"]:
            return found
        ends = [self._family("prompt rest", self.reading(1.0, PROBE, c)) for c in (cached[0], cached[-1])]
        told = cached[:1] if ends[0] == ends[1] else cached
        steps = [self.reading(p, q, c) for p in prompts for q in lengths for c in told]
        rest = self.table("prompt rest", steps)
        return found + np.broadcast_to(rest.reshape(*size[:2], len(told), len(CHANNELS)), size)

    def _attends(self, op: Op) -> bool:
        """Whether `op` is attention whose time for any number of sequences one call of its law tells."""
        return isinstance(op, (AttentionDecode, AttentionPrefill)) and self._shape(op) is not None

    def _grid(self, ones: Sequence[dict[Op, float]], batches: Array, shares: Array) -> Array:
        """Channels [batch, step, channel] of steps of attention on one sequence (`ones`), made for `batches` of them.

        Work and bytes are those of one, times the batch; `shares`: how many of such steps there are.
        """
        found = np.zeros((len(batches), len(ones), len(CHANNELS)))
        alike: dict[Any, list[tuple[int, Any, float]]] = {}
        for index, ops in enumerate(ones):
            for op, count in ops.items():
                alike.setdefault(self._shape(op), []).append((index, op, count))
        for shape, same in alike.items():
            time_s, bound = self._together(shape, [op for _, op, _ in same], batches[:, None])
            for column, (index, op, count) in enumerate(same):
                figures = self._figures(op, 1.0, True, 1.0)
                weight = count * shares
                moved = weight * batches
                figures = np.outer(moved, figures)
                figures[:, 0] = weight * time_s[:, column]
                figures[:, 3] = figures[:, 0] * bound[:, column]  # src: rl-numerics
                figures[:, 4] = weight  # src: rl-numerics
                found[:, index] += figures
        return found

    def _family(self, family: str, step: Step) -> dict[Op, float]:
        keys = self._keys[family]
        return {op: count for op, count in self._ops(step).items() if _key(op) in keys}

    def _sums(self, rows: Sequence[dict[Op, float]]) -> Array:
        self._measure({op for row in rows for op in row})
        none = np.zeros(len(CHANNELS))
        return np.array([sum((n * self._channels[op] for op, n in row.items()), none) for row in rows])

    def _ops(self, step: Step) -> dict[Op, float]:
        if step not in self._known:
            job = self.job
            ops = inference_ops(job.model, job.plan, job.engine, step)
            self._known[step] = {item.op: item.count for item in ops}
        return self._known[step]

    def _measure(self, ops: Iterable[Op]) -> None:
        """Find the channels of operations that are new; those of one shape in one go."""
        alike: dict[Any, list[Any]] = {}
        for op in ops:
            if op in self._channels:
                continue
            if isinstance(op, Collective):
                time_s = collective_time(op.kind, op.message_bytes, op.group, self.job.system, self.calibration).time_s
                self._channels[op] = np.array([time_s, *[0.0] * (len(CHANNELS) - 1)])
                continue
            shape = self._shape(op)
            if shape is not None:
                alike.setdefault(shape, []).append(op)
                continue
            context = kernel_context(self.job.engine, self.calibration, op)
            time = op_time(op, self.job.system.chip, self.calibration, context)
            self._channels[op] = self._figures(op, time.time_s, time.bound == "compute", kernels_count(op, context))
        for shape, same in alike.items():
            times, bound = self._together(shape, same)
            for i, op in enumerate(same):
                launches = op.launches_count if isinstance(op, Elementwise) else 1.0
                self._channels[op] = self._figures(op, float(times[i]), bool(bound[i]), launches)

    def _shape(self, op: Op) -> ComputeOp | None:
        """What operations that one call of a kernel law can time have in common (None: timed one by one)."""
        if isinstance(op, Gemm):
            return None if 0 < op.m <= self.job.engine.stream_rows_count else replace(op, m=1.0)
        if isinstance(op, Elementwise):
            return replace(op, bytes=1.0) if op.flop == 0 else None
        if isinstance(op, AttentionDecode):
            return replace(op, batch_count=1.0, context_tokens=1.0)
        if isinstance(op, AttentionPrefill) and op.fused and self.job.engine.attention_family != "unfused":
            return replace(op, batch_count=1.0, query_tokens=1.0, key_tokens=1.0)
        return None

    def _together(self, shape: ComputeOp, same: list[Any], batches: Any = None) -> tuple[Array, Any]:
        """Times of operations of one shape, and whether the matrix units bound them; attention on `batches` of
        sequences instead of its own number [batch, operation]."""
        if isinstance(shape, Gemm):
            law, _ = gemm_law(self.calibration, self.job.system.chip, shape.math_precision)
            product = product_of(shape)._replace(m=np.array([op.m for op in same]))
            times: Any = gemm_times(product, law, self.job.system.chip, shape.math_precision, STREAM)
        elif isinstance(shape, Elementwise):
            times = self._stream_times(shape, np.array([op.bytes for op in same]))
        else:
            batch = np.array([op.batch_count for op in same]) if batches is None else batches
            times = self._attention_times(shape, same, batch)
        roofs = (times.time_s, times.compute_s, times.memory_s, times.launch_s)
        size = np.broadcast_shapes(*(np.shape(x) for x in roofs), (len(same),))
        time_s, compute_s, memory_s, launch_s = (np.broadcast_to(np.asarray(x, float), size) for x in roofs)
        return time_s, (compute_s >= memory_s) & (compute_s >= launch_s)

    def _stream_times(self, shape: Elementwise, moved_bytes: Array) -> attention.AttentionTime:
        """As `op_time` times one of them (none of which computes)."""
        chip = self.job.system.chip
        context = kernel_context(self.job.engine, self.calibration, shape)
        keys = (f"elementwise.{shape.kind}", "elementwise")
        _, law = find_law(self.calibration, chip, keys, "a law for element-wise work")
        stream = elementwise.Stream(
            chip.need("memory_bandwidth_bytes_per_s", "time of element-wise work"),
            (chip.l2_bytes or 0.0) if context.resident_activations else 0.0,
            (chip.unit_count or 0.0) * (chip.clock_hz or 0.0) if is_gpu(chip) else 0.0,
        )
        figures = elementwise.elementwise_law(law, shape.kind, context.fused)
        moved = elementwise.elementwise_s(moved_bytes, shape.launches_count, figures, stream)
        time_s = np.maximum(moved.time_s, moved.launch_s) + shape.chain_s
        return attention.AttentionTime(time_s, moved.unit_s, moved.memory_s, moved.launch_s)

    def _attention_times(self, shape: Any, same: list[Any], batch: Any) -> Any:
        """As `op_time` times one of them."""
        chip = self.job.system.chip
        context = kernel_context(self.job.engine, self.calibration, shape)
        if isinstance(shape, AttentionPrefill):
            _, law = attention_law(self.calibration, chip, "prefill", context.attention, shape.precision)
            queries, keys = (np.array([getattr(op, name) for op in same]) for name in ("query_tokens", "key_tokens"))
            scores = scores_of(shape)._replace(batch=batch, queries=queries, keys=keys)
            if "score_cycles" in law.parameters:
                rates = rates_of(chip, shape.precision, "time of attention", law.parameters)
                return attention.prefill_s(scores, attention.prefill_law(law), rates)
            flop, moved = attention.attention_flop(scores), attention.attention_bytes(scores)
        else:
            law = decode_attention_law(shape, chip, self.calibration, context)
            keys = np.array([op.context_tokens for op in same])
            moved = batch * np.array([op.bytes / op.batch_count for op in same])
            scores = attention.Scores(
                batch, 1.0, keys, shape.heads_count, shape.kv_heads_count, shape.key_dim_count, shape.value_dim_count
            )
            if "feed_bytes_per_cycle" in law.parameters:
                rates = rates_of(chip, shape.precision, "time of decode attention", law.parameters)
                resident = not np.isinf(context.weight_copies_count)
                time = attention.decode_s(scores, moved, attention.decode_law(law), rates, resident)
                return time._replace(memory_s=np.maximum(time.memory_s, time.feed_s))
            flop = attention.attention_flop(scores._replace(causal=False))
        bandwidth = chip.need("memory_bandwidth_bytes_per_s", "time of attention")
        return attention.flat_attention_s(flop, moved, attention.flat_law(law), chip.peak(shape.precision), bandwidth)

    def _figures(self, op: ComputeOp, time_s: float, bound: bool, launches: float) -> Array:
        """Channels of one operation (see `serving.heat` for the middle ones)."""
        chip, flop = self.job.system.chip, op_flop(op)
        busy_s = kept_s = bound_s = 0.0
        if not isinstance(op, Elementwise):
            attends = isinstance(op, (AttentionDecode, AttentionPrefill))
            precision = op.precision if attends else op.math_precision  # type: ignore[union-attr]
            busy_s = flop / chip.peak(precision)
            if precision not in self._kept:
                self._kept[precision] = sustained_clock_frac(self.job.calibration, chip, precision)
            kept_s = busy_s * self._kept[precision]
            bound_s = time_s if bound else 0.0
        return np.array([time_s, busy_s, kept_s, bound_s, launches, flop, op_bytes(op)])


def _key(op: Op) -> tuple[object, ...]:
    """What stays the same of an operation when the step changes."""
    shape = (op.n, op.k) if isinstance(op, Gemm) else ()
    return (type(op).__name__, op.name, *shape)
