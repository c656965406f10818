"""Starts `pagestate serve` for the client tests and stops it at their end.

The program and the checkpoint come from the environment: PAGESTATE_PROGRAM, PAGESTATE_TINY. One server serves a whole
test program; its log goes to a file that is shown when it does not start.
"""
import atexit
import contextlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.request

PROGRAM = os.environ["PAGESTATE_PROGRAM"]
TINY = os.environ["PAGESTATE_TINY"]


class Server:
    def __init__(self, *options: str, model: str = TINY):
        self._folder = tempfile.TemporaryDirectory()
        self._log = pathlib.Path(self._folder.name) / "log"
        # Without replay an answer does not depend on what the prefix cache holds: tests may compare texts.
        command = [PROGRAM, "serve", "--model", model, "--port", "0", "--max-context", "8192",
                   "--no-encoder-swa-bounded-replay", *options]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        atexit.register(self.stop)
        self.address = self._wait()

    def _wait(self) -> str:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = re.search(r"ready at (http://\S+)", self.log())
            if found:
                return found.group(1)
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start:\n{self.log()}")

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.address + path, timeout=30) as reply:
            return reply.read().decode()

    def metric(self, name: str, label: str = "") -> float:
        """The sum of a metric's series, of those with the label; a metric that the server does not have is an error."""
        text = self.get("/metrics")
        if f"# TYPE {name} " not in text:
            raise AssertionError(f"/metrics has no {name}")
        series = re.findall(rf"^{name}({{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        return sum(float(value) for labels, value in series if label in labels)

    def wait_until_idle(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.metric("pagestate_running_sequences") + self.metric("pagestate_waiting_sequences") == 0:
                return
            time.sleep(0.05)
        raise AssertionError("sequences still run:\n" + self.get("/metrics"))

    @contextlib.contextmanager
    def one_cancelled(self):
        """What happens inside ends one sequence before its time."""
        cancelled = lambda: self.metric('pagestate_sequences_total', 'outcome="cancelled"')
        before = cancelled()
        yield
        self.wait_until_idle()
        found = cancelled() - before
        if found != 1:
            raise AssertionError(f"{found:g} sequences were cancelled, expected 1")

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


WEATHER = {
    "name": "get_weather",
    "description": "Get the weather of a place",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "City"},
                       "unit": {"type": "string", "description": "celsius or fahrenheit"}},
        "required": ["location", "unit"],
    },
}
ASK_WEATHER = "What is the weather in Paris in celsius?"
WEATHER_RESULT = json.dumps({"temperature": 21, "sky": "sunny"})
