#!/usr/bin/env python3
"""live_test.py PROGRAM MODEL: the page in headless Chromium with the program behind it: an answer with its thought streams
in, the engine's view moves, nothing goes to the console or to another host. Ends with 77 (skipped) without Chromium."""
import re
import subprocess
import sys

from devtools import Browser, find_chromium

SKIPPED = 77
LAST = "[...document.querySelectorAll('.turn.assistant')].at(-1)"


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def check(url: str, chromium: str) -> None:
    with Browser(chromium, 1280, 800) as browser:
        browser.open(url)
        browser.evaluate("document.getElementById('prompt').focus()")
        browser.type("What is the capital of France?")
        browser.press("Enter", 13, "\r")
        browser.wait(f"{LAST}?.getAttribute('aria-busy') === 'false'", "the question is answered")
        answer = browser.evaluate(f"{LAST}.querySelector('.answer').textContent")
        expect("Paris" in answer, f"the answer is {answer!r}")
        thought = browser.evaluate(f"{LAST}.querySelector('details').textContent")
        expect(len(thought) > 20, f"the thought is {thought!r}")
        footer = browser.evaluate(f"{LAST}.querySelector('footer').textContent")
        expect(re.search(r"\d+ tokens, .*prompt tokens from the cache", footer) is not None, f"the footer is {footer!r}")
        browser.wait("/PAGEs of \\d+ tokens/.test(document.body.textContent)", "the engine's PAGEs are counted")
        browser.wait("document.body.textContent.includes('live')", "the view is live")
        expect(browser.console == [], f"console: {browser.console}")
        foreign = [request for request in browser.requests if not request.startswith(url)]
        expect(foreign == [], f"requests to other hosts: {foreign}")


def main() -> int:
    program, model = sys.argv[1:3]
    chromium = find_chromium()
    if not chromium:
        print("page_live: skipped: no chromium on this machine")
        return SKIPPED
    server = subprocess.Popen([program, "serve", "--model", model, "--port", "0"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    try:
        ready = server.stdout.readline()
        address = re.search(r"ready at (http://\S+)", ready)
        expect(address is not None, f"the server says {ready!r}")
        check(address.group(1) + "/", chromium)
    finally:
        server.terminate()
        server.wait(60)
    print("page_live: 1 checks passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
