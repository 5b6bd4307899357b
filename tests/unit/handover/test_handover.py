"""Launch files: read back by the tools' own parsers and schemas where they are installed, and written safely."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest
import yaml

from ridgeline.catalog import load_catalog
from ridgeline.cli import run
from ridgeline.errors import ScenarioError, UnknownName
from ridgeline.handover import Deployment, deployment_of, handover_files, write_handover
from ridgeline.handover.commands import vllm_command
from ridgeline.handover.kubernetes import manifests
from ridgeline.handover.labels import PRODUCTS, node_labels
from ridgeline.handover.options import KNOWN, checked
from ridgeline.handover.triton import queue_delay_s, triton_files
from ridgeline.scenario import load_scenario
from ridgeline.scenario.sizing import size

LLM = {
    "workload": {
        "model": "llama-3.1-8b",
        "serve": {"input": 1024, "output": 256, "rate": "20 1/s", "ttft_p95": "1 s", "tpot_p95": "25 ms"},
    },
    "candidates": [{"system": "dgx-h100", "devices": 16}],
    "objective": "devices",
}
BERT = {
    "workload": {
        "model": "bert-base-uncased",
        "serve": {"input": 128, "output": 0, "rate": "2000 1/s", "latency_p95": "50 ms", "precision": "fp16"},
    },
    "candidates": [{"system": "t4-8", "devices": 8}],
    "objective": "devices",
}


@lru_cache(maxsize=1)
def catalog():
    return load_catalog(plugins=False)


def deployed(scenario: dict, mode: str = "", **serve: object) -> Deployment:
    work = scenario["workload"]
    load = {**work["serve"], "sizing": {"simulate": False}, **serve}
    asked = {**scenario, "workload": {**work, "serve": load}}
    answer = size(load_scenario(asked, catalog=catalog()))
    return deployment_of(answer, answer.sizing.best(mode) if mode else None)


@lru_cache(maxsize=8)
def llm(mode: str) -> Deployment:
    return deployed(LLM, mode)


def words_of(text: str) -> list[str]:
    """The one command of a script, as a shell splits it."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#") and line != "set -eu"]
    return shlex.split("\n".join(lines).replace("\\\n", " "))


def options_of(words: list[str]) -> dict[str, str]:
    """Options and values, read as argparse reads them."""
    parser = argparse.ArgumentParser(exit_on_error=True)
    for index, word in enumerate(words):
        if word.startswith("--"):
            takes = index + 1 < len(words) and not words[index + 1].startswith("--")
            parser.add_argument(word, action="store" if takes else "store_true")
    first = next(index for index, word in enumerate(words) if word.startswith("--"))
    return vars(parser.parse_args(words[first:]))


@pytest.mark.parametrize("mode", ["aggregated", "disaggregated"])
def test_command_lines_say_what_was_sized(mode: str) -> None:
    deployment = llm(mode)
    files = handover_files(deployment)
    for pool in deployment.pools:
        role = "" if pool.role == "both" else f"-{pool.role}"
        vllm = options_of(words_of(files[f"vllm{role}.sh"]))
        assert int(vllm["tensor_parallel_size"]) == pool.plan.tensor_count
        assert int(vllm["max_num_seqs"]) == pool.batch_limit_count
        assert int(vllm["max_num_batched_tokens"]) == pool.batch_tokens_count
        assert int(vllm["max_model_len"]) == 1280
        assert vllm["dtype"] == "bfloat16"
        sglang = options_of(words_of(files[f"sglang{role}.sh"]))
        assert int(sglang["tp_size"]) == pool.plan.tensor_count
        serving = options_of(words_of(files[f"trtllm-serve{role}.sh"]))
        assert int(serving["max_batch_size"]) == pool.batch_limit_count
        assert serving["extra_llm_api_options"] in files
        building = options_of(words_of(files[f"trtllm-build{role}.sh"]))
        assert int(building["max_input_len"]) == 1024
        if role:
            kind = json.loads(vllm["kv_transfer_config"])["kv_role"]
            assert kind == {"prefill": "kv_producer", "decode": "kv_consumer"}[pool.role]
            assert sglang["disaggregation_mode"] == pool.role


def test_the_model_is_named_as_engines_load_it() -> None:
    assert "/" in llm("aggregated").model_name
    assert words_of(handover_files(llm("aggregated"))["vllm.sh"])[2] == llm("aggregated").model_name


def test_options_are_those_of_the_tools() -> None:
    for mode in ("aggregated", "disaggregated"):
        for name, text in handover_files(llm(mode)).items():
            tool = next((tool for tool in KNOWN if name.startswith(tool)), None)
            if tool and name.endswith(".sh"):
                assert {word for word in words_of(text) if word.startswith("--")} <= KNOWN[tool], name
    with pytest.raises(UnknownName, match="--max-num-seqs"):
        checked("vllm", ["vllm", "serve", "m", "--max-num-seq", "8"])


