#!/bin/bash
# fuzz.sh BUILD_FOLDER SECONDS: runs every fuzzer of that build for that long, one on each core, starting from its kept
# inputs. What a fuzzer finds new goes to BUILD_FOLDER/corpus/NAME, a failing input to BUILD_FOLDER/findings: fix the
# fault, then keep the input under tests/fuzz/corpus/NAME.
set -euo pipefail
cd "$(dirname "$0")/.."
build="${1:?usage: fuzz.sh BUILD_FOLDER SECONDS}"
seconds="${2:?usage: fuzz.sh BUILD_FOLDER SECONDS}"

export ASAN_SYMBOLIZER_PATH="${ASAN_SYMBOLIZER_PATH:-/usr/bin/llvm-symbolizer-19}"
mkdir -p "$build/findings"

# fuzz NAME BUILD SECONDS: one line when it held, the end of its log when it did not.
fuzz() {
  local name="$1" build="$2" seconds="$3"
  local log="$build/findings/$name.log" grown="$build/corpus/$name"
  mkdir -p "$grown"
  # -fork survives none of its process's crashes: the first one stops the run.
  if ! "$build/tests/fuzz/fuzz_$name" -fork=1 -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 \
      -artifact_prefix="$build/findings/" "$grown" "tests/fuzz/corpus/$name" > "$log" 2>&1; then
    tail -n 60 "$log"
    echo "fuzz: $name failed; the input is under $build/findings"
    return 1
  fi
  echo "fuzz: $name: $(grep -oE '^#[0-9]+: cov: [0-9]+' "$log" | tail -n 1) in $seconds s"
}
export -f fuzz

names="$(basename -a -s .cc tests/fuzz/fuzz_*.cc | sed 's/^fuzz_//')"
echo "$names" | xargs -P "$(nproc)" -I NAME bash -c 'fuzz "$@"' fuzz NAME "$build" "$seconds"
echo "fuzz: $(echo "$names" | wc -l) fuzzers passed, 0 failed"
