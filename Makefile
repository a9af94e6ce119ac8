# Every step of CI and of the first day. Needs make and Python 3.11 or newer; everything else goes into .venv.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
BENCHMARKS := data_path latency scale train_atari train_cartpole step_time operations replay inference_under_training
DEMO_RUN := runs/demo-$(shell date +%Y%m%d-%H%M%S)

.DEFAULT_GOAL := help
.PHONY: help demo test faults fuzz lint format types contracts settings proto proto-check wheel-check football-check bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.all ## train CartPole-v1 with the live display, then evaluate over 100 episodes
	$(BIN)/seedrl train CartPole-v1 --env-steps 400000 --run-dir $(DEMO_RUN)
	$(BIN)/seedrl eval $(DEMO_RUN) --episodes 100

# Many tests wait, so two run at a time; those of a file share what it sets up.
test: $(VENV)/.test ## all tests
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

faults: $(VENV)/.test ## every fault to a system of real processes, in some minutes; renews the table in docs/operations.md
	PYTHONPATH=tests $(BIN)/python -m faults.matrix --write docs/operations.md

fuzz: $(VENV)/.test ## a million wrong messages to broker and learner in one process, thousands to live ones
	PYTHONPATH=tests $(BIN)/python -m fuzz.run

lint: $(VENV)/.test ## style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.test ## repair style and format where that is automatic
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.test ## mypy --strict
	$(BIN)/mypy

contracts: $(VENV)/.test ## which package may import which
	$(BIN)/lint-imports

settings: $(VENV)/.test ## write docs/settings.md from the models
	$(BIN)/seedrl config --markdown > docs/settings.md

proto: $(VENV)/.test ## regenerate the stubs from the .proto files
	$(BIN)/python proto/generate.py

proto-check: $(VENV)/.test ## fail when the committed stubs differ from the .proto files
	$(BIN)/python proto/generate.py --check

wheel-check: $(VENV)/.test ## build the wheel and try its actor-only installation
	.ci/wheel-check $(BIN)/python

football-check: $(VENV)/.all ## build Google Research Football in .football, test and train on it: ten minutes, on Debian 12
	.ci/football-check $(BIN)

bench: $(VENV)/.all ## the benchmarks, one after the other
	@for name in $(BENCHMARKS); do echo "== benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py || exit 1; done

clean: ## remove the virtual environment and built files; runs/ stays
	rm -rf $(VENV) dist build examples/javascript_client/node_modules .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "error: Python 3.11 or newer is needed; name yours: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.all: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[all]' -c constraints.txt
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]' -c constraints.txt
	@touch $@ $(VENV)/.all
