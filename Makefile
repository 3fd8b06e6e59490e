# Each target does its own set-up: Python 3.11+, git and make are all it asks for. `make help` lists them.
#
# Variables worth knowing (give them on the command line or in the environment):
#   PYTHON            the interpreter that builds .venv                        (python3, or the first of python3.11 … 3.14)
#   PYTEST_ARGS       passed to pytest                                         e.g. PYTEST_ARGS="-k sessions"
#   VLLM_PYTHON       the interpreter of a ready-made vLLM environment; `make e2e` then installs nothing
#   VLLM_ENV          where `make e2e` keeps its vLLM environment              (outside the clone)
#   VLLM_TORCH_INDEX  extra package index with CPU builds of torch, where the configured one has none
#   VLLM_PIP_ARGS     more arguments for the pip that installs vLLM            e.g. "--index-url URL"
#   PEERS_ENV         where `make bench` keeps the routers it compares with    (outside the clone)
#   TOOLS_ENV         where `make bench-accuracy` keeps the other benchmark    (outside the clone)
#   BENCH_ARGS        passed to bench.run                                      e.g. BENCH_ARGS="--only unary --quick"

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/infera
BIN := .venv/bin
BASE := .venv/.base
READY := .venv/.ready

VLLM_VERSION := 0.32.0
TORCH_VERSION := 2.13.0
VLLM_ENV ?= $(CACHE)/vllm-$(VLLM_VERSION)
VLLM_PYTHON ?= $(VLLM_ENV)/bin/python
VLLM_TORCH_INDEX ?=
PEERS_ENV ?= $(CACHE)/bench-peers
TOOLS_ENV ?= $(CACHE)/bench-tools

COMPILED := .venv-compiled/bin
COMPILED_READY := .venv-compiled/.ready
SOURCES := $(shell git ls-files src hatch_build.py pyproject.toml)

.PHONY: help demo test lint e2e bench bench-accuracy bench-kv bench-simulation fuzz chaos docs completions clean compiled

help:  ## show this list
	@grep -E '^[a-z0-9 -]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+)[^:]*:.*## /  make \1\t/' | expand -t 26

demo: $(BASE)  ## simulated engines and the router on this machine, with conversations going through
	@$(BIN)/infera demo $(DEMO_ARGS)

test: $(READY)  ## every test that needs no GPU
	@$(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

compiled: $(COMPILED_READY)  ## the tests of the data plane against the compiled package
	@$(COMPILED)/python -m pytest -n 2 --dist loadfile tests/gateway tests/routing tests/fleet tests/fuzz \
		tests/simulator $(PYTEST_ARGS)

lint: $(READY)  ## ruff, mypy --strict, and the rules of the architecture
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/test_architecture.py

e2e: $(READY) vllm-environment  ## the whole way with two real vLLM servers on the CPU
	@if [ -e "$(VLLM_PYTHON)" ]; then \
		VLLM_PYTHON="$(VLLM_PYTHON)" $(BIN)/python -m pytest tests/e2e -m e2e -n 0 $(PYTEST_ARGS); \
	else echo "make e2e: skipped, since E2E_OPTIONAL=1 and there is no vLLM."; fi

bench: $(COMPILED_READY)  ## ours and its peers side by side; the table goes to bench/results/
	@PEERS_ENV="$(PEERS_ENV)" $(COMPILED)/python -m bench.run $(BENCH_ARGS)

bench-accuracy: $(READY) vllm-environment  ## what several benchmarks say of a target with known timing
	@VLLM_PYTHON="$(VLLM_PYTHON)" TOOLS_ENV="$(TOOLS_ENV)" BIN="$(BIN)" bench/run-accuracy

bench-kv: $(COMPILED_READY)  ## what routing by cache costs and gains; three tables go to bench/results/
	@for part in kv_prefix kv_speed kv_requests; do \
		$(COMPILED)/python -m bench.$$part || missed=1; done; exit $${missed:-0}

bench-simulation: $(COMPILED_READY)  ## what infera simulate says, and what really happens
	@$(COMPILED)/python -m bench.simulation_proof

fuzz: $(READY)  ## the wire in both directions, for longer than `make test` does
	@$(BIN)/python -m pytest tests/fuzz -m fuzz -n 2 --timeout 1800 $(PYTEST_ARGS)

chaos: $(READY)  ## routers, engines and SSH servers killed at random for two minutes (INFERA_CHAOS_SEED chooses other dice)
	@$(BIN)/python -m pytest tests/launch/test_chaos.py -m fuzz -n 0 --timeout 600 $(PYTEST_ARGS)

docs completions: $(READY)  ## write the generated pages and completion scripts again
	@$(BIN)/python docs/generate.py

clean:  ## remove what was built in this clone (environments outside it stay)
	rm -rf .venv .venv-compiled build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ── environments ─────────────────────────────────────────────────────────────────────────────────────
$(BASE): pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "No Python 3.11 or newer found; name one with PYTHON=/path/to/python3." >&2; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv || { rm -rf .venv; \
		echo "$(PYTHON) cannot make a virtual environment (on Debian: apt install python3-venv)." >&2; exit 1; }
	@echo "Setting up .venv (half a minute, this once) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(READY): $(BASE)
	@echo "Adding what the tests need (a minute or two, this once) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

$(COMPILED_READY): $(SOURCES)
	@[ -n "$(PYTHON)" ] || { echo "No Python 3.11 or newer found; name one with PYTHON=/path/to/python3." >&2; exit 1; }
	@[ -x $(COMPILED)/python ] || $(PYTHON) -m venv .venv-compiled || { rm -rf .venv-compiled; exit 1; }
	@echo "Setting up .venv-compiled: the package as users install it (two minutes, this once) …"
	@if [ -e $(COMPILED)/infera ]; then what="--force-reinstall --no-deps ."; else what=".[dev]"; fi; \
		$(COMPILED)/python -m pip install --quiet --disable-pip-version-check $$what
	@$(COMPILED)/infera version | grep -q compiled || { \
		echo "The hot path was not compiled: is there a C compiler (Debian: apt install gcc python3-dev)?" >&2; exit 1; }
	@touch $@

.PHONY: vllm-environment
vllm-environment:
	@VLLM_ENV="$(VLLM_ENV)" VLLM_PYTHON="$(VLLM_PYTHON)" VLLM_TORCH_INDEX="$(VLLM_TORCH_INDEX)" \
		VLLM_VERSION="$(VLLM_VERSION)" TORCH_VERSION="$(TORCH_VERSION)" PYTHON="$(PYTHON)" \
		tests/e2e/install-vllm
