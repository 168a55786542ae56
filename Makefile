# Everything a developer runs. `make` alone prints this list.
.DEFAULT_GOAL := help
SHELL := /bin/bash

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
SEED ?= 0
# A machine without an NVIDIA driver leaves out the parts of torch that CPU training never loads.
OVERRIDES := --overrides tools/python/overrides.txt $(if $(shell command -v nvidia-smi),,--overrides tools/python/overrides-cpu.txt)

##@ Use

.PHONY: help
help: ## print this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(VENV)/.installed ## make the environment in .venv (about a minute)

$(VENV)/.installed: pyproject.toml constraints.txt $(wildcard tools/python/overrides*.txt)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt uv
	$(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt $(OVERRIDES) -e '.[dev]'
	@touch $@

.PHONY: quickstart
quickstart: setup ## train a small model on a verifiable task, without Kubernetes (SEED=0)
	examples/quickstart/run.sh $(SEED)

##@ Test

.PHONY: test
test: setup ## lint and all suites, as CI runs them
	$(BIN)/python tools/suites.py programs lint unit engines integration images e2e quickstart

.PHONY: lint
lint: setup ## every static check
	$(BIN)/python tools/lint.py

.PHONY: unit integration e2e
unit: setup ## tests without network, in seconds
integration: setup ## tests with a real API server and real ranks
e2e: setup ## tests on a real node with real images
unit e2e:
	$(BIN)/python tools/suites.py $@
integration:
	$(BIN)/python tools/suites.py engines integration

.PHONY: sweep
sweep: setup ## the long runs: 64 clients on a reference server, a SIGKILL and three reloads (about 12 minutes)
	$(BIN)/python -m tests.sweep.reference_load --minutes 10 --out tests/bench/results/reference-load.json

.PHONY: bench-reference
bench-reference: setup ## the reference server against other ways to score (a quarter of an hour, on a quiet machine)
	$(BIN)/python -m tests.bench.reference; status=$$?; $(BIN)/python tools/generate.py; exit $$status

##@ Test cluster

.PHONY: cluster
cluster: setup ## a real one-node Kubernetes on this machine, with our images
	tools/cluster/build.sh
	tools/images/build.sh
	tools/cluster/up.sh

.PHONY: cluster-down
cluster-down: ## end it, leaving nothing behind
	tools/cluster/down.sh

##@ Develop

.PHONY: generate
generate: setup ## write what is made from the models: the CRD and the reference pages
	$(BIN)/python tools/generate.py

.PHONY: lock
lock: ## pin versions again in constraints.txt (newest allowed: tools/python/lock.sh --upgrade)
	tools/python/lock.sh
	tools/python/engines.sh lock vllm sglang
