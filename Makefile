# `make help` lists the targets. Everything happens in virtual environments inside this directory.

SHELL := /bin/bash
# Where it is set, every process compiles all that it imports, and assertions are rewritten in every run.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# A Python that is new enough, looked for on PATH. 3.11 comes first: the reference library of the interoperability tests runs on nothing newer.
FIND_PYTHON := for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; exit; }; done; \
	ls -d $(HOME)/.pyenv/versions/3.1[1-9]*/bin/python 2>/dev/null | sort -V | head -n 1

# PYTHON=python3.13 gives another interpreter, with an environment of its own (.venv-3.13).
ifeq ($(origin PYTHON), undefined)
PYTHON := $(shell $(FIND_PYTHON))
VENV ?= .venv
else
VENV ?= .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
endif
ifeq ($(strip $(PYTHON)),)
$(error no Python 3.11 or newer found: install one, or name it as in `make $(MAKECMDGOALS) PYTHON=/path/to/python3.11`)
endif

OLDEST := .venv-oldest
ORCHESTRATION := .venv-orchestration
SAIL := .venv-sail
INSTALL := scripts/install.sh
QUICK := -m "not spark and not slow and not interop and not servers"
UNIT := --ignore tests/unit/support tests/unit tests/test_layers.py tests/test_shape.py tests/test_flow.py
FAR := tests/robustness/crash $(addprefix tests/unit/,commit cube/write cube/members maintenance rows)
PLAIN := $(addprefix tests/unit/,io metadata scan cube/execute) tests/unit/runtime/test_fast_paths.py tests/golden

# `make test` runs the newest PySpark, `make test-spark` another one.
SPARK ?= 4.1
SPARK_TESTS := test_classic_driver.py::TestSparkClassic test_datasource_read.py test_datasource_write.py

# gRPC once handed Sail's client an answer that it could not parse; why is not known. A test that meets this error, and no other, has another try, which pytest counts as a rerun.
SAIL_RERUN := --reruns 1 --only-rerun "Exception deserializing response"

# Arguments for pytest, e.g. make test ARGS="-k index -x"; --thin 6 runs one case in six of each test; how many processes run the tests (0: this one, for a debugger).
ARGS ?=
WORKERS ?= 2
# The demo: full (22 million source rows) or small; the store's URL, empty for a temporary directory.
SIZE ?= full
STORE ?=
# What runs the demo: spark; sail or dask, which need no Java.
ENGINE ?= spark
# How many damaged stores the fuzzer reads; how many groups the queries of `make many-groups` have.
COUNT ?= 100000
# How often `make flaky` runs the suite.
REPEATS ?= 3
# How long each state machine of the soak runs.
SOAK_SECONDS ?= 300

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## /\1\t/' | awk -F '\t' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: env
env: $(VENV)/.full ## the virtual environment (.venv) with everything; remade when pyproject.toml changes

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# Setuptools warns at every editable install, in a box, that a folder of the package's name comes first: here it is the package.
$(VENV)/.full $(VENV)/.bench $(VENV)/.demo $(VENV)/.quick $(VENV)/.release $(SAIL)/.sail: export PYTHONWARNINGS := ignore

$(VENV)/.full: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) $(VENV) --editable '.[dev]'
	touch $(VENV)/.demo $(VENV)/.quick $@

$(VENV)/.bench: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) $(VENV) --editable '.[bench]'
	touch $(VENV)/.full $(VENV)/.demo $(VENV)/.quick $@

$(VENV)/.release: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) $(VENV) --editable '.[release]'
	touch $(VENV)/.quick $@

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) $(VENV) --editable '.[demo]'
	touch $@

$(VENV)/.quick: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) $(VENV) --editable '.[quick]'
	touch $@

$(OLDEST)/.quick: pyproject.toml scripts/oldest.py
	$(PYTHON) -m venv $(OLDEST)
	$(PYTHON) scripts/oldest.py pyproject.toml > $(OLDEST)/constraints.txt
	$(INSTALL) $(OLDEST) --constraint $(OLDEST)/constraints.txt --editable '.[quick,daft]'
	touch $@

$(SAIL)/.sail: pyproject.toml
	$(PYTHON) -m venv $(SAIL)
	$(INSTALL) $(SAIL) --editable '.[test-sail]'
	touch $@

.venv-spark%/.quick: pyproject.toml
	$(PYTHON) -m venv .venv-spark$*
	$(INSTALL) .venv-spark$* --editable '.[quick,java]' 'pyspark==$*.*'
	touch $@

