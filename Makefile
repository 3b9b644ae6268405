# Everything a developer runs. Needs Python 3.11 to 3.13 and make; each target sets up what it needs in .venv.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UV := $(BIN)/uv pip
LOCKER := build/uv
LOCK := $(LOCKER)/bin/uv pip compile --python $(LOCKER)/bin/python --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-header --quiet
TESTED := --constraint requirements/dev.txt --annotation-style line

# Containers often set it. Then each process that a test starts would compile the changed files again.
export PYTHONDONTWRITEBYTECODE :=

PYTEST := $(BIN)/python -m pytest
# Excludes the tests that only `make verify` runs.
QUICK := and not verify
# The files with tests marked `alone`. Collecting the other files, too, would take longer than these tests.
ALONE = $$(grep -rlE 'mark\.alone' tests api_tests)
# The files of requirements/ that images install (deploy/Dockerfile).
IMAGES := server cpu gpu jax-cuda jax-tpu

.PHONY: help install demo test verify matrix lint bench method workloads reproduce chaos fuzz docs site openapi lock dist sbom audit clean

help:
	@grep -hE '^[a-z]+:.*#' $(MAKEFILE_LIST) | sed -E 's/:[^#]*# */\t/' | expand -t 12

install: $(READY)  # the environment in .venv, pinned by hash

# Bytecode is compiled at install: without it, importing TensorFlow takes three times as long in each process.
$(READY): requirements/dev.txt requirements/uv.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		|| { echo 'Dyno needs Python 3.11 to 3.13: make PYTHON=/path/to/python3.11 …' >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/uv.txt
	$(UV) sync --quiet --python $(BIN)/python --compile-bytecode --require-hashes requirements/dev.txt requirements/uv.txt
	$(UV) install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q dyno service workers
	@touch $@

$(LOCKER)/.ready: requirements/uv.txt
	@$(PYTHON) -m venv $(LOCKER)
	@$(LOCKER)/bin/python -m pip install --quiet --require-hashes -r requirements/uv.txt
	@touch $@

demo: install  # start a Dyno, run a matmul and a short training over HTTP, end it
	$(BIN)/dyno demo

# 6 minutes on two cores (docs/dev/test-time.md). Four files run at a time, since tests wait for a third of their time.
# The tests of api_tests/ are first, all in one process. Tests marked `alone` follow, unless Ctrl-C or an error ended
# the other tests.
test: install  # the tests that each change must pass, ruff and mypy included
	@$(PYTEST) -n 4 --dist loadfile --no-loadscope-reorder -m 'not alone $(QUICK)'; first=$$?; \
		test $$first -le 1 || exit $$first; \
		$(PYTEST) -m 'alone $(QUICK)' $(ALONE) && exit $$first

verify: install  # every test, with those in a real browser if Chromium is installed, then the matrix; more than an hour
	@DYNO_TEST_TO_THE_SECOND=yes LIFE_EXAMPLES=100 $(MAKE) test QUICK=; first=$$?; $(MAKE) matrix && exit $$first

matrix: install  # the measurement tests, under other processors and conditions (make matrix ROWS='avx2 one-core')
	@$(BIN)/python -m tests.matrix $(ROWS)

lint: install  # ruff and mypy alone
	$(BIN)/ruff format . && $(BIN)/ruff check --fix . && $(BIN)/mypy

bench: install  # measure how fast Dyno itself is, and whether it stays fast; an hour, writes docs/results/
	$(BIN)/python -m benchmarks

method: install  # check the method of measuring: an idle machine for 3.5 h; most of it resumes, writes docs/results/
	$(BIN)/python -m benchmarks method

workloads: install  # run every workload on every framework, minutes each; resumes, writes docs/results/workloads.md
	$(BIN)/python -m benchmarks.workloads

reproduce: install  # repeat the articles' experiments; hours, resumes, writes docs/results/reproduction.md
	$(BIN)/python -m benchmarks.reproduce

chaos: install  # ten minutes of random faults (make chaos SEED=7), then three hosts, one of them cut off: no job may be lost or end twice
	$(BIN)/python -m chaos $(if $(SEED),--seed $(SEED))
	DYNO_TEST_CUT_S=60 $(PYTEST) tests/workers/whole/test_hosts.py

fuzz: install  # send a Dyno valid and invalid requests for ten minutes, by the OpenAPI document (make fuzz SEED=7)
	$(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))

docs: install  # write the parts of README.md and docs/ that the code declares
	$(BIN)/python -m docs.generate

site: install  # build docs/ as pages for a browser, which the API then serves at /docs/guide
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

openapi: install  # write docs/openapi.json, the reviewed snapshot
	$(BIN)/python -m service.openapi

# Uses a uv of its own, so that the environment VENV is neither made nor changed.
# The images get the versions that the tests run with.
lock: $(LOCKER)/.ready  # compile requirements/*.txt from pyproject.toml
	$(LOCK) --extra cpu --extra jax --extra demo --extra otel --extra parquet --extra build --extra dev pyproject.toml -o requirements/dev.txt
	$(LOCK) $(TESTED) --extra server pyproject.toml -o requirements/server.txt
	$(LOCK) $(TESTED) --extra server --extra cpu --extra jax pyproject.toml -o requirements/cpu.txt
	$(LOCK) $(TESTED) --extra server --extra gpu pyproject.toml -o requirements/gpu.txt
	$(LOCK) $(TESTED) --extra server --extra jax-cuda pyproject.toml -o requirements/jax-cuda.txt
	$(LOCK) $(TESTED) --extra server --extra jax-tpu pyproject.toml -o requirements/jax-tpu.txt
	echo hatchling | $(LOCK) - -o requirements/build.txt
	echo uv | $(LOCK) - -o requirements/uv.txt

# The wheel has the pages of docs/, so that an installed Dyno serves them.
dist: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
dist: site  # the wheel of this commit, the same bytes on every machine, in dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir dist .

sbom: install  # list the packages of each image, as CycloneDX in build/sbom/
	@mkdir -p build/sbom
	set -e; for lock in $(IMAGES); do $(BIN)/cyclonedx-py requirements requirements/$$lock.txt --pyproject pyproject.toml \
		--output-reproducible --output-format JSON --output-file build/sbom/$$lock.cdx.json; done

# Without --strict, pip-audit leaves out packages that it can't look up, so an audit of no packages would pass.
audit: $(LOCKER)/.ready  # look up known vulnerabilities of the locked packages, in the package index
	set -e; for lock in $(IMAGES); do $(LOCKER)/bin/uv tool run pip-audit@2.10.1 --strict --disable-pip --require-hashes -r requirements/$$lock.txt; done

clean:  # remove the environment and caches
	rm -rf $(VENV) $(LOCKER) .pytest_cache .mypy_cache .ruff_cache .hypothesis
