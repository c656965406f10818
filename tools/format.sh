#!/bin/bash
# format.sh [FILE...]: lays out the named files, or all C++ and CUDA sources, with .clang-format.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# -eq 0 ]]; then
  mapfile -t files < <(find src apps tests bench -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh')
  set -- "${files[@]}"
fi
clang-format-19 -i "$@"
