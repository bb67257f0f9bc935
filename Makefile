# Everything is set up in .venv by the first target that needs it; all that is asked for is python3 (3.11 or later).
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -qq
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q
# The requirements of extras, for what is installed already: pip would build it again.
EXTRAS  = $(BIN)/python -c 'import sys, tomllib; from pathlib import Path; \
  known = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]; \
  print(*(line for name in sys.argv[1:] for line in known[name]), sep="\n")'
SETUP  := pyproject.toml constraints.txt setup.py src/cabochon/packing/kernel.c src/cabochon/recipes/cast.c
# What Python and pytest compile is kept: half of the time in which tests are collected, and 0.2 s of every child process.
export PYTHONDONTWRITEBYTECODE :=
# But pip compiles nothing: of its minute and a half most would go into modules that nobody imports.
export PIP_COMPILE := 0
# The files that may hold tests of a marker: nothing of the others is imported, unless ARGS asks for more.
marked = $(or $(ARGS),$$(grep -l $(1) tests/test_*.py))
# In the order of tests/conftest.py.
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test mutations members parity clients browser variants screenshot lint format bench wheel test-all-pythons clean

help:  ## what there is
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/ready  ## build, check and run the shipped miniature
	@$(BIN)/cabochon demo

test: $(VENV)/ready-test  ## every test that needs no torch
	@$(PYTEST) $(WORKERS) -m "not parity and not clients and not browser" $(ARGS)

mutations: $(VENV)/ready-test  ## mistakes made on purpose in our formulas, each of which must show (ARGS=--write: docs/mutations.md)
	@PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m mutations $(ARGS)

members: $(VENV)/ready-test  ## every member of the family beside what transformers recorded (ARGS=--write: the table of the README)
	@PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m members $(ARGS)

parity: $(VENV)/ready-parity  ## the tests that compare with transformers, live, and those that run OpenVINO
	@$(PYTEST) $(WORKERS) -m parity $(call marked,parity)
	@$(PYTEST) $(WORKERS) tests/test_*openvino*.py tests/test_validation_ir.py  # what runs OpenVINO has it in its name

clients: $(VENV)/ready-clients  ## the tests that run packages with onnx-genai and onnxruntime-genai
	@$(PYTEST) $(WORKERS) -m clients $(call marked,clients)

browser: $(VENV)/ready-test tests/browser/node_modules/ready  ## the tests of the page in headless Chromium (fetches it, and npm packages)
	@$(PYTEST) -m browser $(or $(ARGS),tests/test_web_browser.py)

variants: $(VENV)/ready-parity tests/browser/node_modules/ready  ## every variant built, validated and executed (ARGS=--write: the table of the README)
	@PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m variants $(ARGS)

screenshot: $(VENV)/ready-test tests/browser/node_modules/ready  ## docs/web.png, taken of the miniature pair
	@PYTHONPATH=tests $(BIN)/python -m browser.screenshot docs/web.png

lint: $(VENV)/ready-lint  ## ruff, pyright, the order of imports
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/ready-lint  ## let ruff repair what it can
	@$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .

bench: $(VENV)/ready-test  ## measure; writes the table of the README (ARGS=--full: E2B at full size as well, 30 GB of disk)
	@$(BIN)/python -m bench --write $(ARGS)

wheel: $(VENV)/ready-test  ## dist/*.whl
	@$(BIN)/python -m build -q --wheel

# One environment and one run of the tests for each Python that is found.
test-all-pythons:  ## make test under every Python 3.11 to 3.13 on this machine
	@command -v pyenv >/dev/null && export PYENV_VERSION=$$(pyenv versions --bare | paste -sd:); \
	 for minor in 11 12 13; do \
	   python3.$$minor -c '' 2>/dev/null || { echo "python3.$$minor: not found"; continue; }; \
	   echo "python3.$$minor"; \
	   $(MAKE) --no-print-directory test PYTHON=python3.$$minor VENV=.venv-3.$$minor || exit 1; \
	 done

clean:  ## remove what make made
	@rm -rf .venv .venv-3.* build dist src/*.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	@rm -rf tests/browser/node_modules
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: what they stand for holds ready < ready-test < ready-lint; ready-parity adds torch, transformers, openvino;
# ready-clients other runtimes.
$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cabochon needs Python 3.11 or later; found " + sys.version.split()[0] + ". Say which with: make PYTHON=/path/to/python3")'
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/ready: $(VENV)/made $(SETUP)
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/ready-test: $(VENV)/made $(SETUP)
	@$(PIP) install -c constraints.txt -e '.[test]'
	@touch $(VENV)/ready $@

$(VENV)/ready-lint: $(VENV)/made $(SETUP)
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $(VENV)/ready $(VENV)/ready-test $@

$(VENV)/ready-parity: $(VENV)/ready-test
	@echo "adding torch, transformers and openvino to $(VENV)"
	@$(EXTRAS) parity openvino | $(PIP) install -c constraints.txt -r /dev/stdin
	@touch $@

$(VENV)/ready-clients: $(VENV)/ready-test
	@echo "adding onnx-genai and onnxruntime-genai to $(VENV)"
	@$(EXTRAS) clients | $(PIP) install -c constraints.txt -r /dev/stdin
	@touch $@

tests/browser/node_modules/ready: tests/browser/package-lock.json tests/browser/package.json
	@tests/browser/needs
	@echo "adding npm packages to tests/browser"
	@npm ci --prefix tests/browser --no-progress --loglevel=error
	@touch $@
