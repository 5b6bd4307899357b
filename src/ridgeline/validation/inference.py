"""Scoring a file of inference measurements; its columns say which of the two kinds it is."""

from __future__ import annotations

from ridgeline.catalog import Catalog
from ridgeline.validation.corpus import inference_kind, read_rows
from ridgeline.validation.inference_llm import score_llm
from ridgeline.validation.scores import Report


def score_inference(path: str, catalog: Catalog) -> Report:
    """Predictions for every row of an inference file that states enough."""
    kind = inference_kind(path)
    rows = read_rows(path, kind)
    if kind == "inference-llm":
        return score_llm(rows, path, catalog)
    from ridgeline.validation.inference_other import score_other

    return score_other(rows, path, catalog)
