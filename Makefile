# `make` alone says what there is. Everything happens in two virtual environments beside this
# file; nothing is installed anywhere else.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
BIN := .venv/bin
UV := $(BIN)/uv
PYTEST_ARGS ?=
EXECUTIONS ?= 1000000
# uv's progress without its list of a hundred installed packages.
BRIEFLY = 2>&1 | sed '/^ [-+~] /d'
STATUS = @printf '\033[1m%s\033[0m\n'

# Some machines forbid Python to keep what it compiled; then each process compiles all of it again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run test accept chaos prove check format lint types imports synth audit scan requirements clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.ready ## Make the virtual environment; does nothing when nothing changed

run: .venv/.ready .venv-local/.ready ## Run the whole product here, on http://127.0.0.1:8080
	@exec $(BIN)/lamplighter run

test: .venv/.ready .venv-local/.ready ## Run every test, offline (about 12 minutes on two cores)
	@$(BIN)/pytest -n 3 $(PYTEST_ARGS)

accept: .venv/.ready .venv-local/.ready ## Measure the local product against its promises (13 minutes)
	@$(BIN)/python -m tests.local.acceptance $(SECTION)

chaos: .venv/.ready .venv-local/.ready ## Break the local product, and see that its accounts balance; SEED=, DURATION= (8 minutes)
	@$(BIN)/python -u -m tests.local.chaos $(if $(SEED),--seed $(SEED)) $(if $(DURATION),--duration $(DURATION))

prove: .venv/.ready ## Try hard to break a promise, then see that planted bugs are found; EXECUTIONS=, SEED= (an hour)
	$(STATUS) '$(EXECUTIONS) executions under every fault'
	@$(BIN)/lamplighter simulate --executions $(EXECUTIONS) $(if $(SEED),--seed $(SEED))
	$(STATUS) 'properties, on twenty times the examples; faults, at every place for them'
	@LAMPLIGHTER_EXAMPLES=20 $(BIN)/pytest -n 2 -m 'hypothesis or strikes' --timeout 3600
	$(STATUS) 'every interleaving of small worlds'
	@$(BIN)/python -m tests.simulation.small_model --far
	$(STATUS) 'planted bugs'
	@$(BIN)/python -m tests.simulation.mutations

check: .venv/.ready ## What CI runs: format, lint, types, import rules, tests, synth
	$(STATUS) 'format'
	@$(BIN)/ruff format --check .
	$(STATUS) 'lint'
	@$(BIN)/ruff check .
	$(STATUS) 'types'
	@$(MAKE) --no-print-directory types
	$(STATUS) 'import rules'
	@$(MAKE) --no-print-directory imports
	$(STATUS) 'synth'
	@$(MAKE) --no-print-directory synth
	$(STATUS) 'tests'
	@$(MAKE) --no-print-directory test

format: .venv/.ready ## Put the code into the format that `make check` wants
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix-only --quiet .

lint: .venv/.ready ## Look for what ruff finds
	@$(BIN)/ruff check .

types: .venv/.ready ## Check the types, strictly
	@$(BIN)/mypy

imports: .venv/.ready ## Check that arrows point inward
	@PYTHONPATH=functions:. $(BIN)/lint-imports

synth: .venv/.ready ## Write the CloudFormation templates to cdk.out, without docker or AWS
	@$(BIN)/python -m infra.app

audit: .venv-scan/.ready ## Look for known vulnerabilities in whatever is installed; asks PyPI's JSON API
	@for file in requirements/*.txt layers/dependencies/requirements.txt; do \
		echo "$$file"; \
		.venv-scan/bin/pip-audit --strict --require-hashes --disable-pip -r "$$file"; \
	done

scan: .venv/.ready .venv-scan/.ready ## Scan the templates with checkov, as they come and with a key
	@$(BIN)/python -m infra.app -o .build/scan/plain >/dev/null 2>&1
	@$(BIN)/python -m infra.app -o .build/scan/kms -c kms=true >/dev/null 2>&1
	@$(BIN)/python -m tests.infra.scan .venv-scan/bin/checkov .build/scan/plain .build/scan/kms

requirements: .venv/.ready ## Compile requirements/*.in again; `UPGRADE=--upgrade` for newer releases
	$(eval export UV_CUSTOM_COMPILE_COMMAND := make requirements)
	$(eval COMPILE := ../$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url $(UPGRADE))
	cd requirements && $(COMPILE) dev.in -o dev.txt
	cd requirements && $(COMPILE) -c dev.txt uv.in -o uv.txt
	cd requirements && $(COMPILE) -c dev.txt runtime.in -o ../layers/dependencies/requirements.txt
	cd requirements && $(COMPILE) -c ../layers/dependencies/requirements.txt local.in -o local.txt
	cd requirements && $(COMPILE) scan.in -o scan.txt

clean: ## Remove what was made here, the virtual environments too
	rm -rf .venv .venv-local .venv-scan .lamplighter .build cdk.out .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# The environment is new when what it is made from changed, and only then.
.venv/.ready: requirements/uv.txt requirements/dev.txt requirements/cli.in requirements/runtime.in \
		requirements/sim.in requirements/provided.in layers/dependencies/requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Lamplighter needs Python 3.11 or newer; PYTHON=... names another one"; exit 1; }
	$(STATUS) '1/4 virtual environment'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv \
		|| { rm -rf .venv; echo "On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(STATUS) '2/4 installer'
	@$(BIN)/python -m pip install --quiet --quiet --require-hashes -r requirements/uv.txt
	$(STATUS) '3/4 packages, each checked against its hash (about 600 MB the first time)'
	@VIRTUAL_ENV=.venv $(UV) pip sync --require-hashes requirements/dev.txt $(BRIEFLY)
	@VIRTUAL_ENV=.venv $(UV) pip install --quiet --no-deps --no-build-isolation --editable .
	$(STATUS) '4/4 dependencies layer, so that a synth needs no network'
	@$(BIN)/python -m infra.bundling
	@touch $@

.venv-local/.ready: requirements/local.txt | .venv/.ready
	$(STATUS) 'local stack: the AWS emulator, in an environment of its own'
	@$(UV) venv --quiet --allow-existing --python $(BIN)/python .venv-local
	@VIRTUAL_ENV=.venv-local $(UV) pip sync --compile-bytecode --require-hashes requirements/local.txt $(BRIEFLY)
	@touch $@

.venv-scan/.ready: requirements/scan.txt | .venv/.ready
	$(STATUS) 'checkov and pip-audit: an environment of their own (about 200 MB)'
	@$(UV) venv --quiet --allow-existing --python $(BIN)/python .venv-scan
	@VIRTUAL_ENV=.venv-scan $(UV) pip sync --require-hashes requirements/scan.txt $(BRIEFLY)
	@touch $@
