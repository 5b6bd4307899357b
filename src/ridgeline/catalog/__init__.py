"""Facts from files to specs: the shipped data, the loader, and the user's own folders."""

from ridgeline.catalog.loader import Catalog, load_catalog
from ridgeline.catalog.records import FACT_KINDS, RECORD_KINDS, Fact, Label, ModelRecord, Source

__all__ = ["FACT_KINDS", "RECORD_KINDS", "Catalog", "Fact", "Label", "ModelRecord", "Source", "load_catalog"]
