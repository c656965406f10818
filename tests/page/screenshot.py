#!/usr/bin/env python3
"""screenshot.py [--url URL] [--out FILE]: the page during a streamed answer, as PNG; without an address, of the mock."""
import argparse
import pathlib
import sys
import time

from devtools import Browser, find_chromium
from mock_server import MockServer

QUESTIONS = ["What is the capital of France?", "Explain a PAGE in markdown", "Please think, then tell me a slow story: slow"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="of a running server; default: the mock")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("page.png"))
    parser.add_argument("--question", action="append", help="may be repeated; the picture shows the last answer stream")
    parser.add_argument("--seconds", type=float, default=6, help="from the last question to the picture")
    parser.add_argument("--scheme", choices=["light", "dark"], default="light")
    parser.add_argument("--thinking", choices=["off", "low", "high", "max"], default="high")
    parser.add_argument("--size", default="1280x800")
    options = parser.parse_args()
    chromium = find_chromium()
    if not chromium:
        print("screenshot: no chromium on this machine")
        return 1
    width, height = map(int, options.size.split("x"))
    url = (options.url or MockServer().start().url).rstrip("/") + "/"  # as the browser spells it
    with Browser(chromium, width, height) as browser:
        browser.resize(width, height)
        browser.prefer(options.scheme)
        browser.open(url)
        browser.evaluate(f"document.querySelector('input[value={options.thinking}]').click(),"
                         " document.getElementById('prompt').focus()")
        questions = options.question or QUESTIONS
        for number, question in enumerate(questions, 1):
            browser.type(question)
            browser.press("Enter", 13, "\r")
            browser.wait(f"document.querySelectorAll('.turn.assistant').length === {number}", "the question is sent")
            if number < len(questions):
                browser.wait("document.getElementById('stop').hidden", "the answer ends", 300)
                time.sleep(1)
        time.sleep(options.seconds)
        options.out.write_bytes(browser.screenshot())
    print(f"{options.out}: {options.out.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
