#!/bin/bash
# lint.sh BUILD_FOLDER: every check that reads code without running it. BUILD_FOLDER holds compile_commands.json.
# clang-tidy, at seconds a file, reads the modules below the ops and the CPU backend; with TIDY=all every source of src
# and apps but the tests.
set -uo pipefail
cd "$(dirname "$0")/.."
build="${1:?usage: lint.sh BUILD_FOLDER}"

passed=0
failed=()
check() {
  local name="$1" started="$SECONDS"
  shift
  if "$@"; then passed=$((passed + 1)); else failed+=("$name"); fi
  echo "lint: $name: $((SECONDS - started)) s"
}

format() { find src apps tests bench -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' | sort |
             xargs clang-format-19 --dry-run -Werror; }
shell() { local status=0; for file in tools/*.sh .ci/run; do bash -n "$file" || status=1; done; return $status; }
# Where outside bytes are read and addresses computed; all of src and apps with TIDY=all, which takes minutes.
tidied() {
  find src apps -name '*.cc' ! -name '*_test.cc' |
    if [[ "${TIDY:-}" == all ]]; then cat; else grep -E '^src/(base|checkpoint|cpu)/'; fi
}
tidy() {
  local files
  mapfile -t files < <(tidied | sort)
  echo "lint: tidy: ${#files[@]} files"
  run-clang-tidy-19 -quiet -j "$(nproc)" -p "$build" "${files[@]/%/\$}" > "$build/clang-tidy.log" 2>&1 ||
    { grep -E 'warning:|error:' "$build/clang-tidy.log" | sort -u; return 1; }
}

check layering python3 tools/layering.py
check sizes python3 tools/sizes.py
check words python3 tools/words.py
check shell shell
check format format
check tidy tidy

if [[ ${#failed[@]} -gt 0 ]]; then
  echo "lint: $passed checks passed, ${#failed[@]} failed: ${failed[*]}"
  exit 1
fi
echo "lint: $passed checks passed, 0 failed"
