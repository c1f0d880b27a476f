# Two commands matter: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
BIN := $(VENV)/bin
export DO_NOT_TRACK := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export GX_ANALYTICS_ENABLED := False

.PHONY: setup demo test check bench docs clean

setup: $(VENV)/.ready  ## create the environment and install everything

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q "$(TORCH)" $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	DS_BUILD_OPS=0 $(BIN)/pip install -q -c constraints.txt -e ".[all,dev]"
	mkdir -p .links/gradatim
	cd .links/gradatim && for f in ../../api/*; do case $$f in *__pycache__) ;; *) ln -sfn $$f .;; esac; done
	cd .links/gradatim && for d in flows schemas storage tasks; do ln -sfn ../../$$d $$d; done
	touch $@

demo: setup  ## the whole job on SCAN: ingest to report, a few minutes on two cores
	$(BIN)/python examples/demo.py

test: setup  ## run the tests
	$(BIN)/pytest

check: setup  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup  ## speed beside peers, in one run
	$(BIN)/python -m benchmarks

docs: setup  ## build the documentation, warnings are errors
	$(BIN)/sphinx-build -W -q -b html docs docs/_build

clean:
	rm -rf $(VENV) .links docs/_build
