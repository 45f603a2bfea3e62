# Targets set up what they need and are quick when nothing changed. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STATE := .state
# Each starts two clusters of its own: 1.5 GB and a core.
TEST_WORKERS ?= 2
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Airflow and Spark start dozens of interpreters: without bytecode each compiles all that it imports, for 5 s each.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

.PHONY: prerequisites
prerequisites:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is missing. Debian: apt-get install python3 python3-venv; macOS: brew install python@3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "Python's venv module is missing. Debian: apt-get install python3-venv; macOS: brew install python@3.12"; exit 1; }
	@java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' || { \
	  echo "A JDK 17 or newer is missing. Debian: apt-get install openjdk-17-jdk-headless; macOS: brew install openjdk@17"; exit 1; }
	@mvn -version >/dev/null 2>&1 || { \
	  echo "Maven is missing. Debian: apt-get install maven; macOS: brew install maven"; exit 1; }

$(VENV)/.installed: requirements.txt pyproject.toml | prerequisites
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the locked packages into $(VENV) …"
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv
	@$(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python -r requirements.txt
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-deps -e .
	@touch $@

.PHONY: setup
setup: $(VENV)/.installed ## Install everything that the other targets need

.PHONY: demo
demo: setup ## Onboard, migrate and verify on two real clusters, with live traffic; about 4 minutes
	@$(BIN)/pulsar-fleet demo

.PHONY: up
up: setup ## The same, left running to explore; `make down` ends it
	@$(BIN)/pulsar-fleet demo --keep

.PHONY: down
down: setup ## Stop what `make up` left running
	@$(BIN)/pulsar-fleet demo --stop

.PHONY: test
test: setup ## All tests, against real clusters, a real scheduler, a real Spark
	@$(BIN)/python -m pytest --ignore=tests/bench --ignore=tests/browser \
	  -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: test-ui
test-ui: setup ## The pages of Airflow in a real browser; needs Chromium
	@$(BIN)/python -c "from tests.support.chromium import executable; executable()"
	@$(BIN)/python -m pytest tests/browser

.PHONY: lint
lint: setup ## Style, types, layers, Docker files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/hadolint docker/Dockerfile
	@$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker/compose.yaml

.PHONY: bench
bench: setup ## Speed and memory, as ratios against a floor in the same run
	@$(BIN)/python -m pytest tests/bench -q -s

.PHONY: docs
docs: setup ## Write the tables in docs/ from the DAGs' params and the catalogues of policies
	@$(BIN)/python -W ignore -m docs.tools.settings_tables
	@$(BIN)/python -m docs.tools.policy_tables

.PHONY: lock
lock: setup ## Compile requirements.txt from pyproject.toml
	@$(BIN)/uv pip compile -q pyproject.toml --extra dev --python-version 3.11 --no-header --no-annotate -o $(STATE)/lock.txt
	@{ echo "# The lock: runtime and test dependencies, compiled from pyproject.toml. Recompile it with: make lock"; \
	   cat $(STATE)/lock.txt; } > requirements.txt

.PHONY: clean
clean: ## Remove what the targets made, the virtual environment included
	@if [ -x $(BIN)/pulsar-fleet ] && [ -d $(STATE)/demo ]; then $(BIN)/pulsar-fleet demo --stop; fi
	@rm -rf $(VENV) $(STATE) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist plugins/*.egg-info
