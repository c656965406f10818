# The front door: each target installs the Debian packages that it lacks (packages.txt), then configures and builds what
# it needs. CMake presets hold the settings; everything made lies under build/.
.DEFAULT_GOAL := build
.PHONY: build test demo quality bench lint asan tsan fuzz format clean help packages

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
TINY := models/tiny

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

build: packages ## the program: build/release/apps/pagestate
	@cmake --preset release > build/release.log || { cat build/release.log; exit 1; }
	cmake --build --preset release --parallel $(JOBS) --target pagestate

test: packages ## everything, then all tests
	@cmake --preset release > build/release.log || { cat build/release.log; exit 1; }
	cmake --build --preset release --parallel $(JOBS)
	ctest --preset release --parallel $(JOBS)

# Asked as the chat format wants it, thinking off.
QUESTIONS := "Who are you?" "What is the capital of France?" "What is the opposite of cold?"

demo: build ## a short dialogue with the trained model in models/tiny
	@for question in $(QUESTIONS); do \
	  echo "> $$question"; \
	  build/release/apps/pagestate generate --model $(TINY) --prompt "<｜User｜>$$question<｜Assistant｜></think>" \
	    --max-tokens 64 2> build/demo.log || { cat build/demo.log; exit 1; }; \
	done

quality: build ## measure models/tiny anew and rewrite docs/quality.md (Python 3, about 15 minutes on 2 cores)
	python3 training/quality.py --program build/release/apps/pagestate --model $(TINY)

# A checkpoint of real dimensions, 5 GB, in which every kind of layer occurs.
SLICE ?= build/flash-slice
SLICE_OPTIONS := --preset flash-slice --layers 0,1,2,3,20,21,24 --experts 8 --engram-rows 1000000

bench: build ## the benchmark programs (results as JSON under build/release/bench), then the table of the CPU backend
	cmake --build --preset release --parallel $(JOBS) --target benches
	cmake --build --preset release --target bench
	test -e $(SLICE)/config.json || build/release/apps/pagestate make-checkpoint $(SLICE_OPTIONS) --out $(SLICE)
	python3 bench/tables.py build/release/bench/ops_bench.json build/release/apps/pagestate $(SLICE)

lint: packages ## layering, sizes, words, clang-format, clang-tidy
	@tools/install_packages.sh lint
	@cmake --preset release > build/release.log || { cat build/release.log; exit 1; }
	tools/lint.sh build/release

# The modules that read outside bytes or do arithmetic on addresses, the CPU's kernels, the engine with its invariants
# checked after every step, and the server on real sockets; the rest runs under the sanitizers on demand:
# cmake --build --preset asan && ctest --preset asan
ASAN_TESTS := base_test text_test checkpoint_test ops_test cpu_test cache_test engine_test engine_system_test \
  server_test server_system_test
# Those with threads: the pool, what runs on it, and the server with its engine.
TSAN_TESTS := base_test cpu_test server_test server_system_test

# $(call sanitize,PRESET,PROGRAMS,TESTS): configured afresh, since another compiler in an old cache makes CMake forget
# the preset's other settings; the checkpoint that some tests read is written by the program of `make build`.
sanitize = @tools/install_packages.sh clang && \
  { cmake --fresh --preset $(1) > build/$(1).log || { cat build/$(1).log; exit 1; }; } && \
  cmake --build --preset $(1) --parallel $(JOBS) --target $(2) && \
  build/release/apps/pagestate make-checkpoint --preset nano --seed 1 --out build/$(1)/tests/nano_checkpoint --force && \
  ctest --preset $(1) --parallel $(JOBS) --fixture-exclude-any nano --tests-regex '^($(subst $(eval ) ,|,$(3)))$$'

asan: build ## unit tests and the server under the address and undefined-behaviour sanitizers
	$(call sanitize,asan,$(ASAN_TESTS),$(ASAN_TESTS))

tsan: build ## the thread pool, the CPU backend and the server under the thread sanitizer
	$(call sanitize,tsan,$(TSAN_TESTS),base_test.threads cpu_test.threads server_test server_system_test)

# The fuzzers are made of the same objects as the tests of `make asan`.
fuzz: packages ## every fuzzer for FUZZ_SECONDS (60)
	@tools/install_packages.sh clang
	@cmake --fresh --preset asan > build/asan.log || { cat build/asan.log; exit 1; }
	cmake --build --preset asan --parallel $(JOBS) --target fuzzers
	tools/fuzz.sh build/asan $(FUZZ_SECONDS)

format: ## lay out all sources
	@tools/install_packages.sh lint
	tools/format.sh

clean: ## remove build/
	rm -rf build

packages:
	@mkdir -p build
	@tools/install_packages.sh build
