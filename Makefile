# `make` alone lists what there is. Everything works from a clean checkout; `make setup` installs what the machine lacks.

PREFIX ?= /usr/local
LISTEN ?= 127.0.0.1:8080
ATOLL  := target/release/atoll
PYTHON_OF = $(shell scripts/venv target/venvs/$(1) $(2))

.PHONY: help demo test test-all unit guest-tests script-tests bench bench-short serve build install lint setup clean

help:
	@echo "make demo       a Semantic Kernel agent answers a question about a CSV in a sandbox"
	@echo "make test       every check of this repository but the slow ones (needs root, once: packages)"
	@echo "make test-all   the slow ones, too"
	@echo "make bench      measure, against the same work without Atoll; writes bench/results/latest.json"
	@echo "make serve      the server on $(LISTEN), with its state in .state; ARGS=... are further flags of atoll serve"
	@echo "make build      $(ATOLL)"
	@echo "make install    puts it on PATH, as $(PREFIX)/bin/atoll"
	@echo "make lint       formatting, clippy, and what no compiler checks"
	@echo "make setup      install what this machine lacks"
	@echo "make clean      remove what was built; the state folder stays"

setup:
	@scripts/setup

build: setup
	cargo build --release --locked --package atoll

install: build
	install -D -m 755 $(ATOLL) $(DESTDIR)$(PREFIX)/bin/atoll

demo: build
	scripts/demo

serve: build
	scripts/serve --listen $(LISTEN) $(ARGS)

# Unit and property tests of every crate, and the conformance suite on each engine that works here.
unit: build
	cargo test --release --locked --workspace

# The drivers of contexts, on this machine's own Python.
guest-tests:
	$(call PYTHON_OF,guest,guest/contexts/python/tests/requirements.txt) -B -m pytest -q -p no:cacheprovider guest/contexts/python

# The scripts that keep servers and their keys, without a server.
script-tests:
	python3 -B -m unittest discover -s scripts/tests

test: unit guest-tests script-tests
	scripts/flows --recipes

test-all: unit guest-tests script-tests
	scripts/flows --all --recipes

bench: build
	$(call PYTHON_OF,bench,bench/requirements.txt) bench/run.py
	scripts/figures

bench-short: build
	$(call PYTHON_OF,bench,bench/requirements.txt) bench/run.py --short --output target/bench-short.json

lint:
	@scripts/setup --lint
	scripts/lint

clean:
	cargo clean
