# `make run` sets everything up and starts JupyterLab on this machine; `make test` runs every test.
# Both install what they need on Debian and Ubuntu; elsewhere they say what is missing.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# pytest keeps the tests that it has prepared beside them, and would prepare them anew in every worker
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
# The system's own Python, where it will do: Debian's starts in a third of the time, and computes in two thirds, of one
# that a version manager has built without profiles of what programs do.
SYSTEM_PYTHON := /usr/bin/python3
PYTHON ?= $(shell $(SYSTEM_PYTHON) -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && \
    echo $(SYSTEM_PYTHON) || echo python3)
# What computes comes first. Tests on the cluster and those on real time mostly wait, so three workers have the former and
# three the latter side by side. Beside them, and before them in the kernel's eyes, runs what needs little of the processor:
# reconnecting, which is about seconds, then what depends on the release of Slurm, on the oldest one, and the main ones
# of that on the newest.
RECONNECTION := tests/cluster_tests/test_reconnection.py
PYTEST := $(VENV)/bin/python -m pytest -rxXfER --durations 15
COMPUTING := -p no:rerunfailures -m 'not cluster and not real_time' tests/unit
BY_FILE := --dist loadfile --no-loadscope-reorder
# These are read in place of all of tests/unit. tests/conftest.py refuses a marked test in any other.
REAL_TIME = $(sort $(shell grep -rl --include='test_*.py' real_time tests/unit))
# The thousands of little files of what computes lie in memory, where there is room, and programs can be run from there.
IN_MEMORY = $(shell tests/in_memory.sh)
BEHIND := nice -n 10
EXAMPLES ?= 2000
# What the cluster tests need is built before them, as no test may take that long. A machine that cannot hold a cluster
# (exit code 3) is no failure: there the tests are skipped.
PRACTICE_CLUSTER := $(PYTHON) tests/practice_cluster
NO_CLUSTER_HERE := [ $$? = 3 ]
# Nor is a Debian sid that cannot be installed today (exit code 4), where none was built before.
NO_SID_TODAY := [ $$? = 3 -o $$? = 4 ]
SCRIPTS := $(wildcard jobscripts/*.sh jobscripts/*/*.sh tests/*.sh tests/practice_cluster/*.sh) .ci/run

.PHONY: help run test test-computing test-cluster test-real-time test-beside build-clusters prepare quick fuzz check check-python check-scripts audit unit cluster cluster-down bench bench-start bench-list bench-tunnel bench-round-trips bench-page bench-panel bench-faults bench-scheduler-load bench-classroom bench-polling-model bench-sampling bench-copy bench-cold-start clean

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | grep -v '^bench' | sed -E 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 21
	@printf '\nBenchmarks, such as `make bench` (the Makefile says what each measures):\n'
	@grep -hE '^bench[a-z-]*:.*##' $(MAKEFILE_LIST) | sed 's/:.*//' | paste -sd ' ' | fold -s -w 78 | sed 's/^/  /; s/ $$//'

run: $(VENV)/with-jupyter ## set up, and start JupyterLab here (no cluster needed)
	$(VENV)/bin/launch-notebook $(if $(filter --host% --cluster% --course%,$(ARGS)),,--cluster here) $(ARGS)

test: ## set up, and run all checks and tests, also on the cluster
	tests/packages.sh
ifdef ARGS
	$(MAKE) --no-print-directory check
	$(VENV)/bin/python -m pytest $(ARGS)
else
	$(MAKE) --no-print-directory -j 3 --output-sync=line build-clusters check test-computing
	$(MAKE) --no-print-directory -j 3 --output-sync=target test-cluster test-real-time test-beside
endif

cluster: $(VENV)/with-jupyter ## start the practice cluster: a real Slurm here (needs root)
	tests/as-root.sh $(PYTHON) tests/practice_cluster up $(ARGS)
	@echo "launch-notebook is in $(VENV)/bin; to have it on your PATH:  . $(VENV)/bin/activate"

cluster-down: ## stop the practice cluster
	tests/as-root.sh $(PYTHON) tests/practice_cluster down $(ARGS)

# Much of it is waiting for packages to arrive, and it needs nothing of $(VENV), which is made meanwhile.
build-clusters:
	$(BEHIND) $(PRACTICE_CLUSTER) build --slurm 24.11 --slurm 22.05 \
	    --image torch-cpu --image tensorflow-cpu --image jupyterlab || $(NO_CLUSTER_HERE)
	$(BEHIND) $(PRACTICE_CLUSTER) build --slurm sid || $(NO_SID_TODAY)

# Three workers: their tests wait half of the time.
test-computing: prepare
	BRANCH_COVERAGE=1 $(IN_MEMORY) $(PYTEST) $(COMPUTING) -n 3 --dist worksteal

# What every worker would make for itself at once: pytest's asserts, hypothesis's constants and characters. What is wrong
# with a test is said when it is to run.
prepare: $(VENV)/with-tests
	$(VENV)/bin/python -c 'from hypothesis.internal import charmap; charmap.charmap()'
	-$(VENV)/bin/python -m pytest --collect-only -q >/dev/null

test-cluster:
	$(BEHIND) $(PYTEST) -n 3 $(BY_FILE) tests/cluster_tests --ignore=$(RECONNECTION)

test-real-time:
	rm -rf .bash-trace && mkdir -m 1777 .bash-trace
	NBL_TEST_BASH=$(CURDIR)/tests/traced_bash.sh $(BEHIND) tests/own_processes.sh $(PYTEST) -n 3 $(BY_FILE) -m real_time $(REAL_TIME)
	$(VENV)/bin/python tests/script_coverage.py

test-beside:
	$(PYTEST) $(RECONNECTION)
	$(PYTEST) -m each_slurm --slurm 22.05 tests/cluster_tests
	$(PYTEST) -rsxXfER -m newest_slurm --slurm sid tests/cluster_tests

quick: $(VENV)/with-tests ## the tests without cluster and real time: before a commit
	$(IN_MEMORY) $(VENV)/bin/python -m pytest -q $(COMPUTING) -n 3 --dist worksteal $(ARGS)

unit: $(VENV)/with-tests ## the tests that need no cluster
	$(VENV)/bin/python -m pytest -m 'not cluster' -n 3 --dist worksteal $(ARGS)

# Every test that hypothesis finds examples for, with many more of them, and as long as it takes.
fuzz: $(VENV)/with-tests ## read random input: make fuzz EXAMPLES=20000 takes hours
	FUZZ_EXAMPLES=$(EXAMPLES) $(BEHIND) $(VENV)/bin/python -m pytest -q -m hypothesis tests/unit --timeout 0 -n 2 \
	    --dist worksteal $(ARGS)

check: check-python check-scripts audit ## check types, style, shell scripts, and do the audit

check-python: $(VENV)/with-tests
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	tests/type_check.sh $(VENV)

check-scripts: $(VENV)/with-tests
	tests/shell_check.sh $(SCRIPTS)

audit: $(VENV)/with-tests ## look up known vulnerabilities of dependencies (network)
	tests/audit.sh $(VENV)

bench: $(VENV)/with-tests ## time a launch, and compare it with the fastest possible one, on the practice cluster
	tests/as-root.sh $(VENV)/bin/python benchmarks/launch.py $(ARGS)

bench-start: $(VENV)/with-tests ## time how commands start, beside python -c pass (needs no cluster)
	$(VENV)/bin/python benchmarks/start.py $(ARGS)

bench-round-trips: $(VENV)/with-tests ## count the round trips of a launch, beside ssh login sbatch, on the practice cluster
	tests/as-root.sh $(VENV)/bin/python benchmarks/round_trips.py $(ARGS)

bench-list: $(VENV)/with-tests ## time list with 250 sessions, and count its queries, on the practice cluster
	tests/as-root.sh $(VENV)/bin/python benchmarks/listing.py $(ARGS)

bench-tunnel: $(VENV)/with-tests ## compare the tunnel's speed with ssh -L, on the practice cluster
	tests/as-root.sh $(VENV)/bin/python benchmarks/tunnel.py $(ARGS)

bench-page: $(VENV)/with-tests ## compare JupyterLab's page over slow networks with ssh -L, on the practice cluster
	tests/as-root.sh $(VENV)/bin/python benchmarks/page.py $(ARGS)

bench-panel: $(VENV)/with-tests ## compare JupyterLab's page with the panel and without it
	$(VENV)/bin/python benchmarks/panel.py $(ARGS)

bench-faults: $(VENV)/with-tests ## measure how soon JupyterLab works again after each network fault (half an hour)
	tests/as-root.sh $(VENV)/bin/python benchmarks/faults.py $(ARGS)

bench-scheduler-load: $(VENV)/with-tests ## count the RPCs of waiting sessions, and compare with other programs (an hour)
	tests/as-root.sh $(VENV)/bin/python benchmarks/scheduler_load.py $(ARGS)

bench-classroom: $(VENV)/with-tests ## let forty students launch in the same minute, on the practice cluster (ten minutes)
	tests/as-root.sh $(VENV)/bin/python benchmarks/classroom.py $(ARGS)

bench-polling-model: ## count by a model what the polls of 10,000 users cost a scheduler (needs no cluster)
	$(PYTHON) benchmarks/polling_model.py $(ARGS)

bench-sampling: $(VENV)/with-tests ## measure the cost of sampling a job's usage (two minutes)
	tests/as-root.sh $(VENV)/bin/python benchmarks/sampling.py $(ARGS)

bench-copy: $(VENV)/with-tests ## compare copying a large file with scp, on the practice cluster
	tests/as-root.sh $(VENV)/bin/python benchmarks/copying.py $(ARGS)

bench-cold-start: $(VENV)/with-tests ## time JupyterLab's start from a slow shared file system, and from a copy on the node
	tests/as-root.sh $(VENV)/bin/python benchmarks/cold_start.py $(ARGS)

clean: ## remove the virtual environment
	rm -rf $(VENV)

# The environment is created again when pyproject.toml changes.
$(VENV)/with-jupyter: pyproject.toml
	PYTHON="$(PYTHON)" tests/venv.sh $(VENV) jupyter && touch $@

$(VENV)/with-tests: pyproject.toml
	PYTHON="$(PYTHON)" tests/venv.sh $(VENV) jupyter,test,check && touch $(VENV)/with-jupyter $@
