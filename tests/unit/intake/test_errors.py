"""What a user gets for a file that cannot be read: one line with the file, the key, what was found and allowed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.errors import BadModelFile, UnknownName
from ridgeline.intake import load_model, transformer_from_config
from ridgeline.intake.families import BUILDERS

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
}
MOE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    **{key: value for key, value in LLAMA.items() if key != "model_type"},
    "head_dim": 64,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(plugins=False)


def message(config: Any) -> str:
    with pytest.raises(BadModelFile) as caught:
        transformer_from_config(config, id="m", where="config.json")
    text = str(caught.value)
    assert text.startswith("config.json: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("family", ["lama", "llama5", "", "GPT-2", None, 3, ["llama"]])
def test_an_unknown_family_names_the_nearest_and_is_never_guessed(family: Any) -> None:
    text = message({**LLAMA, "model_type": family})
    assert "model_type" in text
    if family == "lama":
        assert "llama" in text.split("nearest")[1]


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "model_type"]
)
def test_a_missing_size_is_named(key: str) -> None:
    text = message({name: value for name, value in LLAMA.items() if name != key})
    assert f"config.json: {key}: missing" in text


def test_a_misspelt_key_is_pointed_at() -> None:
    config = {name: value for name, value in LLAMA.items() if name != "hidden_size"}
    assert "nearest key in the file: hiden_size" in message({**config, "hiden_size": 512})


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("hidden_size", -512, "got -512, expected a whole number from 1"),
        ("hidden_size", 0, "got 0, expected"),
        ("hidden_size", 10**15, "expected a whole number from 1 to 1048576"),
        ("hidden_size", 512.5, "got 512.5"),
        ("hidden_size", "512", "got '512', expected a whole number"),
        ("hidden_size", True, "got true, expected a whole number"),
        ("hidden_size", float("nan"), "got nan"),
        ("hidden_size", [512], "got [512]"),
        ("num_hidden_layers", 10**6, "expected a whole number from 1 to 4096"),
        ("vocab_size", -1, "got -1"),
        ("num_attention_heads", 7, "does not divide"),
        ("num_key_value_heads", 3, "got 3, which does not divide num_attention_heads = 8"),
        ("attention_bias", "maybe", "got 'maybe', expected true or false"),
        ("max_position_embeddings", -5, "got -5"),
        ("n_embd", 768, "two names of one figure"),
        ("num_local_experts", 8, "which the family 'llama' has no use for"),
        ("kv_lora_rank", 512, "which the family 'llama' has no use for"),
        ("quantization_config", {"quant_method": "magic"}, "quantization_config.quant_method: got 'magic', expected"),
        ("quantization_config", {"bits": 4}, "quantization_config.quant_method: missing"),
        ("quantization_config", {"quant_method": "gptq", "bits": 3}, "expected 4 or 8 bits"),
        ("quantization_config", 4, "expected a mapping"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_is_allowed(key: str, value: Any, says: str) -> None:
    text = message({**LLAMA, key: value})
    assert key in text
    assert says in text


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({**MOE, "num_experts_per_tok": 9}, "num_experts_per_tok: got 9, more than num_experts = 8"),
        ({**MOE, "mlp_only_layers": ["a"]}, "mlp_only_layers[0]: got 'a'"),
        (
            {**LLAMA, "model_type": "gemma2", "layer_types": ["full_attention"] * 3},
            "layer_types: got 3 entries, expected one for each of the 4 layers",
        ),
        (
            {**LLAMA, "model_type": "gemma2", "layer_types": ["full_attention"] * 3 + ["ring"]},
            "layer_types[3]: got 'ring', expected sliding_attention or",
        ),
        ({"model_type": "qwen3_vl", "text_config": {"hidden_size": 5}}, "text_config.num_hidden_layers: missing"),
        ({"model_type": "qwen3_vl", "text_config": 7}, "text_config: got int, expected a mapping"),
        ({"model_type": "llava", "text_config": {"model_type": "lama"}}, "text_config.model_type: got 'lama'"),
        ({"model_type": "nemotron_h", "hidden_size": 64, "hybrid_override_pattern": "MX"}, "got 'X' at 1"),
    ],
)
def test_nested_keys_and_lists_are_named_by_their_path(config: dict[str, Any], says: str) -> None:
    assert says in message(config)


@pytest.mark.parametrize("pattern", ["", "LLLX", "lg"])
def test_a_pattern_of_windows_has_known_letters(pattern: str) -> None:
    gemma = {**LLAMA, "model_type": "gemma3_text", "head_dim": 64, "sliding_window": 512}
    text = message({**gemma, "sliding_window_pattern": pattern})
    assert f"sliding_window_pattern: got {pattern!r}, expected letters L" in text


@pytest.mark.parametrize("size", [[[]], ["x"], {"a": 1}, "many"])
def test_a_group_size_is_a_number(size: Any) -> None:
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": size}
    assert "quantization_config.group_size: got" in message({**LLAMA, "quantization_config": gptq})


@pytest.mark.parametrize("times", ["x", None, [1], 1.5, 10**12, -1])
def test_repeats_of_attention_are_a_whole_number(times: Any) -> None:
    neo = {**LLAMA, "model_type": "gpt_neo", "attention_types": [[["global", "local"], times]]}
    assert "attention_types: got" in message(neo)


@pytest.mark.parametrize("config", [None, [], "llama", 3])
def test_what_is_no_mapping_is_refused(config: Any) -> None:
    assert "expected a mapping" in message(config)


def test_text_that_tools_write_for_null_and_truth_is_understood() -> None:
    plain = transformer_from_config(LLAMA, id="m", where="x")
    odd = transformer_from_config(
        {**LLAMA, "attention_bias": "false", "rope_scaling": "null", "head_dim": "null"}, id="m", where="x"
    )
    assert odd.parameters_count == plain.parameters_count


FILES = {
    "broken.json": ('{"model_type": "llama",', "broken JSON at line 1"),
    "list.json": ("[1, 2]", "got [1, 2], expected an object"),
    "number.json": ("3", "got 3, expected an object"),
    "empty.json": ("", "broken JSON"),
    "deep.json": ("[" * 100_000, "broken JSON"),
    "labels.json": ('{"0": "person"}', "model_type: missing"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_configuration_is_refused(name: str, tmp_path: Path, catalog: Catalog) -> None:
    text, says = FILES[name]
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(BadModelFile) as caught:
        load_model(str(path), catalog)
    assert str(caught.value).startswith(str(path))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_paths_that_hold_no_file(tmp_path: Path, catalog: Catalog) -> None:
    binary = tmp_path / "weights.json"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    for path, says in (
        (tmp_path, "is a folder without a config.json"),
        (tmp_path / "absent.json", "no such file"),
        (binary, "not text"),
    ):
        with pytest.raises(BadModelFile, match=says):
            load_model(str(path), catalog)


def test_an_unknown_id_names_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(UnknownName, match=r"llama-3\.1-70b"):
        load_model("llama-3.1-70", catalog)


def test_every_family_refuses_an_empty_file_by_naming_a_key() -> None:
    for family in BUILDERS:
        text = message({"model_type": family})
        assert "missing" in text, family


def test_nothing_in_a_file_makes_it_crash() -> None:
    """Every family's class defaults with one value spoilt: it is read, or refused with one line."""
    path = Path(__file__).parents[2] / "reference" / "family_counts.json"
    families = json.loads(path.read_text())["families"]
    values = [None, -1, 0, 1.5, 10**15, "x", True, [], {}, [1], ["x"], [None], {"a": 1}, float("inf"), [[1]]]
    draw = random.Random(7)
    for _ in range(1500):
        entry = draw.choice(families)
        config = json.loads(json.dumps(entry["config"]))
        section = draw.choice([config, *(item for item in config.values() if isinstance(item, dict) and item)])
        section[draw.choice(list(section))] = draw.choice(values)
        text = refusal(config)
        assert text.startswith("f.json: "), entry["family"]
        assert "\n" not in text
        assert len(text) < 500


def refusal(config: dict[str, Any]) -> str:
    """The message of a refusal, or a stand-in where the configuration is read."""
    try:
        transformer_from_config(config, id="m", where="f.json")
    except BadModelFile as error:
        return str(error)
    return "f.json: read"


def test_an_alias_with_a_slash_is_no_path(catalog: Catalog) -> None:
    assert load_model("meta-llama/Llama-3.1-70B", catalog).id == "llama-3.1-70b"
