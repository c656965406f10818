#!/usr/bin/env python3
"""The page in headless Chromium, against a mock of the server: what a user does, and what hostile text must not do.

Ends with 77 (skipped) where there is no Chromium."""
import sys
import time
import traceback

from devtools import Browser, find_chromium
from mock_server import HOSTILE, MockServer

SKIPPED = 77
LAST = "[...document.querySelectorAll('.turn.assistant')].at(-1)"


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def equal(found, wanted, what: str) -> None:
    expect(found == wanted, f"{what}: found {found!r}, expected {wanted!r}")


def text_of(browser: Browser, selector: str) -> str:
    return browser.evaluate(f"{LAST}.querySelector({selector!r}).textContent")


def ask(browser: Browser, text: str, waits: bool = True) -> None:
    turns = browser.evaluate("document.querySelectorAll('.turn.assistant').length")
    browser.evaluate("document.getElementById('prompt').focus()")
    browser.type(text)
    browser.press("Enter", 13, "\r")
    browser.wait(f"document.querySelectorAll('.turn.assistant').length > {turns}", f"{text!r} is sent")
    if waits:
        browser.wait(f"{LAST}.getAttribute('aria-busy') === 'false'", f"{text!r} is answered")


def reset(browser: Browser) -> None:
    browser.click("#reset")
    browser.wait("document.querySelectorAll('.turn').length === 0", "the conversation is empty")


def clean(browser: Browser, server: MockServer) -> None:
    """Nothing went to the console, and nobody but the server was asked."""
    equal(browser.console, [], "console")
    foreign = [url for url in browser.requests if not url.startswith(server.url)]
    equal(foreign, [], "requests to other hosts")


def check_reply_streams_in(browser, server):
    ask(browser, "please hello", waits=False)
    browser.wait(f"{LAST}.querySelector('.answer').textContent.length > 0", "the first words show")
    browser.wait(f"{LAST}.getAttribute('aria-busy') === 'false'", "the answer ends")
    equal(text_of(browser, ".answer"), "Hello! What can I do?", "answer")
    expect("256 of 301 prompt tokens from the cache" in text_of(browser, "footer"), "the cached tokens are shown")
    body = server.chats[-1]["body"]
    equal(body["messages"], [{"role": "user", "content": "please hello"}], "messages")
    equal((body["model"], body["stream"], body["thinking"], body["reasoning_effort"]),
          ("mock-model", True, {"type": "enabled"}, "high"), "defaults")
    equal([name for name in ("temperature", "top_p", "max_tokens", "seed", "tools") if name in body], [],
          "fields that nobody set")


def check_streaming_is_shown_before_the_end(browser, server):
    ask(browser, "slow", waits=False)
    lengths = []
    for _ in range(4):
        time.sleep(0.4)
        lengths.append(browser.evaluate(f"{LAST}.querySelector('.answer').textContent.length"))
    expect(lengths[0] < lengths[1] < lengths[2] < lengths[3], f"text grows while it streams: {lengths}")
    equal(browser.evaluate(f"{LAST}.getAttribute('aria-busy')"), "true", "busy")
    browser.press("Escape", 27)
    browser.wait(f"{LAST}.getAttribute('aria-busy') === 'false'", "Escape stops")


def check_reasoning_is_folded(browser, server):
    ask(browser, "think")
    equal(browser.evaluate(f"{LAST}.querySelector('details.reasoning').open"), False, "reasoning is open")
    equal(browser.evaluate(f"{LAST}.querySelector('.reasoning .text').checkVisibility()"), False, "visible")
    equal(text_of(browser, ".reasoning .text"), "The user wants\n<b>proof</b> of thought.", "reasoning")
    expect(text_of(browser, ".reasoning summary").startswith("Thought for "), "summary")
    browser.evaluate(f"{LAST}.querySelector('summary').focus()")
    browser.press("Enter", 13, "\r")
    browser.wait(f"{LAST}.querySelector('.reasoning .text').checkVisibility()", "the keyboard unfolds it")
    equal(text_of(browser, ".answer"), "Paris.", "answer")
    ask(browser, "hello")
    equal(server.chats[-1]["body"]["messages"][1],
          {"role": "assistant", "content": "Paris.", "reasoning_content": "The user wants\n<b>proof</b> of thought."},
          "the earlier answer goes back with its reasoning")


