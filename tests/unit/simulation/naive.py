"""A plain simulator of chunked batching, step by step, which shares nothing with the loop but the times of steps."""

from __future__ import annotations

import math

from ridgeline.des.compiled import working
from ridgeline.simulation import loop_law as law
from ridgeline.simulation.engine import Prepared


class StepTimes:
    """Times of single steps from the tables of a prepared simulation."""

    def __init__(self, prepared: Prepared) -> None:
        floats, wholes = law.place((prepared.parts[0].table,), 1, 0, 0)
        self.x, self.n = working(floats), working(wholes, "int")

    def __call__(self, decoding: int, context: float, prompts: int, tokens: float, pairs: float) -> float:
        law.step(self.x, self.n, 0, float(decoding), context, float(prompts), float(tokens), float(pairs))
        return self.x[self.n[law.FIGURES] + law.STEP_S]


class Sequence:
    def __init__(self, index: int, given: int, asked: int) -> None:
        self.index, self.given, self.asked = index, given, asked
        self.made = self.read = self.cached = self.blocks = 0
        self.need = given


def simulate(prepared: Prepared) -> tuple[dict[int, float], dict[int, float], list[int]]:
    """First tokens, ends and preemptions, with blocks counted sequence by sequence at every step."""
    part, requests = prepared.parts[0], prepared.requests
    limits, step_s = part.limits, StepTimes(prepared)
    block, free = limits.block_tokens, limits.blocks_count
    waiting: list[Sequence] = []
    running: list[Sequence] = []
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    preempted = [0] * requests.count
    arrived, now = 0, 0.0

    def growing() -> list[Sequence]:
        return [s for s in running if s.read >= s.need and s.cached % block == 0]

    while len(last) < requests.count:
        while arrived < requests.count and requests.arrived_s[arrived] <= now:
            waiting.append(Sequence(arrived, int(requests.input_tokens[arrived]), int(requests.output_tokens[arrived])))
            arrived += 1
        if not waiting and not running:
            now = float(requests.arrived_s[arrived])
            continue
        yielded = False
        while len(growing()) > free:
            victim = running.pop()
            free += victim.blocks
            victim.blocks = victim.read = victim.cached = 0
            victim.need = victim.given + victim.made
            preempted[victim.index] += 1
            waiting.insert(0, victim)
            yielded = True
        decoding = [s for s in running if s.read >= s.need]
        spare, budget = free - len(growing()), limits.step_tokens - len(decoding)
        reading: list[tuple[Sequence, int]] = []
        for s in running:
            if s.read < s.need and budget > 0:
                reading.append((s, min(budget, s.need - s.read)))
                budget -= reading[-1][1]
        cut = any(s.read + chunk < s.need for s, chunk in reading) or any(
            s.read < s.need and s not in [r for r, _ in reading] for s in running
        )
        while waiting and budget > 0 and not yielded and not cut and len(running) < limits.sequences_count:
            s = waiting[0]
            wanted = math.ceil(s.need / block)
            if wanted > spare:
                break
            waiting.pop(0)
            running.append(s)
            s.blocks, free, spare = wanted, free - wanted, spare - wanted
            chunk = min(budget, s.need)
            reading.append((s, chunk))
            budget -= chunk
            cut = chunk < s.need
        context = sum(s.cached for s in decoding) / len(decoding) if decoding else 0.0
        pairs = sum(chunk * (s.read + chunk / 2) for s, chunk in reading)
        now += step_s(len(decoding), context, len(reading), sum(chunk for _, chunk in reading), pairs)
        for s in decoding:
            if s.cached % block == 0:
                s.blocks, free = s.blocks + 1, free - 1
            s.cached += 1
            s.made += 1
        for s, chunk in reading:
            s.read += chunk
            if s.read >= s.need:
                s.cached = s.need
                s.made += 1
                first.setdefault(s.index, now)
        for s in [s for s in running if s.made >= s.asked]:
            running.remove(s)
            free += s.blocks
            last[s.index] = now
    return first, last, preempted
