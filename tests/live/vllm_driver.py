"""Runs a real vLLM engine on a CPU over given requests and writes what it did; run by the interpreter that has vLLM.

    PYTHON vllm_driver.py JOB.json OUT.json

JOB: {"model": folder, "runs": [{"name", "requests": [[arrived_s, input_tokens, output_tokens], ...]}, ...]}.
The engine steps on a clock of its own: a step takes the processor seconds of its one thread, and requests arrive when
that clock reaches them. So other processes on the machine, which swing wall time fivefold, hardly move the result.
"""

import json
import os
import sys
import time
from typing import Any

os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="1",
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    DO_NOT_TRACK="1",
    VLLM_HOST_IP="127.0.0.1",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_CPU_NUM_OF_RESERVED_CPU="1",
    OMP_NUM_THREADS="1",
    MKL_NUM_THREADS="1",
)


class Run:
    """One list of requests on its way through the engine."""

    def __init__(self, engine: Any, name: str, requests: list[list[float]]) -> None:
        self.engine, self.name, self.requests = engine, name, requests
        self.order = sorted(range(len(requests)), key=lambda i: requests[i][0])
        self.first: dict[int, float] = {}
        self.last: dict[int, float] = {}
        self.counts = [0] * len(requests)
        self.gaps: list[float] = []
        self.steps: list[list[float]] = []

    def go(self) -> dict[str, Any]:
        clock, sent, done = 0.0, 0, 0
        while done < len(self.requests):
            if not self.engine.has_unfinished_requests():
                clock = max(clock, self.requests[self.order[sent]][0])
            began = time.process_time()
            while sent < len(self.order) and self.requests[self.order[sent]][0] <= clock:
                self.send(self.order[sent])
                sent += 1
            outputs = self.engine.step()
            took = time.process_time() - began
            clock += took
            self.steps.append([clock, took, len(outputs)])
            done += sum(self.note(item, clock) for item in outputs)
        times = [[self.first[i], self.last[i], self.counts[i]] for i in range(len(self.requests))]
        return {"name": self.name, "times": times, "gaps": self.gaps, "steps": self.steps}

    def send(self, index: int) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        _, prompt, output = self.requests[index]
        wanted = SamplingParams(
            max_tokens=int(output),
            min_tokens=int(output),
            ignore_eos=True,
            temperature=0.0,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        # Beginnings differ, so that nothing is taken from a cache.
        ids = [3 + (31 * index + 7 * place) % 8000 for place in range(int(prompt))]
        self.engine.add_request(f"{self.name}-{index}", {"prompt_token_ids": ids}, wanted)

    def note(self, item: Any, clock: float) -> bool:
        index, made = int(item.request_id.split("-")[1]), len(item.outputs[0].token_ids)
        if made:
            if index in self.first:
                self.gaps.append(clock - self.last[index])
            self.first.setdefault(index, clock)
            self.last[index] = clock
            self.counts[index] += made
        return bool(item.finished)


def main(job_file: str, out_file: str) -> None:
    import torch
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    torch.set_num_threads(1)
    with open(job_file, encoding="utf-8") as stream:
        job = json.load(stream)
    arguments = EngineArgs(
        model=job["model"],
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        max_model_len=1024,
        max_num_seqs=job["max_batch_count"],
        max_num_batched_tokens=job["max_step_tokens"],
        load_format="dummy",
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    engine = LLMEngine.from_engine_args(arguments)
    found = [Run(engine, item["name"], item["requests"]).go() for item in job["runs"]]
    with open(out_file, "w", encoding="utf-8") as stream:
        json.dump(found, stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
