"""Which model a row names: spellings of tables and benchmarks to ids of the catalogue, never a part of a name.

A name is compared in one spelling (lower case, everything but letters, digits and points a hyphen). It is looked up
in `SPELLINGS`, then among ids and aliases of the catalogue, then both again without the organisation before the
stroke and without the endings of `SAME_SHAPE`, which never change a model's shape.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ridgeline.catalog import Catalog
from ridgeline.intake import load_model
from ridgeline.specs import Transformer

# Endings that name a tuning, a format or an accuracy class of the same network, longest first where they overlap.
SAME_SHAPE = (
    "-instruct-2507",
    "-thinking-2507",
    "-instruct",
    "-thinking",
    "-interactive",
    "-chat-hf",
    "-chat",
    "-hf",
    "-it",
    "-fp8",
    "-nvfp4",
    "-fp4",
    "-bf16",
    "-fp16",
    "-int8",
    "-int4",
    "-awq",
    "-gptq",
    "-w8a8",
    "-99.9",
    "-99",
    "-v0.1",
    "-v1.0",
    "-base",
)

SPELLINGS: dict[str, str] = {
    # Llama, as tables write it
    "llama-7b": "llama-7b",
    "llama-13b": "llama-13b",
    "llama-65b": "llama-65b",
    "llama-70b": "llama-2-70b",
    "llama2-7b": "llama-2-7b",
    "llama2-13b": "llama-2-13b",
    "llama2-70b": "llama-2-70b",
    "llama-v2-7b": "llama-2-7b",
    "llama-v2-13b": "llama-2-13b",
    "llama-v2-70b": "llama-2-70b",
    "llama-2-7b-chat": "llama-2-7b",
    "llama3-8b": "llama-3-8b",
    "llama3-70b": "llama-3-70b",
    "llama-v3-8b": "llama-3-8b",
    "llama-v3-70b": "llama-3-70b",
    "meta-llama-3-8b": "llama-3-8b",
    "meta-llama-3-70b": "llama-3-70b",
    "llama3.1-8b": "llama-3.1-8b",
    "llama3-1-8b": "llama-3.1-8b",
    "llama3.1-8b-edge": "llama-3.1-8b",
    "llama3.1-70b": "llama-3.1-70b",
    "llama3-1-70b": "llama-3.1-70b",
    "llama3.1-405b": "llama-3.1-405b",
    "llama3-1-405b": "llama-3.1-405b",
    "llama-v3.1-8b": "llama-3.1-8b",
    "llama-v3.1-70b": "llama-3.1-70b",
    "llama-v3.1-405b": "llama-3.1-405b",
    "meta-llama-3.1-8b": "llama-3.1-8b",
    "meta-llama-3.1-70b": "llama-3.1-70b",
    "meta-llama-3.1-405b": "llama-3.1-405b",
    "llama3.2-1b": "llama-3.2-1b",
    "llama3.2-3b": "llama-3.2-3b",
    "llama3.3-70b": "llama-3.3-70b",
    "llama-v3.3-70b": "llama-3.3-70b",
    "llama-4-scout-17b-16e": "llama-4-scout",
    "llama-4-maverick-17b-128e": "llama-4-maverick",
    "tiny-llama-1.1b": "tinyllama-1.1b",
    "tiny-llama-1.1b-chat": "tinyllama-1.1b",
    "tinyllama-1.1b-chat": "tinyllama-1.1b",
    "vicuna-7b": "llama-7b",
    "vicuna-13b": "llama-13b",
    "deepseek-r1-distill-llama-8b": "llama-3.1-8b",
    "deepseek-r1-distill-llama-70b": "llama-3.3-70b",
    "nvidia-llama-3.1-nemotron-70b": "llama-3.1-70b",
    # Mistral
    "mistral-7b": "mistral-7b",
    "mistral-v0.1-7b": "mistral-7b",
    "mistral-7b-v0.1": "mistral-7b",
    "mistral-7b-instruct-v0.1": "mistral-7b",
    "mistral-7b-instruct-v0.2": "mistral-7b-v0.2",
    "mistral-7b-v0.2": "mistral-7b-v0.2",
    "mistral-7b-v0.3": "mistral-7b-v0.2",
    "mistral-7b-instruct-v0.3": "mistral-7b-v0.2",
    "mixtral-8x7b": "mixtral-8x7b",
    "mixtral-8x7b-instruct-v0.1": "mixtral-8x7b",
    "mixtral-8x22b": "mixtral-8x22b",
    "mixtral-8x22b-instruct-v0.1": "mixtral-8x22b",
    # GPT and its time
    "gptj": "gpt-j-6b",
    "gptj-6b": "gpt-j-6b",
    "gpt-j": "gpt-j-6b",
    "gpt-j-6b": "gpt-j-6b",
    "gpt-neox": "gpt-neox-20b",
    "gpt-neox-20b": "gpt-neox-20b",
    "gpt-345m": "gpt2-medium",
    "gpt-1.3b": "gpt3-1.3b",
    "gpt-6.7b": "gpt3-6.7b",
    "gpt-13b": "gpt3-13b",
    "gpt-175b": "gpt3-175b",
    "gpt-3-175b": "gpt3-175b",
    "gpt3-175b": "gpt3-175b",
    "bloom": "bloom-176b",
    "bloom-176b": "bloom-176b",
    "bloomz-176b": "bloom-176b",
    "falcon-180b": "falcon-180b",
    "falcon-40b": "falcon-40b",
    "mpt-7b": "mpt-7b",
    "mpt-30b": "mpt-30b",
    "opt-175b": "opt-175b",
    # others
    "codellama-7b": "codellama-7b",
    "codellama-13b": "codellama-13b",
    "codellama-34b": "codellama-34b",
    "code-llama-34b": "codellama-34b",
    "deepseek-r1": "deepseek-v3",
    "deepseek-r1-671b": "deepseek-v3",
    "deepseek-r1-0528": "deepseek-v3",
    "deepseek-r1-14b": "deepseek-r1-distill-qwen-14b",
    "deepseek-v3-0324": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
    "phi-3-mini-4k": "phi-3-mini",
    "glm-4-9b": "glm-4-9b",
    "minimax-m2.5": "minimax-m2.5",
    "kimi-k2": "kimi-k2",
    "nvidia-nemotron-nano-9b-v2": "nemotron-nano-9b-v2",
    "nvidia-nemotron-nano-12b-v2": "nemotron-nano-12b-v2",
    "nvidia-nemotron-3-nano-30b-a3b": "nemotron-3-nano-30b-a3b",
    "nvidia-nemotron-3-super-120b-a12b": "nemotron-3-super-120b-a12b",
    "qwen3-coder-30b-a3b": "qwen3-30b-a3b",
    "flan-t5-small": "t5-v1.1-small",
    "flan-t5-base": "t5-v1.1-base",
    "flan-t5-large": "t5-v1.1-large",
    "flan-t5-xl": "t5-v1.1-xl",
    "flan-t5-xxl": "t5-v1.1-xxl",
}


def spelling(text: str) -> str:
    """A name in the one spelling in which names are compared.

    >>> spelling("LLaMA v3.1 405B"), spelling("Llama 3.2:3b")
    ('llama-v3.1-405b', 'llama-3.2-3b')
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def model_id(text: str, catalog: Catalog) -> str | None:
    """The catalogue's id of the model that `text` names, None where it names none.

    >>> from ridgeline.catalog import load_catalog
    >>> model_id("meta-llama/Llama-3.1-70B-Instruct", load_catalog())
    'llama-3.1-70b'
    """
    known = _known(catalog)
    for name in _candidates(text):
        if name in SPELLINGS and SPELLINGS[name] in known.values():
            return SPELLINGS[name]
        if name in known:
            return known[name]
    return None


@lru_cache(maxsize=512)
def loaded(id: str, catalog: Catalog) -> Transformer:
    """The model of a catalogue id, made once."""
    return load_model(id, catalog)


@lru_cache(maxsize=4)
def _known(catalog: Catalog) -> dict[str, str]:
    """Spellings of ids and aliases, with and without an organisation; what would be ambiguous is left out."""
    found: dict[str, str] = {}
    clashing: set[str] = set()
    names = {**{id: id for id in catalog.ids("models")}, **catalog.aliases("models")}
    for name, id in names.items():
        for key in {spelling(name), spelling(name.rsplit("/", 1)[-1])}:
            if found.setdefault(key, id) != id:
                clashing.add(key)
    return {key: id for key, id in found.items() if key not in clashing or key == id}


def _candidates(text: str) -> list[str]:
    """The name as it stands, without organisation, then with one ending after another taken off."""
    found = [spelling(text), spelling(text.rsplit("/", 1)[-1])]
    name = found[-1]
    stripped = True
    while stripped:
        stripped = False
        for ending in SAME_SHAPE:
            if name.endswith(ending) and len(name) > len(ending):
                name = name.removesuffix(ending)
                found.append(name)
                stripped = True
                break
    return found