PARSE = """
import json, sys
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
parser.add_argument("--host")
parser.add_argument("--port")
read = parser.parse_args(json.loads(sys.argv[1]))
print(json.dumps([read.model, read.max_num_seqs, read.max_num_batched_tokens, read.tensor_parallel_size]))
"""


@pytest.mark.live
@pytest.mark.skipif(not os.environ.get("RIDGELINE_VLLM_PYTHON"), reason="RIDGELINE_VLLM_PYTHON names no interpreter")
def test_vllm_itself_takes_the_arguments() -> None:
    """Its own parser reads every command line, and reads what was meant."""
    for mode in ("aggregated", "disaggregated"):
        for pool in llm(mode).pools:
            words = vllm_command(llm(mode), pool)
            command = [os.environ["RIDGELINE_VLLM_PYTHON"], "-c", PARSE, json.dumps(["--model", words[2], *words[3:]])]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            limits = [pool.batch_limit_count, pool.batch_tokens_count, pool.plan.tensor_count]
            assert json.loads(done.stdout.splitlines()[-1]) == [llm(mode).model_name, *limits]


@pytest.mark.parametrize("mode", ["aggregated", "disaggregated"])
def test_manifests_keep_the_schema_of_kubernetes(mode: str) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    objects = list(yaml.safe_load_all(handover_files(llm(mode))["kubernetes.yaml"]))
    assert len(objects) == 2 * len(llm(mode).pools)
    for item in objects:
        validator.validate(item, "1.31", strict=True)


def test_manifests_of_an_encoder_run_triton() -> None:
    validator = pytest.importorskip("kubernetes_validate")
    deployment = deployed(BERT)
    objects = list(yaml.safe_load_all(handover_files(deployment)["kubernetes.yaml"]))
    for item in objects:
        validator.validate(item, "1.31", strict=True)
    work = objects[1]["spec"]
    assert work["replicas"] == deployment.pools[0].plan.replica_count
    assert work["template"]["spec"]["containers"][0]["command"][0] == "tritonserver"


