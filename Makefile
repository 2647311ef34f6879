# Two commands from a bare clone: `make demo` and `make test`. Everything they need is set up in .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
RAY    := $(VENV)/.ready-ray
OUT    := out/demo
JOBS   := $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 2 )))
PYTEST := $(BIN)/pytest -n $(JOBS) --dist worksteal

# What a release of Python can break: the engines, what is compiled, how processes stop, the live fleet.
PER_PYTHON := tests/sim tests/policies tests/live tests/compiling tests/usercode tests/formulas tests/world tests/test_draws.py tests/test_package.py \
              tests/experiments/batches tests/experiments/test_sweep.py tests/records

.PHONY: help setup demo test test-all test-python test-versions test-wheel bytecode lint types figures bench bench-training bench-live clean

help:
	@echo "make demo      set up, compare all schemes of the paper on the default fleet, draw figures 3, 4 and 5 (quick),"
	@echo "               train a model with every scheme on the digits and draw its accuracy"
	@echo "make test      set up, then ruff, mypy and the tests"
	@echo "make test-all  the same with the tests that need minutes, and those on a Ray cluster (installs Ray)"
	@echo "make test-versions   the engine, compile, stop and live tests on the other supported versions of Python found here"
	@echo "make test-wheel   the wheel in empty environments, one per extra; prints what each takes on disk"
	@echo "make bench     measure the engines, decisions in large fleets, memory and sweeps; writes docs/performance.md"
	@echo "make bench-training   measure training against a plain PyTorch loop (needs fedtwin data fetch fashion-mnist)"
	@echo "make bench-live   measure the live fleet beside a bare NATS echo; writes docs/live.md"
	@echo "make figures   draw figures 3, 4, 5 and regret in full, as docs/results.md shows them"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else "Python 3.11 to 3.13 is needed, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

$(RAY): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,ray]'
	touch $@

demo: $(READY)
	$(BIN)/fedtwin compare --seeds 5 --rounds 3000
	$(BIN)/fedtwin figure 3 4 5 digits --profile quick --out $(OUT) --overwrite
	rm -rf $(OUT)/live
	$(BIN)/fedtwin live demo --out $(OUT)/live
	@echo
	@echo "The pictures are in $(OUT): figure_3.png, figure_4.png, figure_5.png and figure_digits.png, each with its SVG and CSV."
	@echo "The live run on a page: $(BIN)/fedtwin serve $(OUT)/live, then http://127.0.0.1:8080/"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bytecode: $(READY)  # hundreds of processes import fedtwin in the tests, also where PYTHONDONTWRITEBYTECODE is set
	$(BIN)/python -m compileall -q src

test: lint types bytecode
	$(PYTEST) -m "not slow"

test-all: $(RAY) lint types bytecode
	-$(BIN)/fedtwin data fetch fashion-mnist  # without it what needs it is left out
	$(PYTEST)

test-python: bytecode
	$(PYTEST) -m "not slow" $(PER_PYTHON)

test-versions: $(READY)
	$(BIN)/python -m tests.python_versions

test-wheel: $(READY)
	$(BIN)/pytest -s tests/test_wheel.py

figures: $(READY)
	$(BIN)/fedtwin figure 3 4 5 regret --profile full --out out/figures --overwrite

bench: $(READY)
	$(BIN)/python -m benchmarks.performance

bench-training: $(READY)
	$(BIN)/python -m benchmarks.cpu_updates

bench-live: $(READY)
	$(BIN)/python -m benchmarks.live_overhead

clean:
	rm -rf $(VENV) .venv-* out build dist
