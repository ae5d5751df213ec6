# Everything starts here: `make demo`, `make test`. Only Python >= 3.11, g++ and make come from the
# system; `make check` names whatever is missing, with the package that brings it.

PYTHON ?= python3
JOBS ?= 2
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
# Named by version: another PYTHON gets a fresh environment, not a mixed one.
VERSION := $(shell $(PYTHON) -c "import sys; print('%d.%d' % sys.version_info[:2])" 2>/dev/null)
STAMP := $(VENV)/.installed-$(VERSION)
STALE := $(filter-out $(STAMP),$(wildcard $(VENV)/.installed-*))

.PHONY: help check install demo test lint types docs clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    classify handwritten digits on the simulated NPU"
	@echo "make test    run the whole test suite (JOBS=$(JOBS) simulators at a time)"
	@echo "make lint    check style and format"
	@echo "make types   check types"
	@echo "make docs    build the documentation into site/"
	@echo "make clean   remove everything that was built, the environment too"
	@echo "Variables: PYTHON=$(PYTHON), JOBS=$(JOBS), PYTEST_ARGS='-k name'"

check:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "$(PYTHON) is missing: install it with apt-get install python3" >&2; exit 1; }
	@$(PYTHON) tb/setup/check.py

$(STAMP): requirements.lock pyproject.toml | check
	$(PYTHON) -m venv $(if $(STALE),--clear) $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

install: $(STAMP)

demo: $(STAMP)
	$(BIN)/glassnpu run examples/digits.py

# pytest fails when it finds no test at all, and so does this.
test: $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

docs: $(STAMP)
	$(BIN)/python -m tb.contract.generate --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
