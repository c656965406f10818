#!/bin/sh
# Makes a virtual environment with what a requirements file names, once per content of that file.
# usage: make_venv.sh FOLDER REQUIREMENTS
# Exit status 77: the packages could not be had; the reason is on standard output.
set -eu
folder=$1
requirements=$2
if [ -f "$folder/requirements.txt" ] && cmp -s "$folder/requirements.txt" "$requirements"; then
  exit 0
fi
rm -rf "$folder"
if ! python3 -m venv "$folder" 2>"$folder.log"; then
  echo "skipped: python3 cannot make a virtual environment ($(tail -n 1 "$folder.log")); on Debian install python3-venv"
  rm -rf "$folder"
  exit 77
fi
if ! "$folder/bin/pip" install --quiet --retries 1 --requirement "$requirements" 2>"$folder.log"; then
  echo "skipped: the client libraries could not be installed: $(tail -n 1 "$folder.log")"
  rm -rf "$folder"
  exit 77
fi
cp "$requirements" "$folder/requirements.txt"
