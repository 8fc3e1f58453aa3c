# The commands of the project; CI calls exactly these.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PEERS  := .venv-bench

.PHONY: help setup servers demo check test nemesis bench bench-quick clean

help:  ## what there is
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 13

setup: $(READY) servers  ## everything the other commands need, in .venv

$(READY): pyproject.toml constraints.txt tools/setup
	tools/setup $(PYTHON) $(VENV)
	@touch $@

servers: $(READY)
	@tools/servers $(BIN)

demo: $(READY)  ## watch a crawl of a site on this machine
	@$(BIN)/weft demo

check: $(READY)  ## style, types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

PROCESSES ?= 4

test: setup  ## all tests, by PROCESSES=n at once: most of them wait
	WEFT_TEST_SERVERS=required $(BIN)/pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

SEEDS ?= 5
FIRST ?= 1
ROUNDS ?= 20

nemesis: setup  ## crawls, jobs and schedules of which everything is killed: SEEDS=n, from FIRST=k on; ROUNDS=n of jobs
	$(BIN)/python -m weft.testing.nemesis --seeds $(SEEDS) --first $(FIRST) $(if $(REPORT),--report $(REPORT))
	$(BIN)/python -m weft.testing.nemesis.crawl_jobs --rounds $(ROUNDS)
	$(BIN)/python -m weft.testing.nemesis.beats --rounds $(ROUNDS)
	$(BIN)/python -m weft.testing.nemesis.beats --rounds $(ROUNDS) --broker rabbitmq

$(PEERS)/.ready: $(READY) tools/bench $(wildcard bench/side_by_side/peers.txt bench/side_by_side/jobs/colly/*)
	tools/bench $(PYTHON) $(PEERS)
	@touch $@

bench: setup $(PEERS)/.ready  ## Weft and other crawlers side by side, and all that is measured; an hour
	$(BIN)/python -m bench.side_by_side
	$(BIN)/python -m bench.scaling
	$(BIN)/python -m bench.polite
	$(BIN)/python -m bench.polite --hosts 300 --delay 0.1
	$(BIN)/python -m bench.start
	$(BIN)/python -m bench.bus
	$(BIN)/python -m bench.jobs
	$(BIN)/python -m bench.frontier

bench-quick: setup $(PEERS)/.ready  ## the same on a smaller site, within five minutes
	$(BIN)/python -m bench.side_by_side --pages 2000 --rounds 2 --patience 20 --results bench/results/quick

clean:  ## remove what setup and the tests made
	rm -rf $(VENV) $(PEERS) .weft .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
