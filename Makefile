# make round   install and run the main job
# make test    everything that CI runs: what may run side by side, then what must be alone
# make test-slow  the tests that take minutes each
# make check   lint, types, layers and sizes only
# make test-gpu  tests that need an NVIDIA GPU
# make docs    regenerate what is generated in docs/
# make site    build docs/ as a site, warnings being errors

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
EXTRA := $(shell command -v nvidia-smi >/dev/null 2>&1 && echo '[gpu]')
DEFINITION ?= gdn_decode

.PHONY: round test test-slow check test-gpu docs site clean

round: $(VENV)/.installed
	$(BIN)/kopt round --definition $(DEFINITION)

# Both runs are made, and the first one's failure is not lost.
test: check
	$(BIN)/python -m pytest -m "not gpu and not slow and not alone" -n 2 --dist loadfile --durations=25; \
	beside=$$?; \
	$(BIN)/python -m pytest -m "alone and not gpu and not slow" --durations=25 && exit $$beside

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/sizes.py

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m "slow and not gpu" --durations=10

test-gpu: $(VENV)/.dev
	$(PIP) -e '.[dev,gpu]'
	$(BIN)/python -m pytest -m gpu

docs: $(VENV)/.dev
	$(BIN)/python scripts/command_reference.py docs/commands.md
	$(BIN)/python scripts/json_reference.py docs/json.md docs/json.schema.json

site: $(VENV)/.dev
	$(BIN)/python -m mkdocs build --strict --site-dir artifacts/local/site

clean:
	rm -rf $(VENV) artifacts/local

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.$(EXTRA)'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[dev]'
	touch $@
