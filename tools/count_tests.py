#!/usr/bin/env python3
"""count_tests.py LOG RESULTS_FOLDER: the number of tests that a CI run really ran, as "N passed, N failed, N skipped".

Test cases come from the XML reports that the test programs wrote to RESULTS_FOLDER; checks and fuzzers, which are no
such programs, from their closing lines in LOG.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


def main() -> int:
    log = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace")
    passed = failed = skipped = 0
    for report in sorted(pathlib.Path(sys.argv[2]).rglob("*.xml")):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            if case.get("status") != "run" or case.get("result") == "skipped":
                skipped += 1
            elif case.find("failure") is not None:
                failed += 1
            else:
                passed += 1
    for match in re.finditer(r"^(?:lint|fuzz): (\d+) \w+ passed, (\d+) failed", log, re.MULTILINE):
        passed += int(match.group(1))
        failed += int(match.group(2))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 0 if passed > 0 and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
