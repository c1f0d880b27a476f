# Two commands matter: `make demo` runs the main job, `make test` passes the tests.
#
# PYTHON       interpreter, 3.11 or later
# TORCH        PyTorch to install; pip's own choice of build unless TORCH_INDEX names the address of another
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
export DO_NOT_TRACK := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export GX_ANALYTICS_ENABLED := False

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench docs clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

# links give type checkers and editors a real path for the import name; a new file of api/ needs a new one
setup: $(VENV)/.ready  ## create the environment and install everything
	@mkdir -p .links/gradatim && cd .links/gradatim && find . -type l -delete \
	  && ln -s ../../api/*.py ../../api/py.typed ../../flows ../../schemas ../../storage ../../tasks .

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$(PYTHON) is older than 3.11: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 2; }
	@echo "installing into $(VENV), a few minutes the first time"
	@$(PYTHON) -m venv $(VENV)
	@sed 's/^torch==.*/$(TORCH)/' constraints.txt > $(VENV)/constraints.txt
	@$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX),-c $(VENV)/constraints.txt) "$(TORCH)"
	@DS_BUILD_OPS=0 $(PIP) -c $(VENV)/constraints.txt -e ".[all,dev]"
	@touch $@

demo: setup  ## the whole job on SCAN, ingest to report, offline: a few minutes on two cores
	@$(BIN)/python examples/demo.py

test: setup  ## run the tests
	@$(BIN)/python -m pytest

check: setup  ## lint, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: setup  ## speed beside peers, in one run
	@$(BIN)/python -m benchmarks

docs: setup  ## build the documentation into docs/_build; warnings are errors
	@$(BIN)/sphinx-build -W -q -b html docs docs/_build
	@echo "docs/_build/index.html"

clean:  ## remove the environment and what was built
	rm -rf $(VENV) .links docs/_build docs/reference build dist *.egg-info
