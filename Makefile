# Two commands do all the set-up: `make plan` (install and run the main job) and `make test` (the whole suite).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: plan test check docs clean

plan: $(STAMP)  ## install, then rank the machines of examples/train-70b.yaml
	$(BIN)/ridgeline plan examples/train-70b.yaml

test: $(STAMP)  ## the whole suite: style, types, layers, tests
	$(BIN)/ruff check src tests scripts benchmarks
	$(BIN)/ruff format --check src tests scripts benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --group dev --editable .
	touch $(STAMP)

clean:
	rm -rf $(VENV)
