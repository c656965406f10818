"""Speaks what the page and `pagestate chat` need of a server, from scripts instead of a model: static files, streamed
chat completions, GET /v1/engine, GET /v1/models. The last word of the user's message picks the script; see REPLIES."""
import json
import pathlib
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SOURCES = pathlib.Path(__file__).resolve().parent.parent.parent / "src" / "server"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
# The policy that the server sends, read from where it stands.
POLICY = "".join(re.findall(r'"([^"]*)"', re.search(r"kPageSecurityPolicy =(.*?);\n",
                                                    (SOURCES / "page_files.h").read_text(), re.DOTALL)[1]))

HOSTILE = ('<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>\n'
           "**<b>bold</b>** `<i>code</i>` [click](javascript:alert(1))\n\n- <svg onload=alert(1)>\n\n"
           "# <iframe src=//evil.invalid>\n\n```<u>\n</code></pre><script>document.title='owned'</script>\n```\n")
MARKDOWN = ("A PAGE holds **256 tokens**:\n\n- every layer's rows\n- shared by `prefix`\n\n1. first\n2. second\n\n"
            "```cpp\nint page(int token) {\n  return token / 256;\n}\n```\n\n## Then\n\nThe end.")
REPLIES = {
    "hello": {"content": "Hello! What can I do?"},
    "think": {"reasoning": "The user wants\n<b>proof</b> of thought.", "content": "Paris."},
    "markdown": {"content": MARKDOWN},
    "hostile": {"reasoning": HOSTILE, "content": HOSTILE},
    "tool": {"reasoning": "Need the weather.",
             "calls": [("get_weather", '{"city": "Paris", "unit": "<b>C</b>"}'), ("now", "{}")]},
    "slow": {"reasoning": "Let me think. ", "content": "word " * 5000, "pause": 0.02},
    "long": {"content": "line\n\n" * 400},
    "control": {"reasoning": "\x1b[2J", "content": "a\x1b]0;owned\x07b\u009bc"},
}


def chunk(delta: dict, finish: str | None = None, usage: dict | None = None) -> bytes:
    body = {"id": "mock", "object": "chat.completion.chunk", "created": 0, "model": "mock-model",
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], "usage": usage}
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode()


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[at:at + size] for at in range(0, len(text), size)]


def events(reply: dict):
    """The SSE bytes of a reply, one event each; a keep-alive comment among them."""
    yield chunk({"role": "assistant", "content": None, "reasoning_content": ""})
    yield b": keep-alive\n\n"
    for piece in pieces(reply.get("reasoning", "")):
        yield chunk({"content": None, "reasoning_content": piece})
    for piece in pieces(reply.get("content", "")):
        yield chunk({"content": piece, "reasoning_content": None})
    for index, (name, arguments) in enumerate(reply.get("calls", [])):
        yield chunk({"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function",
                                     "function": {"name": name, "arguments": ""}}]})
        for piece in pieces(arguments, 3):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    usage = {"prompt_tokens": 301, "completion_tokens": 42, "total_tokens": 343,
             "prompt_tokens_details": {"cached_tokens": 256}}
    yield chunk({"content": ""}, "tool_calls" if "calls" in reply else "stop", usage)
    yield b"data: [DONE]\n\n"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def error(self, status: int, message: str) -> None:
        self.reply(status, json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode())

    def do_GET(self):
        if self.path == "/v1/engine":
            if self.server.key and self.headers.get("Authorization") != f"Bearer {self.server.key}":
                return self.error(401, "no key")
            return self.reply(200, json.dumps(self.server.engine_state()).encode())
        if self.path == "/v1/models":
            return self.reply(200, b'{"object": "list", "data": [{"id": "mock-model", "object": "model"}]}')
        file = SOURCES / "page" / ("index.html" if self.path == "/" else pathlib.Path(self.path).name)
        if not file.is_file() or (self.path != "/" and not self.path.startswith("/page/")):
            return self.error(404, f"no route for {self.path}")
        self.reply(200, file.read_bytes(), TYPES[file.suffix])

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        record = {"body": body, "authorization": self.headers.get("Authorization"), "sent": 0, "is_gone": False}
        self.server.chats.append(record)
        words = body["messages"][-1]["content"].split()
        word = words[-1] if words else ""
        if word == "refuse":
            return self.error(400, "top_p must be in (0, 1] <b>")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        reply = REPLIES.get(word, REPLIES["hello"])
        try:
            for number, event in enumerate(events(reply)):
                if word == "broken" and number == 3:
                    return
                if word == "fault" and number == 3:
                    event = b'data: {"error": {"message": "the engine stopped", "type": "internal_error"}}\n\n'
                # Cut anywhere, also inside a character: the page has to put the stream together.
                half = len(event) // 2
                for part in (event[:half], event[half:]):
                    self.wfile.write(part)
                    self.wfile.flush()
                record["sent"] += 1
                time.sleep(reply.get("pause", 0.002))
        except OSError:
            record["is_gone"] = True


class MockServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int = 0):
        super().__init__(("127.0.0.1", port), Handler)
        self.chats: list[dict] = []
        self.key = ""
        self.started = time.monotonic()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def start(self) -> "MockServer":
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def engine_state(self) -> dict:
        up = time.monotonic() - self.started
        running = [each for each in self.chats if not each["is_gone"] and 0 < each["sent"]][-3:]
        used, cached, images, total = 137, 320, 6, 1000
        sent = sum(each["sent"] for each in self.chats)
        return {
            "model": "mock-model", "uptime_seconds": up, "max_context": 32768, "page_tokens": 256,
            "pages": {"total": total, "used": used, "cached": cached, "images": images,
                      "free": total - used - cached - images},
            "page_map": {"pages_per_cell": 1,
                         "cells": "u" * used + "c" * cached + "i" * images + "f" * (total - used - cached - images)},
            "running": [{"id": f"chatcmpl-{at}", "state": "answer", "prompt_tokens": 301, "cached_tokens": 256,
                         "computed_tokens": 301, "answer_tokens": each["sent"]} for at, each in enumerate(running)],
            "waiting": 2,
            "totals": {"requests": len(self.chats), "prompt_tokens": 301 * len(self.chats),
                       "cached_tokens": 256 * len(self.chats), "computed_tokens": 45 * len(self.chats),
                       "answer_tokens": sent, "steps": sent, "preemptions": 0, "evictions": 0},
            "memory": [{"name": "PAGEs", "bytes": 739840000}, {"name": "STATE", "bytes": 42213376},
                       {"name": "scratch", "bytes": 31457280}, {"name": "logits", "bytes": 4136960}],
        }


if __name__ == "__main__":
    server = MockServer(int(sys.argv[1]) if len(sys.argv) > 1 else 8080)
    print(server.url, flush=True)
    server.serve_forever()
