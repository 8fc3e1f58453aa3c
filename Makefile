# The commands of the project; CI calls exactly these.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PEERS  := .venv-bench

.PHONY: help setup servers demo check test nemesis bench bench-quick bench-compare docs clean

help:  ## list these commands
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 15

setup: $(READY) servers  ## install everything the other commands need, into .venv

$(READY): pyproject.toml constraints.txt tools/setup
	tools/setup $(PYTHON) $(VENV)
	@touch $@

servers: $(READY)
	@tools/servers $(BIN)

demo: $(READY)  ## watch a crawl of a site on this machine
	@$(BIN)/uttu demo

check: $(READY)  ## check style, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

PROCESSES ?= 5

# Tests start hundreds of processes, and each would compile what has changed since the setup; so they may keep it.
unexport PYTHONDONTWRITEBYTECODE
test: setup  ## run all tests, in PROCESSES=n processes
	UTTU_TEST_SERVERS=required $(BIN)/pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

SEEDS ?= 5
FIRST ?= 1
ROUNDS ?= 20

nemesis: setup  ## kill everything under crawls, jobs and servers; SEEDS=n FIRST=k ROUNDS=n KINDS=regex
	$(BIN)/python -m tests.harness.nemesis --seeds $(SEEDS) --first $(FIRST) $(if $(REPORT),--report $(REPORT))
	$(BIN)/python -m tests.harness.nemesis.crawl_jobs --rounds $(ROUNDS)
	$(BIN)/python -m tests.harness.nemesis.beats --rounds $(ROUNDS)
	$(BIN)/python -m tests.harness.nemesis.beats --rounds $(ROUNDS) --broker rabbitmq
	$(BIN)/python -m tests.harness.nemesis.server_kills --seeds $(SEEDS) --first $(FIRST)
	$(BIN)/python -m tests.harness.nemesis.hostile $(if $(KINDS),--kinds '$(KINDS)') $(if $(TABLE),--table $(TABLE))

$(PEERS)/.ready: $(READY) tools/bench $(wildcard bench/side_by_side/peers.txt bench/side_by_side/jobs/colly/*)
	tools/bench $(PYTHON) $(PEERS)
	@touch $@

bench: setup $(PEERS)/.ready  ## run all benchmarks, also of other crawlers; takes almost two hours
	$(BIN)/python -m bench.side_by_side
	$(BIN)/python -m bench.scaling
	$(BIN)/python -m bench.polite
	$(BIN)/python -m bench.polite --hosts 300 --delay 0.1
	$(BIN)/python -m bench.start
	$(BIN)/python -m bench.bus
	$(BIN)/python -m bench.jobs
	$(BIN)/python -m bench.frontier
	$(BIN)/python -m bench.dashboard

bench-quick: setup $(PEERS)/.ready  ## compare crawlers on smaller sites, in ten minutes
	$(BIN)/python -m bench.side_by_side plain tls http2 --pages 2000 --rounds 2 --patience 20 --results bench/results/quick
	$(BIN)/python -m bench.side_by_side large --pages 200 --rounds 2 --patience 20 --results bench/results/quick

bench-compare: setup $(PEERS)/.ready  ## compare with the source tree at BEFORE=path, page by page; KINDS=names
	$(BIN)/python -m bench.pages $(KINDS) --before $(BEFORE)

docs: setup  ## make the pictures of the dashboard in docs/images
	$(BIN)/python tools/screenshots

clean:  ## remove everything that setup and the tests created
	rm -rf $(VENV) $(PEERS) .uttu .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
