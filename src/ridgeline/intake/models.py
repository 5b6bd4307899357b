"""From a configuration file or a catalogue id to a `Transformer`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ridgeline.errors import BadModelFile, nearest_names
from ridgeline.intake.families import BUILDERS
from ridgeline.intake.reader import Config
from ridgeline.intake.shell import Shell
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
    return _transformer(shell, id=id, family=family)


def family_of(config: Config) -> str:
    """The `model_type`, which must be a known one; nothing else in a file says reliably what the code does."""
    family = config.get("model_type")
    if family is None:
        config.fail(
            "model_type", f"missing; it names the family, one of the {len(BUILDERS)} known (llama, bert, vit...)"
        )
    if not isinstance(family, str) or family not in BUILDERS:
        near = nearest_names(str(family), BUILDERS, _NEAREST)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        config.fail("model_type", f"unknown family {family!r}{hint}")
    return family


def _transformer(shell: Shell, *, id: str, family: str) -> Transformer:
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
        max_context_tokens=shell.context_tokens,
        encoder_tokens=shell.encoder_tokens,
    )


def read_json(path: Path) -> Any:
    """The content of a JSON file; `BadModelFile` for what cannot be read or parsed."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise BadModelFile(f"{path}: broken JSON at line {error.lineno} column {error.colno}: {error.msg}") from None
    except UnicodeDecodeError:
        raise BadModelFile(f"{path}: not text, expected a JSON file (config.json)") from None
    except OSError as error:
        raise BadModelFile(f"{path}: cannot be read: {error.strerror}") from None
