# The project's door: every target makes what it needs, from Python >= 3.11 and make alone.
# Variables: ARGS (passed on), N, SEED, ONLY, ROUNDS (of chaos and bench), PYTHON (interpreter for a new environment), UV (empty: pip although uv is there), VENV.
# Paths are relative throughout, so that a checkout may lie in a folder with spaces.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

PYTHON ?=
UV ?= uv
VENV := .venv
ARGS :=
N := 1
SEED :=
ONLY :=
BIN := $(VENV)/bin
STAMP := $(VENV)/installed.stamp
COMPILE := $(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-annotate --quiet --custom-compile-command "make requirements"

export PYTHON UV

.PHONY: help venv test lint lint-ruff lint-format lint-types lint-imports format demo up chaos judge bench bench-large bench-verify bench-requirements replay-large requirements clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' Makefile

venv: $(STAMP) ## the virtual environment (.venv), pinned and hashed

$(STAMP): requirements/dev.txt requirements/venv.sh pyproject.toml
	@sh requirements/venv.sh '$(VENV)'
	@touch '$@'

test: $(STAMP) ## every test; ARGS go to pytest: make test ARGS='tests/tidy -x'
	$(BIN)/python -m pytest $(ARGS)

lint: lint-ruff lint-format lint-types lint-imports ## ruff, format, mypy --strict, import rules

lint-ruff: $(STAMP)
	$(BIN)/ruff check

lint-format: $(STAMP)
	$(BIN)/ruff format --check

lint-types: $(STAMP)
	$(BIN)/python -m mypy

lint-imports: $(STAMP)
	$(BIN)/lint-imports

format: $(STAMP) ## rewrite the sources in the project's form
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

demo: $(STAMP) ## 2,000 webhooks, 250 refunds and charges of a Stripe that loses answers, every part killed, then the count
	@$(BIN)/onceflow demo $(ARGS)

up: $(STAMP) ## the whole system on this machine, data in .onceflow/, until Ctrl-C
	@$(BIN)/onceflow up $(ARGS)

chaos: $(STAMP) ## faults on a running system, then the checker: make chaos N=5 SEED=7 ONLY=P1,K8 JOBS=2 ARGS=--json
	@$(BIN)/python -m tests.chaos --runs '$(N)' $(if $(SEED),--seed '$(SEED)') $(if $(ONLY),--only '$(ONLY)') $(if $(JOBS),--jobs '$(JOBS)') $(ARGS)

judge: $(STAMP) ## Stripe's own command line and stripe-mock judge the simulator; needs npm and Go, fetches both once
	$(BIN)/python -m pytest -m judge tests/simulator/judge $(ARGS)

bench: $(STAMP) ## the ratios against what one would write instead, about 15 minutes; ONLY=group,figure ROUNDS=n ARGS=--quick
	$(BIN)/python -m bench $(if $(ONLY),ONLY=$(ONLY)) $(if $(ROUNDS),ROUNDS=$(ROUNDS)) $(ARGS)

bench-large: $(STAMP) ## the processor beside 10,000,000 markers, about 15 minutes and 20 GB of disk; ROUNDS=n ARGS=--quick
	$(BIN)/python -m bench.large $(if $(ROUNDS),ROUNDS=$(ROUNDS)) $(ARGS)

bench-verify: $(STAMP) ## the proof of 1,000,000 events, about 15 minutes and 15 GB of disk; ROUNDS=n
	$(BIN)/python -m bench.verify EVENTS=1000000 $(if $(ROUNDS),ROUNDS=$(ROUNDS)) $(ARGS)

replay-large: $(STAMP) ## 100,000 events replayed from offset 0 twice beside live traffic, about 5 minutes; ARGS='--events 10000'
	@$(BIN)/python -m tests.processor.replay.beside_live $(ARGS)

bench-requirements: ## pin the bench's peers anew; newer versions: make bench-requirements ARGS=--upgrade
	@$(UV) --version >/dev/null 2>&1 || { echo 'make bench-requirements needs uv. Fix: pip install uv' >&2; exit 1; }
	$(UV) pip compile bench/peers/requirements.in --constraints requirements/dev.txt --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-annotate --quiet --custom-compile-command "make bench-requirements" \
		$(ARGS) --output-file bench/peers/requirements.txt

requirements: ## pin anew after a change of pyproject.toml; newer versions: make requirements ARGS=--upgrade
	@$(UV) --version >/dev/null 2>&1 || { echo 'make requirements needs uv (it pins for every Python and platform at once). Fix: pip install uv' >&2; exit 1; }
	$(COMPILE) --all-extras $(ARGS) --output-file requirements/dev.txt pyproject.toml
	$(COMPILE) --constraints requirements/dev.txt --output-file requirements/runtime.txt pyproject.toml
	sed -n 's/^requires = \["\(.*\)"\]$$/\1/p' pyproject.toml | \
		$(COMPILE) --constraints requirements/dev.txt --output-file requirements/build.txt -

clean: ## remove the environment and caches; .onceflow/ holds your data and stays
	rm -rf '$(VENV)' bench/.venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find schemas producer processor reconciler simulator console tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
