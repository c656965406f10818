"""A headless Chromium, driven over DevTools' own pipe: no driver program, no package beside Chromium itself."""
import base64
import fcntl
import itertools
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One page. `console` collects errors, `requests` the address of everything that the page asked for."""

    def __init__(self, program: str, width: int = 1280, height: int = 800):
        self._profile = tempfile.TemporaryDirectory(prefix="pagestate-chromium-", ignore_cleanup_errors=True)
        child_in, to_child = (self._high(end) for end in os.pipe())
        from_child, child_out = (self._high(end) for end in os.pipe())
        command = [program, "--headless", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run",
                   "--hide-scrollbars", "--disable-background-networking", "--disable-component-update",
                   "--disable-dev-shm-usage", "--force-color-profile=srgb", f"--window-size={width},{height}",
                   f"--user-data-dir={self._profile.name}"]
        if os.geteuid() == 0:
            command.append("--no-sandbox")  # the sandbox refuses root; the page is our own
        self._log = open(pathlib.Path(self._profile.name) / "log", "wb")
        # Chromium reads commands from descriptor 3 and writes to 4, which may be anything in this process.
        redirect = f'exec "$@" 3<&{child_in} 4>&{child_out} {child_in}<&- {child_out}>&-'
        self._process = subprocess.Popen(["bash", "-c", redirect, "chromium", *command, "about:blank"],
                                         pass_fds=(child_in, child_out), stdin=subprocess.DEVNULL, stdout=self._log,
                                         stderr=self._log)
        os.close(child_in)
        os.close(child_out)
        self._to, self._from = to_child, from_child
        self._rest = b""
        self._ids = itertools.count(1)
        self._session = None
        self.console: list[str] = []
        self.requests: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    @staticmethod
    def _high(end: int) -> int:
        moved = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10)
        os.close(end)
        return moved

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._log.close()
        self._profile.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _messages(self, deadline: float):
        """Complete messages, until the deadline."""
        while True:
            while b"\0" in self._rest:
                message, self._rest = self._rest.split(b"\0", 1)
                yield json.loads(message)
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                return
            data = os.read(self._from, 1 << 20)
            if not data:
                raise RuntimeError("Chromium ended")
            self._rest += data

    def _note(self, message: dict) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.console.append(details.get("exception", {}).get("description", details["text"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert", "warning"):
                self.console.append(" ".join(str(each.get("value", each.get("description"))) for each in params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.console.append(f"{params['entry']['text']} ({params['entry'].get('url', '')})")

    def call(self, method: str, **params):
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        for reply in self._messages(time.monotonic() + 60):
            if reply.get("id") != number:
                self._note(reply)
                continue
            if "error" in reply:
                raise RuntimeError(f"{method}: {reply['error']['message']}")
            return reply["result"]
        raise TimeoutError(f"{method}: no reply from Chromium")

    def open(self, url: str) -> None:
        error = self.call("Page.navigate", url=url).get("errorText")
        if error:
            raise RuntimeError(f"{url}: {error}")
        self.wait(f"document.readyState === 'complete' && location.href === {json.dumps(url)}", f"{url} loads")

    def evaluate(self, script: str):
        reply = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            details = reply["exceptionDetails"]
            raise RuntimeError(f"{script}: {details.get('exception', {}).get('description', details['text'])}")
        return reply["result"].get("value")

    def wait(self, condition: str, what: str, seconds: float = 20):
        deadline = time.monotonic() + seconds
        while True:
            value = self.evaluate(condition)
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: did not come true in {seconds:g} s: {condition}")
            time.sleep(0.03)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int, text: str = "", modifiers: int = 0) -> None:
        """A key as a user presses it; `code` is its virtual key code, `modifiers` 8 is Shift."""
        shared = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of the element."""
        x, y = self.evaluate(f"(() => {{ const box = document.querySelector({json.dumps(selector)})"
                             ".getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def prefer(self, scheme: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=False)

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
