"""Other people's files to specs: model configurations of Hugging Face's kind, recorded requests."""

from ridgeline.intake.models import load_model, transformer_from_config
from ridgeline.intake.requests import Trace, load_requests

__all__ = ["Trace", "load_model", "load_requests", "transformer_from_config"]
