# One command each: setup, check, test, demo. Nothing else is needed from a fresh clone.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PY := .venv/bin/python
STAMP := .venv/.synced
# The tests start hundreds of processes. Each would compile everything anew where this is set.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup ui packages check test unit integration chaos e2e-pxe soak demo lock format clean

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

## The fast part: style, types, import rules, unit tests. Under a minute.
check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	scripts/openapi --check
	scripts/ui check
	$(PY) -m pytest tests/unit -n 2

unit: setup
	$(PY) -m pytest tests/unit -n 2

integration: setup packages
	$(PY) -m pytest tests/integration -n 2

chaos: setup packages
	$(PY) -m pytest tests/chaos

## Virtual machines from an empty disk to an installed system, by emulation alone.
e2e-pxe: setup packages
	$(PY) -m pytest tests/e2e -m pxe -s

## Every check and every test.
test: setup packages check
	$(PY) -m pytest $(wildcard tests/integration tests/chaos tests/e2e) -n 2 --dist loadfile

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
