# One command each: setup, check, test, demo. Nothing else is needed from a fresh clone.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PY := .venv/bin/python
STAMP := .venv/.synced
# The tests start hundreds of processes. Each would compile everything anew where this is set.
export PYTHONDONTWRITEBYTECODE :=

# What pytest writes of each run of `make test`, for the list at its end.
REPORTS := build/reports

.PHONY: setup ui packages check-packages check test begin-reports unit integration chaos e2e-pxe e2e-pxe-all soak flaky fresh demo lock format clean

setup: $(STAMP) ui

$(STAMP): pyproject.toml requirements/dev.lock requirements/uv.lock scripts/setup
	scripts/setup
	touch $(STAMP)

## The web page. Nothing is done when nothing changed.
UI := src/rackwright/api/static/index.html
ui: $(UI)

$(UI): $(STAMP) openapi.json $(shell find ui -name node_modules -prune -o -type f ! -name schema.d.ts -print) scripts/ui
	scripts/ui
	touch $(UI)

packages:
	scripts/packages

check-packages:
	scripts/packages --check

## The fast part: style, types, import rules, unit tests. Two minutes.
check: setup check-packages
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	scripts/openapi --check
	scripts/ui check
	$(PY) -m pytest tests/unit -n 2 --junitxml=$(REPORTS)/unit.xml

unit: setup check-packages
	$(PY) -m pytest tests/unit -n 2

integration: setup packages
	$(PY) -m pytest tests/integration -n 2 --dist loadfile

chaos: setup packages
	$(PY) -m pytest tests/chaos

## Virtual machines from an empty disk to an installed system, by emulation alone.
e2e-pxe: setup packages
	$(PY) -m pytest tests/e2e -m pxe -s

## Every scenario on virtual machines, one after the other: an hour or more. SCENARIO=NAME plays one.
e2e-pxe-all: setup packages
	$(PY) -m pytest tests/e2e -m "pxe or pxe_all" -s $(if $(SCENARIO),-k $(SCENARIO))

## Every check and every test. Ends with the ten slowest tests and the time of all of it.
test: begin-reports setup packages check
	status=0; \
	$(PY) -m pytest tests/integration tests/chaos tests/e2e -m "not pxe_all" -n 2 --dist loadfile --junitxml=$(REPORTS)/real.xml || status=$$?; \
	scripts/slowest-tests $(REPORTS); \
	exit $$status

begin-reports:
	rm -rf $(REPORTS)
	mkdir -p $(REPORTS)
	touch $(REPORTS)/began

## Integration, chaos and end-to-end tests N times on a busy machine; tells each test that failed even once.
N := 5
flaky: setup packages
	scripts/packages stress-ng
	$(PY) scripts/flaky $(N) $(ARGS)

## HEAD on a bare Debian 12, in namespaces of its own, as root: the demo, then `make test`. ARGS="setup check" runs a part;
## SUITE=trixie does the demo and `make check` on Debian 13; KEEP=1 keeps the root to look at. Run it before calling a change done.
fresh:
	scripts/fresh $(if $(SUITE),--suite $(SUITE)) $(if $(KEEP),--keep) $(ARGS)

## Hundreds of simulated machines while servers are killed, paused and cut off: minutes, on a machine of its own.
soak: setup packages
	$(PY) -m pytest tests/soak

demo: setup
	.venv/bin/rackwright demo $(ARGS)

## After a change of pyproject.toml or requirements/*.in.
lock:
	scripts/lock

format: setup
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

clean:
	rm -rf .venv build ui/node_modules src/rackwright/api/static .mypy_cache .ruff_cache .pytest_cache .hypothesis