.PHONY: test
test: $(VENV)/.full ## every test, newest versions, with Spark and the real kartothek
	$(VENV)/bin/python -m pytest -n $(WORKERS) $(ARGS)

# What the other steps have shown in short runs alone: all cases on every version, all examples, long runs.
.PHONY: test-exhaustive
test-exhaustive: $(VENV)/.full $(VENV)/.release ## what `make test` leaves out, in hours: all cases, models and seeds, every version, Sail, the distributions, long soaks
	HYPOTHESIS_PROFILE=exhaustive $(VENV)/bin/python -m pytest -n $(WORKERS) --exhaustive $(ARGS)
	$(MAKE) test-oldest
	for version in 4.1 4.2; do $(MAKE) test-spark SPARK=$$version || exit 1; done
	$(MAKE) test-plain test-far test-sail test-orchestration dist
	$(MAKE) soak SOAK_SECONDS=60

.PHONY: mutants
mutants: $(VENV)/.full ## whether the tests notice sixty faults in the package; ARGS="--only 3 7" for some of them
	$(VENV)/bin/python -m tests.mutants $(ARGS)

.PHONY: test-quick
test-quick: $(VENV)/.quick ## the tests without Spark and other libraries' environments; PYTHON=python3.13 for another interpreter
	$(VENV)/bin/python -m pytest -n $(WORKERS) $(QUICK) $(ARGS)

.PHONY: test-unit
test-unit: $(VENV)/.quick ## every unit test, of those with many cases the first, in under a minute: the loop while you work; ARGS="--thin 1" for all cases
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-short} $(VENV)/bin/python -m pytest -n $(WORKERS) $(QUICK) --thin 1000 $(UNIT) $(ARGS)

.PHONY: test-plain
test-plain: $(VENV)/.quick ## the quick tests of reading and of documents without the fast paths, which rely on internals of Arrow
	KARTOTHEK_CUBE_FAST=0 $(VENV)/bin/python -m pytest -n $(WORKERS) $(QUICK) $(PLAIN) $(ARGS)

.PHONY: test-far
test-far: $(VENV)/.quick ## tests of writes and crashes with stores in memory that say they wait for a server
	$(VENV)/bin/python -m pytest -n $(WORKERS) --far $(FAR) $(ARGS)

.PHONY: test-oldest
test-oldest: $(OLDEST)/.quick ## the quick tests with the oldest versions that pyproject.toml declares
	$(OLDEST)/bin/python -m pytest -n $(WORKERS) $(QUICK) $(ARGS)

.PHONY: test-sail
test-sail: $(SAIL)/.sail ## the verbs, the data source and the demo on Sail, without Java, in an environment of its own (.venv-sail)
	$(SAIL)/bin/python -m pytest -n 0 $(SAIL_RERUN) tests/integration/sail $(ARGS)

.PHONY: test-spark
test-spark: .venv-spark$(SPARK)/.quick ## every behaviour of the verbs, and the data source, on another version of PySpark: SPARK=4.1 (4.1, 4.2)
	.venv-spark$(SPARK)/bin/python -m pytest -n 0 $(addprefix tests/integration/spark/,$(SPARK_TESTS)) $(ARGS)

.PHONY: coverage
coverage: $(VENV)/.quick ## which lines the unit and contract tests reach, as a table of the modules that are not wholly covered
	$(VENV)/bin/python -m pytest -n $(WORKERS) $(QUICK) --cov --cov-report=term-missing:skip-covered $(UNIT) tests/contract $(ARGS)

.PHONY: flaky
flaky: $(VENV)/.full ## every test again and again, in another order each time, with more processes than cores; REPEATS=3, ARGS="tests/unit/commit"
	for repeat in $$(seq $(REPEATS)); do $(VENV)/bin/python -m pytest -n $$((2 * $(WORKERS) + 1)) --random-order $(ARGS) || exit 1; done

.PHONY: lint
lint: $(VENV)/.full ## ruff (rules and format) and mypy --strict
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

.PHONY: format
format: $(VENV)/.full ## lay out the source and sort its imports
	$(VENV)/bin/ruff check --select I --fix --quiet .
	$(VENV)/bin/ruff format .

.PHONY: docs
docs: $(VENV)/.full ## the documentation as HTML, in docs/_build/html
	$(VENV)/bin/python -m sphinx -E -W --keep-going -b html docs docs/_build/html

