# `make` alone tells what there is. Nothing here needs a key, an account or a server of one's own.

VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
UV ?= uv
LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-clients scenarios lint format bench lock schema compatibility clean

help: ## Tell what there is
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Make .venv with exact versions, and this package in it

# Built with the locked hatchling, in .venv itself: nothing is fetched that the lock does not name.
$(STAMP): pyproject.toml requirements.lock tools/make-venv
	@tools/make-venv $(VENV)
	@echo "Installing the locked packages into $(VENV) …"
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP) ## Watch an answer survive its provider (ARGS="…" is passed on)
	@$(BIN)/router demo $(ARGS)

test: $(STAMP) ## Run the tests (ARGS="-k word" narrows them)
	@tools/system-package "a Redis server" "command -v redis-server" redis-server redis redis redis
	@tools/real-model $(BIN)/python >/dev/null || test $$? -eq 3
	@$(BIN)/pytest $(ARGS)

# What they need is put into .venv beside the rest, at versions that do not move anything there.
test-clients: $(VENV)/.clients ## Run the clients that people use through hundreds of faults (ARGS="…")
	@SEAM_CLIENTS=1 $(BIN)/pytest tests/clients $(ARGS)

$(VENV)/.clients: $(STAMP) requirements-clients.lock tests/clients/package-lock.json
	@$(PIP) install --require-hashes -r requirements-clients.lock
	@tools/npm $(BIN)/python tests/clients ci
	@touch $@

scenarios: $(STAMP) ## Play the sixteen failover scenarios in real time (about 100 s), print the table
	@SEAM_REAL_TIME=1 PYTHONPATH=tests $(BIN)/python tests/scenarios/scenario_table.py

lint: $(STAMP) ## Check style, types and floors
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP) ## Mend what can be mended by machine
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: $(STAMP) ## Measure the failover pause (ARGS="…" is passed on)
	@tools/system-package "a Redis server" "command -v redis-server" redis-server redis redis redis
	@$(BIN)/python -m benchmarks.failover_pause $(ARGS)

# One lock for work, and two parts of it for the image: what runs, and what builds the wheel.
lock: ## Write the locks anew (needs uv)
	$(LOCK) pyproject.toml --group dev --all-extras -o requirements.lock
	$(LOCK) pyproject.toml --all-extras -c requirements.lock -o requirements-runtime.lock
	$(LOCK) --group build -c requirements.lock -o requirements-build.lock
	$(LOCK) --group clients -c requirements.lock -o requirements-clients.lock

schema: $(STAMP) ## Write docs/config.schema.json anew
	@$(BIN)/router schema > docs/config.schema.json

compatibility: $(STAMP) ## Write the tables of docs/compatibility.md anew
	@PYTHONPATH=tests $(BIN)/python -m formats.compatibility

clean: ## Remove .venv and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
