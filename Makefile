# SPDX-License-Identifier: MIT
#
# The door. Everything behind it is CMake (see CMakePresets.json) and scripts/;
# nothing here is needed to use weft from another build.
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
# Extra arguments for ctest, e.g. make test CTEST='-R unit.time'
CTEST  ?=

SHELL := /bin/bash
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup build demo test check lint asan tsan bench bench-quick install clean format

help:
	@echo 'make demo         build, then watch weft serve real clients (under a minute)'
	@echo 'make test         build with debug checks, then run every test'
	@echo 'make check        lint, then every test under address, undefined and thread sanitizers'
	@echo 'make lint         only the lint: format, layers, headers, exports, docs, compilers, tidy'
	@echo 'make bench        measure weft against its peers, with ratios and a chart'
	@echo 'make bench-quick  the same in short runs, under two minutes'
	@echo 'make install      headers, libraries, pkg-config and CMake files (PREFIX, DESTDIR)'
	@echo 'make setup        install the Debian packages that the above need'
	@echo 'make clean        remove build/'
	@echo
	@echo 'Each target sets up what it needs. CMake presets: release, debug, asan, tsan,'
	@echo 'clang-release, clang-debug, clang-asan, clang-tsan.'

setup:
	@scripts/setup build demo test check

# preset NAME: configure and build it.
preset = cmake --preset $(1) --log-level=WARNING && cmake --build --preset $(1) --parallel $(JOBS)
tests  = ctest --preset $(1) --parallel $(JOBS) $(CTEST)

build:
	@scripts/setup build
	@$(call preset,release)

demo:
	@scripts/setup build demo
	@$(call preset,release)
	@scripts/demo build/release

test:
	@scripts/setup build demo test
	@$(call preset,debug)
	@$(call tests,debug)

check: lint asan tsan

lint:
	@scripts/setup build demo check
	@$(call preset,release)
	@scripts/lint build/release

# With much address randomisation (vm.mmap_rnd_bits above 28) gcc 12's thread sanitizer
# sometimes cannot place its shadow memory: ask for none, where the system lets us.
fixed_addresses = $(shell setarch -R true 2>/dev/null && echo setarch -R)

asan:
	@scripts/setup build demo test
	@$(call preset,asan)
	@$(call tests,asan)

tsan:
	@scripts/setup build demo test
	@$(call preset,tsan)
	@$(fixed_addresses) $(call tests,tsan)

bench bench-quick:
	@scripts/setup build
	@scripts/setup bench
	@$(call preset,release)
	@bench/run $(if $(filter bench-quick,$@),--quick) build/release

install:
	@scripts/setup build
	@cmake --preset release --log-level=WARNING
	@cmake --build --preset release --parallel $(JOBS) --target weft weft_shared
	cmake --install build/release --prefix $(PREFIX)

format:
	@scripts/setup check
	@scripts/check-format --fix

clean:
	rm -rf build
