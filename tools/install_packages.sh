#!/bin/bash
# install_packages.sh SET...: installs what packages.txt lists for the named sets and this machine lacks.
# Does nothing, quickly, when all is there. PAGESTATE_SKIP_PACKAGES=1 trusts the machine.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ "${PAGESTATE_SKIP_PACKAGES:-}" == 1 ]]; then exit 0; fi
if [[ $# -eq 0 ]]; then
  echo "usage: $0 SET... (sets of packages.txt)" >&2
  exit 2
fi

wanted=()
for set in "$@"; do
  mapfile -t names < <(awk -v set="$set" '$1 !~ /^#/ && $2 == set { print $1 }' packages.txt)
  if [[ ${#names[@]} -eq 0 ]]; then
    echo "packages.txt has no set '$set'" >&2
    exit 2
  fi
  wanted+=("${names[@]}")
done

if ! command -v dpkg-query > /dev/null; then
  echo "This is no Debian system. Install the counterparts of these packages by hand, then set" >&2
  echo "PAGESTATE_SKIP_PACKAGES=1: ${wanted[*]}" >&2
  exit 1
fi

missing=()
for name in "${wanted[@]}"; do
  state="$(dpkg-query --show --showformat='${db:Status-Status}' "$name" 2> /dev/null || true)"
  if [[ "$state" != installed ]]; then missing+=("$name"); fi
done
if [[ ${#missing[@]} -eq 0 ]]; then exit 0; fi

echo "Installing Debian packages: ${missing[*]}"
as_root=()
if [[ $EUID -ne 0 ]]; then
  if ! command -v sudo > /dev/null; then
    echo "Run as root, or have root install these packages: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
if ! { "${as_root[@]}" apt-get update -qq &&
       "${as_root[@]}" apt-get install -qq -y --no-install-recommends "${missing[@]}"; }; then
  echo "These packages could not be installed: ${missing[*]}" >&2
  echo "Install them by hand (packages.txt says what each is for), then run this again." >&2
  exit 1
fi