def check_stop_ends_the_request(browser, server):
    ask(browser, "slow", waits=False)
    browser.wait(f"{LAST}.querySelector('.answer').textContent.length > 20", "the answer runs")
    equal(browser.evaluate("document.getElementById('send').hidden"), True, "Send is hidden")
    browser.click("#stop")
    browser.wait("document.getElementById('stop').hidden", "Stop goes away")
    expect("stopped" in text_of(browser, "footer"), "the answer says that it was stopped")
    deadline = time.monotonic() + 5
    while not server.chats[-1]["is_gone"]:
        expect(time.monotonic() < deadline, "the server sees the client go")
        time.sleep(0.05)
    equal(text_of(browser, ".problem"), "", "a stop is no problem")
    ask(browser, "hello")
    kept = server.chats[-1]["body"]["messages"][1]
    expect(kept["role"] == "assistant" and kept["content"].startswith("word word"), f"the part stays: {kept}")


def check_settings_are_sent(browser, server):
    browser.click("input[value=low]")
    browser.click("#open-settings")
    browser.wait("document.getElementById('settings').open", "the dialog opens")
    values = {"temperature": "0.25", "top_p": "0.9", "max_tokens": "77", "seed": "5", "system": "Be brief.",
              "api_key": "secret", "tools": '[{"type": "function", "function": {"name": "now"}}]'}
    for name, value in values.items():
        browser.evaluate(f"document.forms['settings-form'].elements[{name!r}].value = {value!r}")
    browser.click("#settings-form .primary")
    browser.wait("!document.getElementById('settings').open", "the dialog closes")
    ask(browser, "hello")
    chat = server.chats[-1]
    body = chat["body"]
    equal({name: body[name] for name in ("temperature", "top_p", "max_tokens", "seed", "reasoning_effort")},
          {"temperature": 0.25, "top_p": 0.9, "max_tokens": 77, "seed": 5, "reasoning_effort": "low"}, "settings")
    equal(body["messages"][0], {"role": "system", "content": "Be brief."}, "system prompt")
    equal(body["tools"], [{"type": "function", "function": {"name": "now"}}], "tools")
    equal(chat["authorization"], "Bearer secret", "authorization")
    browser.click("input[value=off]")
    ask(browser, "hello")
    equal((server.chats[-1]["body"]["thinking"], "reasoning_effort" in server.chats[-1]["body"]),
          ({"type": "disabled"}, False), "thinking off")


def check_settings_refuse_what_is_not_legal(browser, server):
    browser.click("#open-settings")
    browser.evaluate("document.forms['settings-form'].elements.temperature.value = '3'")
    browser.click("#settings-form .primary")
    equal(browser.evaluate("document.getElementById('settings').open"), True, "temperature 3 keeps the dialog")
    browser.evaluate("document.forms['settings-form'].elements.temperature.value = ''")
    browser.evaluate("document.forms['settings-form'].elements.tools.value = '{\"a\": 1}'")
    browser.click("#settings-form .primary")
    equal(browser.evaluate("document.getElementById('settings-problem').textContent"), "Tools: expected an array",
          "problem")
    browser.click("#clear-settings")
    browser.click("#settings-form .primary")
    browser.wait("!document.getElementById('settings').open", "defaults are legal")
    equal(browser.evaluate("document.getElementById('changed').textContent"), "", "nothing is changed any more")


