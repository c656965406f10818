#!/usr/bin/env python3
"""Checks every #include of src/ against the table of modules in src/CMakeLists.txt.

A file of module m may include headers of m and of the modules that m's row names under DEPENDS; a test may use no more.
Headers are included by their path from src/ ("base/status.h"), and an angle-bracket include never names a module.
The table itself has one direction: a row names only modules of rows above it. apps/, bench/ and tests/ may include
anything, but nothing in src/ includes them.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".h", ".cc", ".cu", ".cuh", ".inc"}


def read_table(text: str) -> dict[str, set[str]]:
    """Module -> modules that it may include, from the pagestate_module() calls, in order."""
    table: dict[str, set[str]] = {}
    text = re.sub(r"#[^\n]*", "", text)
    for call in re.findall(r"pagestate_module\(([^)]*)\)", text):
        words = call.split()
        lists: dict[str, list[str]] = {}
        key = ""
        for word in words:
            if word.isupper():
                key = word
                lists[key] = []
            else:
                lists.setdefault(key, []).append(word)
        table[lists["NAME"][0]] = set(lists.get("DEPENDS", []))
    return table


def table_problems(table: dict[str, set[str]]) -> list[str]:
    problems = []
    above: set[str] = set()
    for module, depends in table.items():
        for name in sorted(depends - above):
            problems.append(f"src/CMakeLists.txt: {module} depends on {name}, which is not a row above it")
        above.add(module)
    return problems


def include_problems(path: pathlib.Path, module: str, table: dict[str, set[str]], modules: set[str]) -> list[str]:
    problems = []
    may = table.get(module, set()) | {module}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        bracket, target = match.groups()
        where = f"{path.relative_to(ROOT)}:{number}"
        first = target.split("/")[0]
        if bracket == "<":
            if first in modules and "/" in target:
                problems.append(f'{where}: write "{target}" for a header of this project')
        elif first not in modules or "/" not in target:
            problems.append(f"{where}: {target} is no path of a module header from src/")
        elif first not in may:
            problems.append(f"{where}: {module} may not include {first} (it may include: {', '.join(sorted(may))})")
        elif not (ROOT / "src" / target).is_file():
            problems.append(f"{where}: src/{target} does not exist")
    return problems


def main() -> int:
    table = read_table((ROOT / "src" / "CMakeLists.txt").read_text(encoding="utf-8"))
    problems = table_problems(table)
    folders = {folder.name for folder in (ROOT / "src").iterdir() if folder.is_dir() and any(folder.rglob("*.*"))}
    for name in sorted(folders - set(table)):
        problems.append(f"src/{name}: has no row in src/CMakeLists.txt")
    count = 0
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in SOURCES:
            count += 1
            module = path.relative_to(ROOT / "src").parts[0]
            problems += include_problems(path, module, table, folders | set(table))
    for problem in problems:
        print(problem)
    print(f"layering: {count} files, {len(table)} modules, {len(problems)} problems")
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
