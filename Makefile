# Verbs for people and CI. `make test` and `make demo` need a machine with nothing installed but
# make; as root on Debian what is missing is installed from the machine's own package sources.
SHELL := /bin/bash
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
SOURCES := slurm_reclaim tests
LAB := tests/cluster/lab
# Tests on real processes and clusters share a machine with whatever else it does: each gets a second
# try, which the summary names as a rerun. What fails twice has failed.
AGAIN := --reruns 1 -r fER
# Images of containers switch it off: every worker and every program that a test starts would then
# compile all modules anew, which is half of the time of the unit tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv fmt lint types unit parts spank cluster race crash ide vm test test-gpu check demo \
	bench docs rpm clean

help:
	@echo 'make demo      the main job on a test cluster: hibernate and restore a Jupyter session (as root)'
	@echo 'make test      lint, types, unit tests, parts, C tests, cluster tests (as root)'
	@echo 'make check     lint, types, unit tests and parts: what needs no cluster'
	@echo 'make test-gpu  on a machine with an NVIDIA GPU: CUDA state saved and brought back (as root)'
	@echo 'make crash     every step of a hibernation and a restore killed, failed or stopped (as root)'
	@echo 'make race      the last second before a hibernation, two hundred times (as root)'
	@echo 'make ide       a remote IDE for real: code-server and a browser on a test cluster (as root)'
	@echo 'make vm        virtual machines with systemd, cgroup v2 and NFS (as root; an hour without KVM)'
	@echo 'make bench     against plain criu, psutil and the rules of other products; scale'
	@echo 'make clean     test clusters down and forgotten, what was built here removed (not their image)'
	@echo 'make venv fmt lint types unit parts spank cluster docs rpm: one step each'

venv: $(BIN)/.complete

# The stamp is newer than pyproject.toml once every dependency is in.
$(BIN)/.complete: pyproject.toml
	@.ci/prepare venv
	@echo 'Python packages into $(VENV), about a minute'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

fmt: venv
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

# Sizes, layers and names of the code are looked at by tests/shape.
lint: venv
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/pytest --quiet tests/shape

types: venv
	$(BIN)/mypy

# In memory, in seconds, as anybody.
unit: venv
	$(BIN)/pytest tests/unit --numprocesses logical --maxprocesses 4 --dist worksteal

# Each part that touches the world, on real processes, terminals, servers and files; some as root. And
# the controller, dying at every one of its effects, which takes seconds too many for the above.
# A compiler is for the simulated GPU library. Most of it is waiting: four at once also on two cores,
# each with neighbours that share what they start. The plugin's need time: `make spank`.
parts: venv
	@.ci/prepare gcc
	$(BIN)/pytest tests/parts --ignore tests/parts/spank $(AGAIN) --numprocesses 4 \
	    --dist worksteal --durations 25

spank: venv
	@.ci/prepare gcc slurm-dev ps
	PATH="$(abspath $(BIN)):$$PATH" PYTEST_ADDOPTS="$(AGAIN) --numprocesses 4" \
	    $(MAKE) -C spank test

# Three labs side by side, a file of tests on one of them: most of the time is waiting. Then on a lab
# of its own what would be another's noise.
cluster: venv
	@.ci/prepare gcc
	$(BIN)/pytest tests/cluster $(AGAIN) -m 'not alone' --durations 25 --numprocesses 3 \
	    --dist loadfile --no-loadscope-reorder
	$(BIN)/pytest tests/cluster $(AGAIN) -m alone

# The last second before a hibernation, two hundred times.
race: venv
	RECLAIM_RACES=200 $(BIN)/pytest -s tests/cluster/test_race.py

# Every point of the crash matrix, on a lab of its own (tests/crash/README.md).
crash: venv
	@.ci/prepare gcc
	$(BIN)/python -m tests.crash --nodes 3 --seed $${RECLAIM_SEED:-0}

test: lint types unit parts spank cluster

# On a real card, skipped with the reason where there is none. Writes the table of docs/gpu.md.
# PyTorch is used where the venv has it: .venv/bin/pip install torch
test-gpu: venv
	RECLAIM_GPU_TABLE=$${RECLAIM_GPU_TABLE:-gpu-table.md} $(BIN)/pytest -v tests/gpu/real

check: lint types unit parts

# code-server from the registries and Chromium at it: minutes to install, so it is asked for.
ide: venv
	@.ci/prepare chromium gcc g++ make
	tests/cluster/ide/install "$${RECLAIM_LAB_CACHE:-/var/cache/slurm-reclaim-lab}/code-server"
	RECLAIM_IDE=1 $(BIN)/pytest tests/cluster/test_code_server.py

# A cluster of virtual machines: its own PID 1, kernel and clock for each node (tests/vm/README.md).
vm: venv
	@.ci/prepare gcc
	RECLAIM_VM=1 $(BIN)/pytest tests/vm

# Standard library only: nothing of the venv is waited for.
demo:
	@.ci/prepare python3
	tests/cluster/demo

bench: venv
	$(BIN)/python tests/bench/signals
	$(BIN)/python -m tests.bench.memory
	$(BIN)/python -m tests.bench.decisions
	$(BIN)/python -m tests.bench.scale
	$(BIN)/python -m tests.bench.hibernate
	$(BIN)/python -m tests.bench.many
	@.ci/prepare restic borg zstd
	$(BIN)/python -m tests.bench.store
	$(BIN)/python -m tests.bench.gpu

docs: venv
	$(BIN)/python docs/render.py

rpm:
	@.ci/prepare rpm
	rpmspec --parse --define 'slurm_version 24.11.5' slurm-reclaim.spec > /dev/null
	@echo 'slurm-reclaim.spec can be parsed'

clean:
	-test ! -x $(LAB) || { $(LAB) down; \
	    for name in demo test test0 test1 test2; do $(LAB) --name $$name down --purge; done; }
	-$(MAKE) -C spank clean
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find slurm_reclaim tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
