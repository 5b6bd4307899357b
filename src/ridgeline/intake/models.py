"""From a configuration file or a catalogue id to a `Transformer`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ridgeline.catalog import Catalog, ModelRecord
from ridgeline.core import FrozenMap
from ridgeline.errors import BadModelFile, nearest_names
from ridgeline.intake.families import BUILDERS
from ridgeline.intake.quantization import scheme_of
from ridgeline.intake.reader import Config, shown
from ridgeline.intake.shell import Shell
from ridgeline.intake.stored import with_precisions
from ridgeline.specs import Transformer

_NEAREST = 3


def transformer_from_config(config: Mapping[str, Any], *, id: str, where: str) -> Transformer:
    """The model that a configuration in Hugging Face's keys describes.

    `where` is the file (or record) for messages. Raises `BadModelFile` naming the file and the key for a family
    that is not known, a key that is missing and has no documented default, and a value that cannot be.

    >>> keys = {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
    >>> transformer_from_config({"model_type": "gpt2", **keys}, id="gpt2", where="config.json").parameters_count
    124439808
    """
    if not isinstance(config, Mapping):
        raise BadModelFile(f"{where}: got {type(config).__name__}, expected a mapping of keys (a config.json)")
    reader = Config(config, where=where)
    family = family_of(reader)
    shell = BUILDERS[family](reader)
    reader.refuse_unread(family)
    scheme = scheme_of(reader)
    precisions: FrozenMap[str, str] = FrozenMap()
    if scheme is not None:
        shell, precisions = with_precisions(shell, scheme)
    return _transformer(shell, id=id, family=family, precisions=precisions)


def family_of(config: Config) -> str:
    """The `model_type`, which must be a known one; nothing else in a file says reliably what the code does."""
    family = config.get("model_type")
    if family is None:
        config.fail(
            "model_type", f"missing; it names the family, one of the {len(BUILDERS)} known (llama, bert, vit...)"
        )
    if not isinstance(family, str) or family not in BUILDERS:
        near = nearest_names(str(family)[:80], BUILDERS, _NEAREST)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        config.fail("model_type", f"unknown family {shown(family)}{hint}")
    return family


def _transformer(shell: Shell, *, id: str, family: str, precisions: FrozenMap[str, str]) -> Transformer:
    embedding = shell.embedding_count
    return Transformer(
        id=id,
        family=family,
        name=id,
        main=shell.main_stack(),
        others=shell.others,
        hidden_count=shell.hidden_count,
        vocab_count=shell.vocab_count,
        embedding_parameters_count=shell.vocab_count * shell.hidden_count if embedding is None else embedding,
        head=shell.head_linear(),
        tied_embeddings=shell.tied,
        other_parameters_count=shell.model_other_count,
        mtp_parameters_count=shell.mtp_count,
        ahead=shell.ahead_stack(),
        max_context_tokens=shell.context_tokens,
        encoder_tokens=shell.encoder_tokens,
        precisions=precisions,
    )


def load_model(ref: str, catalog: Catalog) -> Transformer:
    """The model that `ref` means: a path to a config.json (or a folder with one), or a catalogue id or alias.

    What looks like a path (has a separator, ends in .json, or exists) is one. An `hf_quant_config.json` beside the
    file is read with it. Raises `BadModelFile` or `UnknownName` with one message.
    """
    if "://" in ref:
        raise BadModelFile(f"{ref}: a web address is not read; download the config.json and give its path")
    path = Path(ref)
    if "/" in ref or ref.endswith(".json") or path.exists():
        if not path.exists() and ref in catalog.aliases("models"):
            return from_record(catalog.model_record(ref))
        return from_file(path)
    return from_record(catalog.model_record(ref))


def from_record(record: ModelRecord) -> Transformer:
    """The model of a catalogue record."""
    model = transformer_from_config(record.config, id=record.id, where=f"models/{record.id}.yaml")
    return replace(
        model, name=record.name or record.id, source=record.source, date=record.date, facts=FrozenMap(record.facts)
    )


def from_file(path: Path) -> Transformer:
    """The model of a config.json."""
    if path.is_dir():
        inside = path / "config.json"
        if not inside.is_file():
            raise BadModelFile(f"{path}: is a folder without a config.json, expected a config.json or its folder")
        path = inside
    if not path.exists():
        raise BadModelFile(f"{path}: no such file, expected a config.json or a catalogue id (`ridgeline list models`)")
    if not path.is_file():
        raise BadModelFile(f"{path}: is not a regular file, expected a config.json")
    data = read_json(path)
    if not isinstance(data, Mapping):
        raise BadModelFile(f"{path}: got {shown(data)}, expected an object of keys (a config.json)")
    sidecar = path.with_name(_SIDECAR)
    if sidecar.is_file() and "quantization_config" not in data:
        recipe = read_json(sidecar)
        quantization = recipe.get("quantization") if isinstance(recipe, Mapping) else None
        if not isinstance(quantization, Mapping):
            raise BadModelFile(f"{sidecar}: got {shown(recipe)}, expected an object with `quantization`")
        data = {**data, "quantization_config": {"quant_method": "modelopt", **quantization}}
    name = path.parent.name if path.name == "config.json" else path.stem
    return transformer_from_config(data, id=name or path.stem, where=str(path))


_SIDECAR = "hf_quant_config.json"
MAX_FILE_BYTES = 50_000_000


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are given once."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} is given twice")
        found[key] = value
    return found


def read_json(path: Path) -> Any:
    """The content of a JSON file; `BadModelFile` for what cannot be read or parsed."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise BadModelFile(f"{path}: {size:,} bytes, a config.json may have at most {MAX_FILE_BYTES:,}")
        return json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise BadModelFile(f"{path}: broken JSON at line {error.lineno} column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise BadModelFile(f"{path}: broken JSON: nested too deeply") from None
    except UnicodeDecodeError:
        raise BadModelFile(f"{path}: not text, expected a JSON file (config.json)") from None
    except ValueError as error:  # also a number of thousands of digits
        raise BadModelFile(f"{path}: broken JSON: {str(error).split(';')[0]}") from None
    except OSError as error:
        raise BadModelFile(f"{path}: cannot be read: {error.strerror}") from None
