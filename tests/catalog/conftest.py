"""The shipped catalogue without plug-ins."""

from __future__ import annotations

import pytest

from ridgeline.catalog import Catalog, load_catalog


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog(plugins=False)