def check_tool_calls(browser, server):
    ask(browser, "tool")
    shown = browser.evaluate(f"[...{LAST}.querySelectorAll('.call')].map((call) =>"
                             " [call.querySelector('code').textContent, call.querySelector('pre').textContent])")
    equal(shown, [["get_weather", '{\n  "city": "Paris",\n  "unit": "<b>C</b>"\n}'], ["now", "{}"]], "calls")
    browser.evaluate(f"{LAST}.querySelector('.call textarea').focus()")
    browser.type("18 C")
    browser.click(".return-results")
    browser.wait("document.querySelectorAll('.turn.assistant').length === 2", "the results are returned")
    browser.wait(f"{LAST}.getAttribute('aria-busy') === 'false'", "the answer ends")
    equal(server.chats[-1]["body"]["messages"][1:], [
        {"role": "assistant", "content": "", "reasoning_content": "Need the weather.", "tool_calls": [
            {"id": "call_0", "type": "function",
             "function": {"name": "get_weather", "arguments": '{"city": "Paris", "unit": "<b>C</b>"}'}},
            {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_0", "content": "18 C"},
        {"role": "tool", "tool_call_id": "call_1", "content": ""}], "messages with results")


def check_markdown(browser, server):
    ask(browser, "markdown")
    found = browser.evaluate(f"[...{LAST}.querySelector('.answer').children].map((node) =>"
                             " [node.tagName, node.querySelectorAll('li').length])")
    equal(found, [["P", 0], ["UL", 2], ["OL", 2], ["DIV", 0], ["P", 0], ["P", 0]], "blocks")
    equal(text_of(browser, ".answer strong"), "256 tokens", "bold")
    equal(text_of(browser, ".answer li code"), "prefix", "inline code")
    equal(text_of(browser, ".code-block pre"), "int page(int token) {\n  return token / 256;\n}", "code block")
    equal(text_of(browser, ".code-block header span"), "cpp", "language")
    equal(text_of(browser, "p.heading"), "Then", "heading")


def check_hostile_text_stays_text(browser, server):
    ask(browser, f"{HOSTILE} hostile")
    names = browser.evaluate("[...new Set([...document.querySelectorAll('.turn *')].map((node) => node.tagName))]")
    allowed = {"DETAILS", "SUMMARY", "DIV", "P", "STRONG", "CODE", "UL", "LI", "PRE", "HEADER", "SPAN", "BUTTON", "FOOTER"}
    equal(sorted(set(names) - allowed), [], "elements that hostile text made")
    equal(text_of(browser, ".reasoning .text"), HOSTILE, "reasoning, verbatim")
    answer = text_of(browser, ".answer")
    for part in ("<img src=x onerror=", "<script>document.title=\"owned\"</script>", "<b>bold</b>", "<i>code</i>",
                 "[click](javascript:alert(1))", "<svg onload=alert(1)>", "<iframe src=//evil.invalid>", "</code></pre>"):
        expect(part in answer, f"{part} is not shown as it came: {answer!r}")
    equal(browser.evaluate("document.title"), "pagestate", "title")
    equal(browser.evaluate("document.querySelector('.turn.user').textContent"), f"{HOSTILE} hostile", "own message")


def check_engine_view(browser, server):
    browser.wait("document.getElementById('link-state').dataset.state === 'live'", "the view is live")
    equal(browser.evaluate("document.getElementById('model').textContent"), "mock-model", "model")
    label = browser.evaluate("document.getElementById('page-map').getAttribute('aria-label')")
    equal(label, "PAGE map: 137 used, 320 cached, 6 STATE images, 537 free", "map in words")
    colours = browser.evaluate("(() => { const map = document.getElementById('page-map');"
                               " const data = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;"
                               " const seen = new Set(); for (let at = 0; at < data.length; at += 4)"
                               " if (data[at + 3] === 255) seen.add(data.slice(at, at + 3).join()); return seen.size; })()")
    equal(colours, 4, "colours of the map")
    ask(browser, "slow", waits=False)
    browser.wait("[...document.querySelectorAll('#running tr')].length > 0", "the request shows")
    browser.wait("Number.parseFloat(document.querySelectorAll('#gauges b')[1].textContent) > 0", "tokens per second")
    browser.wait("document.querySelector('#gauges .line').getAttribute('points').split(' ').length >= 2", "sparkline")
    browser.press("Escape", 27)
    equal(browser.evaluate("document.getElementById('queue-note').textContent"), "2 waiting", "queue")


def check_keyboard(browser, server):
    browser.evaluate("document.getElementById('prompt').focus()")
    browser.type("first line")
    browser.press("Enter", 13, "\r", modifiers=8)
    browser.type("hello")
    equal(browser.evaluate("document.getElementById('prompt').value"), "first line\nhello", "Shift+Enter")
    browser.press("Enter", 13, "\r")
    browser.wait(f"{LAST}?.getAttribute('aria-busy') === 'false'", "Enter sends")
    equal(server.chats[-1]["body"]["messages"][0]["content"], "first line\nhello", "message")
    browser.evaluate("document.activeElement.blur()")
    browser.press("/", 191, "/")
    equal(browser.evaluate("[document.activeElement.id, document.activeElement.value]"), ["prompt", ""], "slash")
    unnamed = browser.evaluate("[...document.querySelectorAll('button, input, textarea')].filter((node) =>"
                               " !(node.textContent.trim() || node.labels?.length || node.ariaLabel)).length")
    equal(unnamed, 0, "controls without a name")


def check_reader_is_left_where_they_are(browser, server):
    ask(browser, "long")
    expect(browser.evaluate("(() => { const box = document.getElementById('transcript');"
                            " return box.scrollHeight - box.scrollTop - box.clientHeight < 48; })()"), "follows the end")
    ask(browser, "slow", waits=False)
    browser.evaluate("document.getElementById('transcript').scrollTop = 0")
    time.sleep(0.5)
    equal(browser.evaluate("document.getElementById('transcript').scrollTop"), 0, "position while text arrives")
    browser.press("Escape", 27)


def check_try_again_and_new_chat(browser, server):
    ask(browser, "hello")
    browser.click(".retry")
    browser.wait(f"document.querySelectorAll('.turn.assistant').length === 1 && "
                 f"{LAST}.getAttribute('aria-busy') === 'false'", "asked again")
    equal(server.chats[-1]["body"]["messages"], [{"role": "user", "content": "hello"}], "messages of the second try")
    ask(browser, "slow", waits=False)
    reset(browser)
    equal(browser.evaluate("document.getElementById('hint').hidden"), False, "the hint is back")
    ask(browser, "hello")
    equal(server.chats[-1]["body"]["messages"], [{"role": "user", "content": "hello"}], "messages after a reset")


def check_narrow_and_dark(browser, server):
    browser.resize(420, 800)
    browser.prefer("dark")
    equal(browser.evaluate("document.documentElement.scrollWidth"), 420, "width of the page")
    equal(browser.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(21, 23, 26)", "dark ground")
    browser.prefer("light")
    equal(browser.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(250, 250, 248)", "light ground")
    browser.resize(1280, 800)


# These make the browser log a failed load, so they come after the look at the console.
def check_problems_are_shown(browser, server):
    for word, problem in (("refuse", "top_p must be in (0, 1] <b>"), ("fault", "the engine stopped"),
                          ("broken", "the connection ended before the answer did")):
        reset(browser)
        ask(browser, word)
        equal(text_of(browser, ".problem"), problem, word)
        equal(browser.evaluate(f"{LAST}.querySelector('.problem').getAttribute('role')"), "alert", "role")


def check_key_is_asked_for(browser, server):
    server.key = "secret"
    browser.wait("document.getElementById('engine-notice').textContent.includes('API key')", "the notice shows")
    browser.click("#open-settings")
    browser.evaluate("document.forms['settings-form'].elements.api_key.value = 'secret'")
    browser.click("#settings-form .primary")
    browser.wait("document.getElementById('link-state').dataset.state === 'live'", "the key is used")


CHECKS = [check_reply_streams_in, check_streaming_is_shown_before_the_end, check_reasoning_is_folded,
          check_stop_ends_the_request, check_settings_are_sent, check_settings_refuse_what_is_not_legal, check_tool_calls,
          check_markdown, check_hostile_text_stays_text, check_engine_view, check_keyboard,
          check_reader_is_left_where_they_are, check_try_again_and_new_chat, check_narrow_and_dark]
LATE_CHECKS = [check_problems_are_shown, check_key_is_asked_for]


def main() -> int:
    chromium = find_chromium()
    if not chromium:
        print("page: skipped: no chromium on this machine (set `page` of packages.txt)")
        return SKIPPED
    server = MockServer().start()
    failures = 0
    with Browser(chromium) as browser:
        browser.resize(1280, 800)
        browser.open(server.url)
        for check in CHECKS + [clean] + LATE_CHECKS:
            started = time.monotonic()
            try:
                check(browser, server)
                result = "ok"
            except Exception:  # whatever it is, the other checks run
                result = f"FAILED\n{traceback.format_exc()}"
                failures += 1
            print(f"{check.__name__}: {result} ({time.monotonic() - started:.1f} s)", flush=True)
            if check is not clean:
                browser.evaluate("document.getElementById('settings').close()")
                reset(browser)
    print(f"page: {len(CHECKS) + len(LATE_CHECKS) + 1 - failures} checks passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
