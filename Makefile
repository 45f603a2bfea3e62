# Targets set up what they need and are quick when nothing changed. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STATE := .state
# Each starts two clusters for its tests: 1.5 GB.
TEST_WORKERS ?= 2
# What `make test-long` runs: an area of the product, or `versions`; without it all areas.
AREA ?=
# Instead: what has changed since an area was last green (1, by tests/long.toml), or since a commit (main~3).
CHANGED ?=
# The pairs of versions of AREA=versions, one after the other.
PAIRS ?= blue=3.0.7,green=4.2.4 blue=4.2.4,green=5.0.1 blue=5.0.1,green=4.2.4 blue=4.0.7,green=5.0.1 blue=5.0.1,green=4.0.7
# Other releases of PySpark with which AREA=versions runs the jobs, without pyspark-client, which stops at 4.2.0.
SPARKS ?= 4.3.0
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
	@# Without uv's cache: where a package index sends no cache headers, each install leaves another 1.4 GB of PySpark in it.
	@$(BIN)/uv pip install -q --no-cache --compile-bytecode --python $(BIN)/python -r requirements.txt
	@$(BIN)/uv pip install -q --no-cache --python $(BIN)/python --no-deps -e .
	@# The build leaves a second copy of the metadata, by which Airflow would find our plugin twice.
	@rm -rf plugins/pulsar_fleet.egg-info
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

# What JVMs load, written down once for their next start.
$(STATE)/classes/.written: $(VENV)/.installed
	@rm -rf $(@D)
	@echo "Writing archives of the classes of Pulsar and Spark …"
	@$(BIN)/python -m tests.support.class_archives
	@touch $@

CLUSTERS := -p tests.support.class_archives -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder \
  --ignore=tests/bench --ignore=tests/browser
PYTEST := $(BIN)/python -m pytest $(CLUSTERS)
# What fails runs once more, alone: see CONTRIBUTING.md.
TWICE := $(BIN)/python -m tests.support.second_try
LONG_AREAS := $(BIN)/python -m tests.support.long_areas

.PHONY: check
check: lint ## What to run before each commit: lint and unit tests, without a cluster; 2 minutes
	@$(BIN)/python -m pytest -q -n $(TEST_WORKERS) -m "unit and not long" --ignore=tests/bench --ignore=tests/browser
	@$(LONG_AREAS) check

.PHONY: test
test: setup $(STATE)/classes/.written ## The tests, on real clusters, a real scheduler, a real Spark; half an hour
	@$(TWICE) $(CLUSTERS) -m "not long"

.PHONY: test-ui
test-ui: setup ## The pages of Airflow in a real browser; needs Chromium
	@$(BIN)/python -c "from tests.support.chromium import executable; executable()"
	@$(TWICE) tests/browser -m "not long"

.PHONY: test-releases
test-releases: setup ## A migration followed in the browser, the package in a fresh Airflow of each line; needs Chromium and the package index, 10 minutes
	@$(BIN)/python -c "from tests.support.chromium import executable; executable()"
	@$(BIN)/python -m pytest tests/browser -m long

.PHONY: test-long
test-long: setup $(STATE)/classes/.written ## What takes minutes or depends on chance: AREA=migration, …, all, or CHANGED=1
ifeq ($(AREA),versions)
	@for pair in $(PAIRS); do echo "versions: $$pair"; \
	  PULSAR_FLEET_TEST_VERSION=$$pair $(TWICE) $(CLUSTERS) -m versions --timeout 1200 || exit; done
	@for release in $(SPARKS); do echo "versions: pyspark=$$release"; environment=$(CURDIR)/$(STATE)/pyspark-$$release; \
	  test -x $$environment/bin/python || $(PYTHON) -m venv $$environment || exit; \
	  $(BIN)/uv pip install -q --no-cache --python $$environment/bin/python -r requirements.txt -e . \
	    --override <(printf 'pyspark==%s\npyspark-client; sys_platform == "none"\n' $$release) || exit; \
	  rm -rf plugins/pulsar_fleet.egg-info; \
	  export PATH=$$environment/bin:$$PATH; spark-submit --version 2>&1 | grep "version $$release" || exit; \
	  python -m pytest -q tests/contract -m pyspark --timeout 1200 || exit; done
