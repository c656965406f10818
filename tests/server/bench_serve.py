#!/usr/bin/env python3
"""bench_serve.py PROGRAM CHECKPOINT: `pagestate bench serve` in process and over HTTP is the same load and the same
report, and it says what is wrong where a server is not there, refuses, or breaks off."""
import contextlib
import http.server
import json
import socket
import subprocess
import sys
import threading
import traceback

PROGRAM, MODEL = sys.argv[1:3]
ENGINE = ["--page-tokens", "32", "--max-sequences", "4", "--token-budget", "128", "--max-context", "512"]
LOAD = ["--requests", "24", "--prefixes", "1", "--prompt-tokens", "20", "--answer-tokens", "9", "--seed", "3"]
FEW = ["--concurrency", "5"]


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def bench(*options: str, code: int = 0) -> subprocess.CompletedProcess:
    result = subprocess.run([PROGRAM, "bench", "serve", *options], capture_output=True, text=True, timeout=120,
                            check=False)
    expect(result.returncode == code, f"{options}: exit code {result.returncode}, expected {code}: {result.stderr}")
    return result


def refused(words: str, *options: str, code: int = 2) -> None:
    output = bench(*options, code=code)
    expect(words in output.stderr + output.stdout, f"{options}: no {words!r} in {output.stderr}{output.stdout}")


@contextlib.contextmanager
def server(*options: str):
    """A `pagestate serve`; its address."""
    process = subprocess.Popen([PROGRAM, "serve", "--model", MODEL, "--port", "0", *ENGINE, *options],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        expect(process.wait(60) == 0, "the server did not end well")


class Broken(http.server.BaseHTTPRequestHandler):
    """A server that begins an answer and does not end it; the path before /v1 says how."""
    protocol_version = "HTTP/1.1"
    METRICS = "".join(f"\npagestate_{name} 1" for name in (
        "step_seconds_count", "step_seconds_sum", "preemptions_total", "prompt_rows_total", "processor_seconds_total"))
    EVENT = 'data: {"choices":[{"index":0,"text":"a","finish_reason":%s}]}\n\n'

    def log_message(self, *_):
        pass

    def reply(self, body: str, kind: str = "application/json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self):
        if self.path.endswith("/metrics"):
            return self.reply("" if "bare" in self.path else self.METRICS + "\n")
        size = "" if "foreign" in self.path else ',"vocab_size":100'
        self.reply('{"data":[{"id":"m","max_model_len":4096%s}]}' % size)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        event = self.EVENT % "null"
        if "cut" in self.path:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(f"{len(event):x}\r\n{event}\r\n".encode())
            self.close_connection = True
        elif "early" in self.path:
            self.reply(self.EVENT % '"stop"' + 'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\ndata: [DONE]\n\n')
        elif "failing" in self.path:
            self.reply(event + 'data: {"error":{"message":"out of order"}}\n\n')
        elif "garbled" in self.path:
            self.reply("data: {\n\n")
        else:
            self.reply(event)


def same_load_in_process_and_over_http() -> None:
    local = json.loads(bench("--model", MODEL, *ENGINE, *LOAD, *FEW, "--json").stdout)
    with server() as url:
        remote = json.loads(bench("--url", url, *LOAD, *FEW, "--json").stdout)
        table = bench("--url", url, *LOAD, *FEW, "--rate", "200").stdout
    for key in ("requests", "prompt_tokens", "answer_tokens", "preemptions"):
        expect(local[key] == remote[key], f"{key}: {local[key]} in process, {remote[key]} over HTTP")
    expect(local["requests"] == 24 and local["answer_tokens"] > 24, f"{local}")
    # Every step, row and token is counted once; when a request comes in may differ by a step.
    expect(remote["steps"] > 0 and remote["prompt_rows_computed"] > 0, f"{remote}")
    for report in (local, remote):
        expect(0 < report["hit_rate"] < 1, f"hit rate: {report}")
        expect(0 < report["step_seconds"] < report["seconds"], f"time in steps: {report}")
        expect(report["processor_seconds"] > 0, f"processor time: {report}")
        for spread in (report["time_to_first_token_ms"], report["inter_token_ms"]):
            expect(0 <= spread["p50"] <= spread["p95"] <= spread["p99"], f"{spread}")
    expect("pages" in local and "pages" not in remote, "PAGEs are known in process only")
    for label in ("answer tokens", "time to first token, ms", "between tokens, ms", "from the prefix cache", "p95"):
        expect(label in table, f"no {label!r} in {table}")


def refuses_what_does_not_fit() -> None:
    url = "http://127.0.0.1:1"
    for option, value in (("--model", MODEL), ("--token-budget", "64"), ("--backend", "auto"), ("--threads", "1")):
        refused("--url", "--url", url, option, value)
    refused("--model or --url")
    refused("http://", "--url", "localhost:8000")
    refused("concurrency is -1", "--model", MODEL, "--concurrency", "-1")
    refused("rate is -1", "--model", MODEL, "--rate", "-1")


def says_what_is_wrong_with_a_server() -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        refused(f"127.0.0.1:{taken.getsockname()[1]}", "--url", f"http://127.0.0.1:{taken.getsockname()[1]}", code=1)
    with server("--api-key", "sesame", "--max-queue", "0") as url:
        refused("the server answered 401", "--url", url, *LOAD)
        bench("--url", url, "--api-key", "sesame", "--requests", "2", "--concurrency", "2")
        refused("a context holds 512", "--url", url, "--api-key", "sesame", "--prompt-tokens", "4096")
        # Four may run and nobody may wait.
        refused("the server answered 503", "--url", url, "--api-key", "sesame", "--requests", "50", code=1)


def says_how_a_stream_broke() -> None:
    broken = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    threading.Thread(target=broken.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{broken.server_address[1]}"
    for path, words in (("cut", f"request 1 of 24: {url}/cut"), ("open", "the stream ended before the answer did"),
                        ("early", 'finish_reason "stop"'), ("failing", "out of order"),
                        ("garbled", "the server's stream"), ("bare", "/metrics has no pagestate_step_seconds_count"),
                        ("foreign", "vocab_size")):
        output = bench("--url", f"{url}/{path}", *LOAD, "--concurrency", "1", code=2 if path == "garbled" else 1)
        expect(words in output.stderr, f"{path}: no {words!r} in {output.stderr}")
    broken.shutdown()


def main() -> int:
    failed = 0
    for test in (same_load_in_process_and_over_http, refuses_what_does_not_fit, says_what_is_wrong_with_a_server,
                 says_how_a_stream_broke):
        try:
            test()
            print(f"ok {test.__name__}")
        except Exception:  # one report for all
            traceback.print_exc()
            failed += 1
    return 1 if failed else 0


sys.exit(main())
