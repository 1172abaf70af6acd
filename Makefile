# Targets of this checkout:
#   make demo      train a small GPT, evaluated and compiled; compare with XLA:CPU if jaxlib is installed
#   make test      run every test
#   make matrix    run the tests that depend on the versions of Python and JAX with 3.11 to 3.14 (MATRIX="--python 3.12")
#   make aarch64   run tests on an emulated aarch64 processor, on Debian (AARCH64="conformance --count 60")
#   make check     check format, lint, types and layering
#   make format    rewrite the sources with ruff
#   make bench     time the example programs and XLA:CPU (options: BENCH="--json OUT --plot OUT.svg"), then
#                  whole models and JAX's own client (MODELS="--peers --plot": PyTorch too)
#   make mutation  change single lines of the sources and check that tests fail (N=300 SEED=1; some hours)
#   make jax-tests run JAX's tests on hloom and on JAX's client (DIR=jax COUNT=300 SEED=1)
#   make docs      rewrite docs/operations/ from the declarations, and docs/proved_rules.md from the rules that changed
#   make site      build the site of the documentation in dist/site
#   make proto     regenerate the protobuf descriptors from src/hloom/proto/schema/*.proto
#   make viewer-assets fetch the layout library of `hloom view` from npm (DAGRE=3.1.3)
#   make lock      rewrite the locks with hashes for all Pythons; UPGRADE=1 takes the newest versions
#   make wheel     build dist/*.whl
#   make trial     install the wheel into an empty environment and run the README and the guides with it

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
# The newest interpreter from 3.11 to 3.14 that starts.
PYTHON ?= $(shell tests/interpreters | sed -n '1s/^[^ ]* //p')
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SCHEMA := src/hloom/proto/schema

# Tests start many processes: each would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test matrix aarch64 check format bench mutation jax-tests docs site proto viewer-assets lock wheel trial clean

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile

# Two stamps: running hloom needs only the runtime dependencies; testing it needs the tools and jax as well.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "hloom needs a Python from 3.11 to 3.14" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml requirements-runtime.lock | $(BIN)/python
	$(PIP) install --require-hashes -r requirements-runtime.lock
	$(PIP) install --no-deps -e .
	@touch $@

$(VENV)/.develop: pyproject.toml requirements.lock | $(BIN)/python
	$(PIP) install --require-hashes -r requirements.lock
	$(PIP) install --no-deps -e .
	@touch $@ $(VENV)/.runtime

demo: $(VENV)/.runtime
	@$(BIN)/python -m hloom.tools.examples.demo

test: $(VENV)/.develop
	@$(BIN)/python -m pytest -q -n 3 </dev/null

matrix: $(VENV)/.develop
	@$(BIN)/python -m tests.matrix $(MATRIX)

aarch64: $(VENV)/.develop
	@$(BIN)/python -m tests.aarch64 $(AARCH64)

check: $(VENV)/.develop
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -q tests/test_layering.py

format: $(VENV)/.develop
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.develop
	@$(BIN)/python -m benchmarks $(BENCH)
	@$(BIN)/python -m benchmarks.models $(MODELS)

N ?= 300
SEED ?= 1
mutation: $(VENV)/.develop
	@$(BIN)/python -m tests.mutation --count $(N) --seed $(SEED)

COUNT ?= 300
jax-tests: $(VENV)/.develop
	@$(BIN)/python -m tests.jax_suite $(DIR) --count $(COUNT) --seed $(SEED)

docs: $(VENV)/.develop
	$(BIN)/python -m hloom.tools.pages.op_docs docs/operations
	$(BIN)/python -m tests.proofs.proved_rules

site: $(VENV)/.develop
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo dist/site/index.html

proto: $(VENV)/.develop
	$(BIN)/python -m grpc_tools.protoc --proto_path=src --include_imports \
		--descriptor_set_out=$(SCHEMA)/schema.binpb --pyi_out=src $(SCHEMA)/xla_data.proto $(SCHEMA)/hlo.proto

DAGRE ?= 3.1.3
DAGRE_DIR := src/hloom/tools/viewer/dagre
viewer-assets:
	cd $(DAGRE_DIR) && npm pack --silent @dagrejs/dagre@$(DAGRE)
	tar -xzf $(DAGRE_DIR)/dagrejs-dagre-$(DAGRE).tgz -C $(DAGRE_DIR) --strip-components=1 package/LICENSE
	tar -xzOf $(DAGRE_DIR)/dagrejs-dagre-$(DAGRE).tgz package/dist/dagre.esm.js \
		| sed '/^\/\/# sourceMappingURL/d' > $(DAGRE_DIR)/dagre.esm.js
	echo $(DAGRE) > $(DAGRE_DIR)/VERSION
	rm $(DAGRE_DIR)/dagrejs-dagre-$(DAGRE).tgz

# Python 3.11.5 is the oldest for which mkdocs-material's dependencies are made.
LOCK := $(BIN)/python -m uv pip compile --quiet --universal --generate-hashes --no-annotate --no-header \
	--python-version 3.11.5 pyproject.toml
lock: $(VENV)/.develop
	$(PIP) install uv
	$(LOCK) $(if $(UPGRADE),--upgrade) --extra dev --extra jax --output-file requirements.lock
	$(LOCK) --constraints requirements.lock --output-file requirements-runtime.lock

wheel: $(VENV)/.develop
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

trial: wheel
	@$(BIN)/python -m tests.new_user "$$(ls -t dist/*.whl | head -1)"

clean:
	rm -rf dist .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -exec rm -rf {} +