else
	@areas="$(AREA)"; $(if $(CHANGED),areas=$$($(LONG_AREAS) changed $(CHANGED)) || exit; test -n "$$areas" || exit 0;) \
	  begin=$$(date +%s); commit=$$($(LONG_AREAS) commit); $(TWICE) $(CLUSTERS) -m "long$${areas:+ and ($$areas)}" --timeout 1200 --durations 15 && \
	  $(LONG_AREAS) passed "$$areas" $$(( $$(date +%s) - begin )) $$commit
endif

.PHONY: test-full
test-full: export PULSAR_FLEET_CRASH_POINTS := 50
test-full: export PULSAR_FLEET_MIGRATION_CRASH_POINTS := 25
test-full: export PULSAR_FLEET_KILL_POINTS := 30
test-full: export PULSAR_FLEET_AIRFLOW_POINTS := 40
test-full: export PULSAR_FLEET_FOLLOWER_POINTS := 20
test-full: export PULSAR_FLEET_EDIT_ROUNDS := 200
test-full: export PULSAR_FLEET_MESSAGE_PAIRS := 500
test-full: export PULSAR_FLEET_FAULT_RATES := 1000,10000
test-full: export PULSAR_FLEET_FUZZ_EXAMPLES := 40
test-full: export PULSAR_FLEET_ESTATES := 200
test-full: export PULSAR_FLEET_GENERATED_RUNS := 50
test-full: export PULSAR_FLEET_SERVING_SECONDS := 600
test-full: setup $(STATE)/classes/.written # What `make test` does a few times, as often as it takes to meet a rare moment
	@$(PYTEST) -m "full or long" --dist worksteal --timeout 3600 --exitfirst

.PHONY: test-all
test-all: test test-ui test-releases test-full ## The same, the browser, and many more kill points and rounds of edits, for hours
	@$(MAKE) test-long AREA=versions

.PHONY: lint
lint: setup ## Style, types, layers, words, Docker files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m docs.tools.words
	@$(BIN)/hadolint docker/Dockerfile
	@$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker/compose.yaml

.PHONY: bench
bench: setup ## Speed and memory, as ratios against a floor in the same run
	@$(BIN)/python -m pytest tests/bench -q -s

# Its code runs with every protobuf from 6.30 on, the first release 6.
PROTOC := grpcio-tools==1.72.2

.PHONY: proto
proto: setup ## Write the messages of Pulsar's binary protocol from pulsar_api.proto
	@cd plugins && uv tool run --quiet --from $(PROTOC) python -m grpc_tools.protoc --proto_path=. \
	  --python_out=. --pyi_out=. pulsar_fleet/messages/protocol/pulsar_api.proto

.PHONY: docs
docs: setup ## Write the tables in docs/ from the DAGs' params and the catalogues of policies
	@$(BIN)/python -W ignore -m docs.tools.settings_tables
	@$(BIN)/python -m docs.tools.policy_tables
	@$(BIN)/python -m docs.tools.catalogue_tables
	@$(BIN)/python -W ignore -m docs.tools.provider_page
	@$(BIN)/python -m docs.tools.pairs_table
	@$(BIN)/python -m docs.tools.messages

.PHONY: pictures
pictures: setup ## Take the pictures of pages in docs/images from a running Airflow with two clusters; needs Chromium
	@PULSAR_FLEET_PICTURES=docs/images $(BIN)/python -m pytest -q tests/browser/test_fleet.py tests/browser/test_journey.py

.PHONY: lock
lock: setup ## Compile requirements.txt from pyproject.toml
	@mkdir -p $(STATE) && cp requirements.txt $(STATE)/lock.txt  # What need not change stays as it is.
	@$(BIN)/uv pip compile -q pyproject.toml --extra dev --python-version 3.11 --no-header --no-annotate -o $(STATE)/lock.txt
	@{ echo "# The lock: runtime and test dependencies, compiled from pyproject.toml. Recompile it with: make lock"; \
	   cat $(STATE)/lock.txt; } > requirements.txt

.PHONY: clean
clean: ## Remove what the targets made, the virtual environment included
	@if [ -x $(BIN)/pulsar-fleet ] && [ -d $(STATE)/demo ]; then $(BIN)/pulsar-fleet demo --stop; fi
	@rm -rf $(VENV) $(STATE) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist plugins/*.egg-info
