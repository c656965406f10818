#!/bin/sh
# Runs one test program with the pinned client libraries, which a virtual environment beside the build holds.
# usage: run.sh VENV REQUIREMENTS SCRIPT; the environment names the program and the checkpoint (harness.py)
# Exit status 77: skipped, the reason is on standard output.
set -eu
here=$(dirname "$0")
# Tests that start together make the environment once.
(
  flock 9
  "$here/make_venv.sh" "$1" "$here/$2"
) 9>"$1.lock"
exec "$1/bin/python" "$here/$3"