.PHONY: demo
demo: $(if $(filter sail,$(ENGINE)),$(SAIL)/.sail,$(VENV)/.demo) ## the grocery cube, end to end through Spark; SIZE=full|small, STORE=<url>, ENGINE=spark|sail|dask
	$(dir $<)bin/python examples/$(if $(filter dask,$(ENGINE)),grocery_dask.py,grocery.py --engine $(ENGINE)) --size $(SIZE) $(if $(STORE),--store '$(STORE)')

.PHONY: demo-streaming
demo-streaming: $(VENV)/.demo ## weeks that stream into the grocery cube, killed in the middle; SIZE=full|small, STORE=<url>
	$(VENV)/bin/python examples/streaming.py --size $(SIZE) $(if $(STORE),--store '$(STORE)')

.PHONY: notebook
notebook: $(VENV)/.demo ## runs examples/grocery.ipynb; the notebook with its outputs, and a page of HTML, are in docs/_build/notebook
	$(VENV)/bin/python scripts/notebook.py examples/grocery.ipynb docs/_build/notebook

.PHONY: bench
bench: $(VENV)/.bench ## the benchmarks, each against its peers on the same files; the figures go to docs/benchmarks.md; ARGS="--only cube", ARGS=--small
	-$(VENV)/bin/python -c "from tests.integration.interop.environments import KARTOTHEK, find_or_create; find_or_create(KARTOTHEK)"
	$(VENV)/bin/python benchmarks/run.py $(ARGS)

$(ORCHESTRATION)/.complete: pyproject.toml examples/orchestration/requirements.txt
	test -x $(ORCHESTRATION)/bin/python || $(PYTHON) -m venv $(ORCHESTRATION)
	$(INSTALL) $(ORCHESTRATION) --editable . pytest -r examples/orchestration/requirements.txt
	touch $@

.PHONY: test-orchestration
test-orchestration: $(ORCHESTRATION)/.complete ## the recipes for Dagster, Kedro and Airflow, in an environment of their own
	$(ORCHESTRATION)/bin/python -m pytest -q -c /dev/null --rootdir . --noconftest -p no:cacheprovider tests/integration/orchestration

.PHONY: dist
dist: $(VENV)/.release ## the wheel and the source distribution, in dist, checked: contents, types of public names, the tests in the sources
	$(VENV)/bin/python scripts/distribution.py

.PHONY: soak
soak: $(VENV)/.full ## long runs: interleaved writers and readers over faulty stores, many processes, killed writers; SOAK_SECONDS=300 for each of the first three
	$(VENV)/bin/python -m tests.robustness.soak.state_machine --world dataset --seconds $(SOAK_SECONDS)
	$(VENV)/bin/python -m tests.robustness.soak.state_machine --world rows --seconds $(SOAK_SECONDS)
	$(VENV)/bin/python -m tests.robustness.soak.state_machine --world cube --seconds $(SOAK_SECONDS)
	$(VENV)/bin/python -m tests.robustness.soak.processes
	$(VENV)/bin/python -m tests.robustness.soak.kills
	$(VENV)/bin/python -m tests.robustness.soak.readers
	$(VENV)/bin/python -m tests.robustness.soak.streams --kills 50

.PHONY: many-groups
many-groups: $(VENV)/.full ## queries of many partitions and groups by Spark, of which `make test` has fewer; COUNT=100000
	KARTOTHEK_CUBE_GROUPS=$(COUNT) $(VENV)/bin/python -m pytest -n 0 tests/integration/spark/test_many_groups.py --durations=0 $(ARGS)

.PHONY: fuzz
fuzz: $(VENV)/.quick ## long runs of the property tests and of the fuzzer of damaged stores, with fresh random data; COUNT=100000 damaged stores
	HYPOTHESIS_PROFILE=fuzz $(VENV)/bin/python -m pytest -m "hypothesis and not spark" $(ARGS)
	HYPOTHESIS_PROFILE=fuzz $(VENV)/bin/python -m pytest tests/property/test_cube_write_model.py
	$(VENV)/bin/python -m tests.robustness.fuzz --count $(COUNT)

.PHONY: system-deps
system-deps: ## Chromium, Node and, in .node, the test server of Azure; Java comes from the Python package index where the system has none
	@scripts/system-deps.sh

.PHONY: clean
clean: ## remove the environments and everything that was built
	rm -rf .venv .venv-* .node docs/_build build dist .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse artifacts *.egg-info
	find kartothek_cube tests examples benchmarks scripts docs -name __pycache__ -type d -prune -exec rm -rf {} +
