# Two commands: `make run` sets everything up and starts JupyterLab on this machine; `make test` runs every test.
# Both install what they need on Debian and Ubuntu; elsewhere they say what is missing.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
VENV := .venv
PYTHON ?= python3
# The tests use real servers and real time: one that fails runs again, and the summary lists it as RERUN.
# Look into those: a bug that shows seldom is a bug. While tests on the cluster wait, those without one compute: so
# they run together. Healing is about seconds and timing about microseconds: they run alone.
ALONE := tests/test_healing.py tests/test_timing_cluster.py
PYTEST := $(VENV)/bin/python -m pytest --reruns 2 -rxXfER --durations 15
# What the cluster tests need is built before them, as no test may take that long. A machine that cannot hold a cluster
# (exit code 3) is no failure: there the tests are skipped.
PRACTICE_CLUSTER := $(PYTHON) tests/cluster
NO_CLUSTER_HERE := [ $$? = 3 ]
SCRIPTS := $(wildcard jobscripts/*.sh tests/*.sh tests/cluster/*.sh) .ci/run

.PHONY: help run test check unit cluster cluster-down bench bench-tunnel bench-faults bench-politeness bench-sampling bench-copy clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 24

run: $(VENV)/with-jupyter ## set up, and start JupyterLab here: the embedded default, no cluster needed
	$(VENV)/bin/launch-notebook $(if $(filter --host% --cluster% --course%,$(ARGS)),,--cluster here) $(ARGS)

test: $(VENV)/with-tests ## set up, and run every check and test, those on the practice cluster included
	tests/packages.sh
	$(MAKE) --no-print-directory check
ifdef ARGS
	$(VENV)/bin/python -m pytest $(ARGS)
else
	$(PRACTICE_CLUSTER) build --image tensorflow-cpu --image torch-cpu --image jupyterlab || $(NO_CLUSTER_HERE)
	$(PYTEST) -n 4 --dist loadfile --no-loadscope-reorder $(patsubst %,--ignore=%,$(ALONE))
	$(PRACTICE_CLUSTER) build --slurm 22.05 || $(NO_CLUSTER_HERE)
	$(PYTEST) -m each_slurm --slurm 22.05 -n 3 --dist loadfile --no-loadscope-reorder
	$(PYTEST) $(ALONE)
endif

unit: $(VENV)/with-tests ## the tests that need no cluster
	$(VENV)/bin/python -m pytest -m 'not cluster' -n 3 $(ARGS)

check: $(VENV)/with-tests ## types, style, shell scripts
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy --config-file pyproject.toml -p tests.cluster
	shellcheck -x $(SCRIPTS)

cluster: $(VENV)/with-jupyter ## bring up the practice cluster: a real Slurm on this machine, to try launch-notebook on (root)
	tests/as-root.sh $(PYTHON) tests/cluster up $(ARGS)
	@echo "launch-notebook is in $(VENV)/bin; to have it on your PATH:  . $(VENV)/bin/activate"

cluster-down: ## take the practice cluster down again
	tests/as-root.sh $(PYTHON) tests/cluster down $(ARGS)

bench: $(VENV)/with-tests ## time a launch against its floor, on the practice cluster
	tests/as-root.sh $(VENV)/bin/python benchmarks/launch.py $(ARGS)

bench-tunnel: $(VENV)/with-tests ## time the tunnel beside ssh -L, on the practice cluster
	tests/as-root.sh $(VENV)/bin/python benchmarks/tunnel.py $(ARGS)

bench-faults: $(VENV)/with-tests ## measure how soon JupyterLab is usable again after each fault (half an hour)
	tests/as-root.sh $(VENV)/bin/python benchmarks/faults.py $(ARGS)

bench-politeness: $(VENV)/with-tests ## count what waiting sessions ask of the scheduler, beside other ways to wait (an hour)
	tests/as-root.sh $(VENV)/bin/python benchmarks/politeness.py $(ARGS)

bench-sampling: $(VENV)/with-tests ## measure what sampling a job's use costs (two minutes)
	tests/as-root.sh $(VENV)/bin/python benchmarks/sampling.py $(ARGS)

bench-copy: $(VENV)/with-tests ## time copies of a large file beside scp, on the practice cluster
	tests/as-root.sh $(VENV)/bin/python benchmarks/copying.py $(ARGS)

clean: ## remove the virtual environment
	rm -rf $(VENV)

# The environment is made anew when pyproject.toml changes.
$(VENV)/with-jupyter: pyproject.toml
	tests/venv.sh $(VENV) jupyter && touch $@

$(VENV)/with-tests: pyproject.toml
	tests/venv.sh $(VENV) jupyter,test,check && touch $(VENV)/with-jupyter $@
