"""Other people's files to specs: model configurations of Hugging Face's kind."""

from ridgeline.intake.models import load_model, transformer_from_config

__all__ = ["load_model", "transformer_from_config"]
