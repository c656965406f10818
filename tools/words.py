#!/usr/bin/env python3
"""Checks what no file of this repository may contain.

The repository stands alone: no path of one machine, no reference to a file outside it. Unfinished places name
their issue: TODO(#12). Text files are UTF-8 without tabs (Makefiles aside), carriage returns or trailing spaces.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".gz", ".bin", ".safetensors", ".npz", ".pt"}
# Kept as they are: inputs that are meant to be odd, and data of other projects.
VERBATIM = ("tests/fuzz/corpus/", "tests/data/", "tests/golden/", "models/")
# Written apart, so that this file passes its own check.
FORBIDDEN = [
    (re.compile(r"(?<![\w.])/" + r"(?:work|root|home)/"), "a path of one machine"),
    (re.compile(r"\.\./" + r"shared\b"), "a file outside the repository"),
    (re.compile(r"\bTO" + r"DO\b(?!\(#\d+\))"), "a TO" + "DO without an issue: write TO" + "DO(#12)"),
    (re.compile(r"\b(?:FIX" + r"ME|X" + r"XX)\b"), "an unfinished place"),
    (re.compile(r"^(?:<{7}|>{7}|={7})(?: |$)"), "a merge marker"),
]
SPACING = [(re.compile(r"[ \t]+$"), "trailing space"), (re.compile(r"\r"), "a carriage return")]


def listed_files() -> list[pathlib.Path]:
    """Files that git tracks or would add; without git, every file outside build/."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    result = subprocess.run(command, capture_output=True, check=False)
    if result.returncode == 0:
        return [ROOT / name for name in result.stdout.decode().split("\0") if name]
    skipped = {"build", ".git", ".cache", "__pycache__"}
    return [path for path in ROOT.rglob("*") if not skipped & set(path.relative_to(ROOT).parts)]


def problems_of(path: pathlib.Path) -> list[str]:
    name = path.relative_to(ROOT).as_posix()
    if path.suffix in BINARY or name.startswith(VERBATIM):
        return []
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        return [f"{name}: is not UTF-8 ({error.reason} at byte {error.start})"]
    rules = FORBIDDEN + SPACING
    if path.name != "Makefile":
        rules = rules + [(re.compile(r"\t"), "a tab")]
    problems = []
    for number, line in enumerate(text.split("\n"), 1):
        problems += [f"{name}:{number}: {why}: {line.strip()[:80]}" for pattern, why in rules if pattern.search(line)]
    if text and not text.endswith("\n"):
        problems.append(f"{name}: does not end with a newline")
    return problems


def main() -> int:
    files = sorted(path for path in listed_files() if path.is_file())
    problems = [problem for path in files for problem in problems_of(path)]
    for problem in problems[:100]:
        print(problem)
    print(f"words: {len(files)} files, {len(problems)} problems")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
