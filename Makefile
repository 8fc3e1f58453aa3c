# The commands of the project; CI calls exactly these.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help setup demo check test clean

help:  ## what there is
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(READY)  ## everything the other commands need, in .venv

$(READY): pyproject.toml constraints.txt tools/setup
	tools/setup $(PYTHON) $(VENV)
	@touch $@

demo: setup  ## watch a crawl of a site on this machine
	@$(BIN)/weft demo

check: setup  ## style, types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup  ## all tests
	$(BIN)/pytest

clean:  ## remove what setup and the tests made
	rm -rf $(VENV) .weft .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
