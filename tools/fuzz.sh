#!/bin/bash
# fuzz.sh BUILD_FOLDER SECONDS: runs every fuzzer of that build for that long, starting from its kept inputs.
# What a fuzzer finds new goes to BUILD_FOLDER/corpus/NAME, a failing input to BUILD_FOLDER/findings: fix the fault, then
# keep the input under tests/fuzz/corpus/NAME.
set -euo pipefail
cd "$(dirname "$0")/.."
build="${1:?usage: fuzz.sh BUILD_FOLDER SECONDS}"
seconds="${2:?usage: fuzz.sh BUILD_FOLDER SECONDS}"

export ASAN_SYMBOLIZER_PATH="${ASAN_SYMBOLIZER_PATH:-/usr/bin/llvm-symbolizer-19}"
mkdir -p "$build/findings"
passed=0
for source in tests/fuzz/fuzz_*.cc; do
  name="$(basename "$source" .cc)"
  name="${name#fuzz_}"
  kept="tests/fuzz/corpus/$name"
  grown="$build/corpus/$name"
  mkdir -p "$grown"
  log="$build/findings/$name.log"
  # -fork keeps one process per core busy and survives none of their crashes: the first one stops the run.
  if ! "$build/tests/fuzz/fuzz_$name" -fork="$(nproc)" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 \
      -artifact_prefix="$build/findings/" "$grown" "$kept" > "$log" 2>&1; then
    tail -n 60 "$log"
    echo "fuzz: $name failed; the input is under $build/findings"
    exit 1
  fi
  echo "fuzz: $name: $(grep -oE '^#[0-9]+: cov: [0-9]+' "$log" | tail -n 1) in $seconds s"
  passed=$((passed + 1))
done
echo "fuzz: $passed fuzzers passed, 0 failed"
