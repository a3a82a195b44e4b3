# make demo    sets up .venv, compiles a model to C, builds and runs a C program, verifies the C
# make test    sets up .venv, then lint, format, types and all tests
# make bench   the tables of benchmarks/ (a few minutes, on a quiet machine)
# make clean   removes what the others made, except .venv
#
# PYTHON is the interpreter that .venv is made with (3.11 or newer).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HELLO := examples/hello

.PHONY: demo test bench clean

demo: $(VENV)/demo.stamp
	@$(MAKE) -s -C $(HELLO) run PYTHON=$(abspath $(BIN)/python) ONNXC=$(abspath $(BIN)/onnxc)
	$(BIN)/onnxc verify $(HELLO)/build/hello.onnx

test: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -n 2

bench: $(VENV)/demo.stamp
	$(BIN)/python benchmarks/networks.py --report-only
	$(BIN)/python benchmarks/elementwise.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[verify]'
	touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/demo.stamp

clean:
	rm -rf build dist compiler/*.egg-info examples/*/build
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find compiler templates runtime_c tests examples benchmarks -name __pycache__ -prune \
	    -exec rm -rf {} +
