#!/usr/bin/env python3
"""chat_commands.py PROGRAM CHECKPOINT: what `pagestate chat` promises, in a pipe and on a terminal, with the engine in
process and with a server (a mock). CHECKPOINT is one that knows the capital of France."""
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "page"))
from mock_server import MockServer  # noqa: E402

PROGRAM, MODEL = sys.argv[1:3]
CAPITAL = "What is the capital of France?"
STATE = tempfile.TemporaryDirectory(prefix="pagestate-chat-")
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": STATE.name, "XDG_STATE_HOME": STATE.name, "TERM": "xterm"}


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def contains(text: str, *parts: str) -> None:
    for part in parts:
        expect(part in text, f"no {part!r} in {text!r}")


def pipe(lines: str, *options: str, code: int = 0) -> tuple[str, str]:
    """Standard output and standard error of a session whose input is a pipe."""
    result = subprocess.run([PROGRAM, "chat", *options], input=lines, env=ENVIRONMENT, capture_output=True, text=True,
                            timeout=120, check=False)
    expect(result.returncode == code, f"exit code {result.returncode}, expected {code}: {result.stdout}{result.stderr}")
    return result.stdout, result.stderr


class Terminal:
    """A session on a pseudo terminal. `screen` collects what it wrote."""

    def __init__(self, *options: str):
        self.screen = ""
        child, self._end = pty.fork()
        if child == 0:
            os.execve(PROGRAM, [PROGRAM, "chat", *options], ENVIRONMENT)
        self._child = child

    def wait(self, pattern: str, what: str, seconds: float = 60) -> None:
        """Until the pattern shows behind what an earlier wait found."""
        deadline = time.monotonic() + seconds
        while not (match := re.search(pattern, self.screen, re.DOTALL)):
            expect(time.monotonic() < deadline, f"{what}: no {pattern!r} in {self.screen!r}")
            if select.select([self._end], [], [], 0.1)[0]:
                self.screen += self._read()
        self.screen = self.screen[match.end():]

    def _read(self) -> str:
        try:
            data = os.read(self._end, 1 << 16)
        except OSError:  # the other end is closed
            data = b""
        expect(data != b"", f"the program ended: {self.screen!r}")
        return data.decode("utf-8", "replace")

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def code(self, seconds: float = 20) -> int:
        """Waits for the end."""
        deadline = time.monotonic() + seconds
        while True:
            done, status = os.waitpid(self._child, os.WNOHANG)
            if done:
                os.close(self._end)
                return os.waitstatus_to_exitcode(status)
            if select.select([self._end], [], [], 0.05)[0]:
                try:
                    self.screen += os.read(self._end, 1 << 16).decode("utf-8", "replace")
                except OSError:
                    pass
            if time.monotonic() > deadline:
                os.kill(self._child, signal.SIGKILL)
                raise AssertionError(f"the program does not end: {self.screen!r}")


PROMPT = r"> \Z|> $"
CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"


def test_pipe_with_the_engine_in_process():
    out, error = pipe(f"{CAPITAL}\n/think off\n{CAPITAL}\n/reset\n{CAPITAL}\n", "--model", MODEL, "--temperature", "0")
    expect(out == "The capital of France is Paris.\n" * 3, f"answers: {out!r}")
    contains(error, "The user asks", "tokens/s", "The conversation is forgotten.")
    prompts = [int(tokens) for tokens in re.findall(r"prompt (\d+) tokens", error)]
    expect(prompts[2] < prompts[1] - 10, f"the third prompt still has the turns before it: {prompts}")