def test_the_schema_check_refuses_what_is_wrong() -> None:
    validator = pytest.importorskip("kubernetes_validate")
    deployment = next(item for item in manifests(llm("aggregated")) if item["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["replicas"] = 3
    with pytest.raises(validator.ValidationError):
        validator.validate(deployment, "1.31", strict=True)


def test_manifests_ask_for_the_devices_of_the_sizing() -> None:
    for mode in ("aggregated", "disaggregated"):
        deployment = llm(mode)
        work = [item for item in manifests(deployment) if item["kind"] == "Deployment"]
        asked = 0
        for item, pool in zip(work, deployment.pools, strict=True):
            spec = item["spec"]["template"]["spec"]
            limits = spec["containers"][0]["resources"]["limits"]
            assert limits == {"nvidia.com/gpu": str(pool.plan.devices_per_replica_count)}
            asked += item["spec"]["replicas"] * int(limits["nvidia.com/gpu"])
            terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            expression = terms["nodeSelectorTerms"][0]["matchExpressions"][0]
            assert expression == {
                "key": "nvidia.com/gpu.product",
                "operator": "In",
                "values": ["NVIDIA-H100-80GB-HBM3"],
            }
            assert spec["volumes"][0]["emptyDir"]["medium"] == "Memory"
            probes = spec["containers"][0]
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(probes)
        assert asked == deployment.sized.devices_count


@pytest.mark.parametrize(
    ("system", "resource", "label"),
    [
        ("mi300x-8", "amd.com/gpu", "AMD_Instinct_MI300X_OAM"),
        ("dgx-b200", "nvidia.com/gpu", "NVIDIA-B200"),
        ("tpu-v5e", "google.com/tpu", "tpu-v5-lite-podslice"),
    ],
)
def test_resources_and_labels_follow_the_maker(system: str, resource: str, label: str) -> None:
    labels = node_labels(catalog().system(system), 4)
    assert labels is not None
    assert labels.resource == resource
    assert label in labels.values
    if resource == "google.com/tpu":
        assert labels.exact == {"cloud.google.com/gke-tpu-topology": "2x2"}


def test_every_label_is_of_a_device_of_the_catalogue() -> None:
    known = set(catalog().ids("devices"))
    assert set(PRODUCTS) <= known


def test_a_device_without_a_resource_gets_no_manifest() -> None:
    system = next(catalog().system(name) for name in catalog().ids("systems") if name.startswith("inf2"))
    assert node_labels(system, 1) is None


def test_triton_reads_the_encoder_and_its_ensemble() -> None:
    """The model configurations parse as Triton's own message, and their fields are those of the sizing."""
    message = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    text_format = pytest.importorskip("google.protobuf.text_format")
    deployment = deployed(BERT)
    pool = deployment.pools[0]
    read = {}
    for name, text in triton_files(deployment).items():
        assert name.endswith("config.pbtxt")
        config = text_format.Parse(text, message.ModelConfig())
        read[config.name.rsplit("-", 1)[1]] = config
        assert name == f"triton/{config.name}/config.pbtxt"
    encoder, whole = read["encoder"], read["ensemble"]
    assert encoder.max_batch_size == pool.batch_limit_count
    assert max(encoder.dynamic_batching.preferred_batch_size) <= encoder.max_batch_size
    assert encoder.dynamic_batching.max_queue_delay_microseconds == pytest.approx(
        1e6 * queue_delay_s(deployment, pool), abs=1
    )
    assert [group.kind for group in encoder.instance_group] == [message.ModelInstanceGroup.KIND_GPU]
    steps = whole.ensemble_scheduling.step
    assert [step.model_name for step in steps] == [read["tokenizer"].name, encoder.name]
    # What one step writes is what the next reads.
    assert set(steps[0].output_map.values()) == set(steps[1].input_map.values())
    assert {item.name for item in encoder.input} == set(steps[1].input_map)


def test_triton_reads_the_model_of_the_vllm_backend() -> None:
    message = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    text_format = pytest.importorskip("google.protobuf.text_format")
    files = triton_files(llm("aggregated"))
    (path,) = [name for name in files if name.endswith("config.pbtxt")]
    config = text_format.Parse(files[path], message.ModelConfig())
    assert config.backend == "vllm"
    arguments = json.loads(files[path.replace("config.pbtxt", "1/model.json")])
    assert arguments["tensor_parallel_size"] == llm("aggregated").pools[0].plan.tensor_count
    assert triton_files(llm("disaggregated")) == {}


def test_holding_back_never_breaks_the_latency_limit() -> None:
    deployment = deployed(BERT)
    delay = queue_delay_s(deployment, deployment.pools[0])
    assert 0 <= delay
    assert deployment.sized.latencies.e2e_p95_s + delay <= 0.05 + 1e-9


def test_formats_become_options() -> None:
    narrow = deployed(LLM, "aggregated", precision="fp8", kv="fp8")
    files = handover_files(narrow)
    vllm = options_of(words_of(files["vllm.sh"]))
    assert (vllm["quantization"], vllm["kv_cache_dtype"]) == ("fp8", "fp8")
    assert options_of(words_of(files["sglang.sh"]))["kv_cache_dtype"] == "fp8_e4m3"
    assert yaml.safe_load(files["trtllm.yaml"])["kv_cache_config"]["dtype"] == "fp8"


def test_experts_and_data_parallel_attention_become_options() -> None:
    scenario = {**LLM, "workload": {"model": "qwen3-30b-a3b", "serve": LLM["workload"]["serve"]}}
    wide = deployed(scenario, "aggregated", tensor=4, expert=4, attention_data=4, tpot_p95="60 ms")
    files = handover_files(wide)
    vllm = options_of(words_of(files["vllm.sh"]))
    assert (vllm["tensor_parallel_size"], vllm["data_parallel_size"]) == ("1", "4")
    assert vllm["enable_expert_parallel"] is True
    sglang = options_of(words_of(files["sglang.sh"]))
    assert (sglang["tp_size"], sglang["dp_size"], sglang["ep_size"]) == ("4", "4", "4")
    assert yaml.safe_load(files["trtllm.yaml"])["enable_attention_dp"] is True


def test_files_are_written_whole_and_never_over_others(tmp_path: Path) -> None:
    folder = tmp_path / "launch"
    paths = write_handover(llm("aggregated"), folder)
    assert sorted(path.relative_to(folder).as_posix() for path in paths) == sorted(handover_files(llm("aggregated")))
    assert (folder / "vllm.sh").stat().st_mode & 0o111
    with pytest.raises(ScenarioError, match="--force"):
        write_handover(llm("aggregated"), folder)
    (folder / "mine.txt").write_text("kept")
    (folder / "vllm.sh").write_text("changed")
    write_handover(llm("aggregated"), folder, force=True)
    assert (folder / "mine.txt").read_text() == "kept"
    assert "vllm serve" in (folder / "vllm.sh").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["launch"]


def test_a_place_that_cannot_be_written_is_told_first(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ScenarioError, match="is a file"):
        write_handover(llm("aggregated"), file)
    with pytest.raises(ScenarioError, match="no such folder"):
        write_handover(llm("aggregated"), tmp_path / "none" / "launch")


def test_the_command_line_hands_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = tmp_path / "q.yaml"
    scenario.write_text(yaml.safe_dump(LLM))
    folder = tmp_path / "launch"
    assert run(["serve", str(scenario), "--json", "--handover", str(folder)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert json.loads((folder / "sizing.json").read_text())["layout"] == answer["sizing"]["options"][0]["layout"]
    assert run(["serve", str(scenario), "--handover", str(folder)]) == 2
    assert "--force" in capsys.readouterr().err
    assert run(["serve", str(scenario), "--force"]) == 2
    assert (
        run(["serve", str(scenario), "--set", "workload.serve.tpot_p95=1 us", "--handover", str(tmp_path / "x")]) == 3
    )
    assert not (tmp_path / "x").exists()