def test_cached_tokens_grow_with_the_conversation():
    out, error = pipe(f"{CAPITAL}\n" * 6 + "/stats\n", "--model", MODEL, "--temperature", "0", "--page-tokens", "128")
    cached = [int(tokens) for tokens in re.findall(r"(\d+) cached", error)]
    prompts = [int(tokens) for tokens in re.findall(r"prompt (\d+) tokens", error)]
    expect(len(cached) == 6, f"answers: {error}")
    # Each prompt begins with all of the one before: whole PAGEs of it are found.
    for before, prompt, found in zip(prompts, prompts[1:], cached[1:]):
        expect(found >= before // 128 * 128, f"{found} of {prompt} tokens cached, {before} were there before")
    expect(cached[-1] >= 128, f"cached: {cached}")
    contains(out, f"cached tokens: {sum(cached):,} (", "PAGEs: ", f"prompt tokens: {sum(prompts):,}")


def test_sampling_repeats_with_its_seed():
    # Nonsense, so that the model is never sure of its answer.
    lines = "\n/reset\n".join(("qwx vum", "blick ? zor", "Continue: of the and", "7 7 a 7", "( ) ( (")) + "\n"
    options = ("--model", MODEL, "--think", "off", "--max-tokens", "20", "--temperature", "2", "--top-p", "1", "--seed")
    runs = [pipe(lines, *options, seed)[0] for seed in ("3", "3", "1", "2")]
    expect(runs[0] == runs[1], f"seed 3 twice: {runs[:2]}")
    expect(len(set(runs)) > 1, f"seeds 3, 1 and 2: {runs[0]}")


def test_problems_in_a_pipe_end_it():
    out, error = pipe(f"/think off\n{CAPITAL}\n/frobnicate\n{CAPITAL}\n", "--model", MODEL, "--temperature", "0", code=2)
    contains(error, "unknown command /frobnicate; legal are /think, /system, /stats, /reset, /help, /quit")
    expect(out == "The capital of France is Paris.\n", f"answers before the problem: {out!r}")
    _, error = pipe('"""\nno end', "--model", MODEL, code=2)
    contains(error, "the input ends inside")
    _, error = pipe("a " * 400 + "\n", "--model", MODEL, "--max-context", "256", code=1)
    contains(error, "a context holds 256: start over with /reset, or raise --max-context")


def test_refusals_name_the_legal_values():
    for options, words in (((), "--model or --url"), (("--model", MODEL, "--url", "http://x"), "excludes"),
                           (("--model", MODEL, "--think", "medium"), "off, low, high, max"),
                           (("--model", MODEL, "--temperature", "3"), "--temperature"),
                           (("--model", MODEL, "--model-name", "x"), "--url"),
                           (("--url", "ftp://x"), "http://127.0.0.1:8000")):
        _, error = pipe("", *options, code=2)
        contains(error, words)
    _, error = pipe("x\n", "--model", MODEL, "--top-p", "0", code=2)
    contains(error, "top")
    _, error = pipe("x\n", "--url", "http://127.0.0.1:9", code=1)
    contains(error, "http://127.0.0.1:9")


def test_pipe_with_a_server():
    server = MockServer().start()
    options = ("--url", server.url, "--temperature", "0.5", "--top-p", "0.9", "--max-tokens", "50", "--seed", "3",
               "--system", "Be brief.", "--think", "low")
    out, error = pipe("please think\n/think off\nhello\n/stats\n", *options)
    expect(out.startswith("Paris.\nHello! What can I do?\nmock-model at http://127.0.0.1:"), f"output: {out!r}")
    contains(out, "cached tokens: 512 (85.0 %)")
    contains(error, "The user wants\n<b>proof</b> of thought.\n", "42 tokens")
    first, second = (chat["body"] for chat in server.chats)
    expect(first["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "please think"}],
           f"messages: {first['messages']}")
    expect(second["messages"][2:] == [
        {"role": "assistant", "content": "Paris.", "reasoning_content": "The user wants\n<b>proof</b> of thought."},
        {"role": "user", "content": "hello"}], f"messages: {second['messages']}")
    settings = {name: first[name] for name in ("model", "stream", "thinking", "reasoning_effort", "temperature", "top_p",
                                               "max_tokens", "seed")}
    expect(settings == {"model": "mock-model", "stream": True, "thinking": {"type": "enabled"}, "reasoning_effort": "low",
                        "temperature": 0.5, "top_p": 0.9, "max_tokens": 50, "seed": 3}, f"settings: {settings}")
    expect(second["thinking"] == {"type": "disabled"} and "reasoning_effort" not in second, "thinking off")


def test_problems_of_a_server():
    server = MockServer().start()
    for word, words, code in (("refuse", "the server answered 400: top_p must be in (0, 1]", 2),
                              ("fault", "the engine stopped", 1),
                              ("broken", "the connection ended before the answer did", 1)):
        _, error = pipe(f"{word}\n", "--url", server.url, code=code)
        contains(error, words)


def test_terminal_stops_an_answer_and_goes_on():
    terminal = Terminal("--model", MODEL, "--temperature", "2", "--top-p", "1", "--seed", "1", "--think", "off")
    terminal.wait(PROMPT, "prompt")
    terminal.type("Tell me a story.\n")
    terminal.wait(r"story\.\r\n.*\w+ .*\w+", "the answer begins")
    terminal.type(CTRL_C)
    terminal.wait(r"\[stopped; \d+ tokens", "the answer stops", 10)
    terminal.wait(PROMPT, "prompt")
    terminal.type("/stats\n")
    terminal.wait(r"turns: 2\r\n.*answers: 1\r\n", "the part counts as a turn")
    terminal.wait(PROMPT, "prompt")
    terminal.type(CTRL_D)
    expect(terminal.code() == 0, "Ctrl-D quits with 0")


def test_terminal_stops_a_server():
    server = MockServer().start()
    terminal = Terminal("--url", server.url)
    terminal.wait(PROMPT, "prompt")
    terminal.type("slow\n")
    terminal.wait(r"\x1b\[2mLet me think\. \x1b\[0m\r\n\r\nword word", "reasoning is dim, the answer is not")
    terminal.type(CTRL_C)
    terminal.wait(r"\[stopped; ", "the answer stops", 10)
    terminal.wait(PROMPT, "prompt")
    deadline = time.monotonic() + 5
    while not server.chats[-1]["is_gone"]:
        expect(time.monotonic() < deadline, "the server sees the client go")
        time.sleep(0.05)
    terminal.type("control\n")
    terminal.wait("\ufffd\\[2J.*a\ufffd]0;owned\ufffdb\ufffdc", "control characters are visible")
    terminal.wait(PROMPT, "prompt")
    terminal.type("/quit\n")
    expect(terminal.code() == 0, "/quit quits with 0")


def test_terminal_edits_lines():
    server = MockServer().start()
    terminal = Terminal("--url", server.url)
    terminal.wait(PROMPT, "prompt")
    terminal.type("never sent")
    terminal.wait("never sent", "echo")
    terminal.type(CTRL_C)
    terminal.wait(PROMPT, "Ctrl-C gives a new prompt")
    terminal.type("one \\\n")
    terminal.wait(r"\| \Z", "the prompt of a further line")
    terminal.type("é世 hellp\x7fo\n")
    terminal.wait("Hello! What can I do", "the answer")
    terminal.wait(PROMPT, "prompt")
    sent = server.chats[-1]["body"]["messages"]
    expect(sent == [{"role": "user", "content": "one \né世 hello"}], f"sent: {sent}")
    terminal.type("/what\n")
    terminal.wait("unknown command /what", "the problem")
    terminal.wait(PROMPT, "the session goes on")
    terminal.type(CTRL_D)
    expect(terminal.code() == 0, "Ctrl-D quits with 0")

    history = pathlib.Path(STATE.name) / "pagestate" / "chat_history"
    expect(history.stat().st_mode & 0o077 == 0, f"the history is readable by others: {history.stat().st_mode:o}")
    again = Terminal("--url", server.url)
    again.wait(PROMPT, "prompt")
    again.type(UP)
    again.wait("/what", "the last line comes back")
    again.type(UP)
    again.wait("é世 hello", "and the one before")
    again.type("\n")
    again.wait("Hello! What can I do", "it is sent")
    sent = server.chats[-1]["body"]["messages"]
    expect(sent == [{"role": "user", "content": "é世 hello"}], f"sent from the history: {sent}")
    again.wait(PROMPT, "prompt")
    again.type(CTRL_D)
    expect(again.code() == 0, "Ctrl-D quits with 0")


def main() -> int:
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    failures = 0
    for name, test in tests:
        started = time.monotonic()
        try:
            test()
            result = "ok"
        except Exception:  # whatever it is, the other tests run
            result = f"FAILED\n{traceback.format_exc()}"
            failures += 1
        print(f"{name}: {result} ({time.monotonic() - started:.1f} s)", flush=True)
    print(f"chat: {len(tests) - failures} tests passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
