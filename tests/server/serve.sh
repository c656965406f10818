#!/bin/bash
# serve.sh PROGRAM CHECKPOINT: what `pagestate serve` promises as a process: its ready line, its signals, its exit codes.
# Prints what broke; ends with 1 at the first failure.
set -euo pipefail
program="$1" nano="$2"
work="$(mktemp -d)"
server=0
trap '[ "$server" = 0 ] || kill -9 "$server" 2> /dev/null || true; rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $1"
  cat "$work/log" 2> /dev/null || true
  exit 1
}
# start OPTIONS...: a server on a free port; sets server and port.
start() {
  "$program" serve --model "$nano" --port 0 "$@" > "$work/ready" 2> "$work/log" &
  server=$!
  for _ in $(seq 600); do
    grep -q '^pagestate: ready at http://127.0.0.1:[0-9]' "$work/ready" && break
    kill -0 "$server" 2> /dev/null || fail "the server ended before it was ready"
    sleep 0.1
  done
  port="$(sed -n 's/^pagestate: ready at http:\/\/127.0.0.1:\([0-9]*\)$/\1/p' "$work/ready")"
  [ -n "$port" ] || fail "no ready line: $(cat "$work/ready")"
}
# ends CODE SECONDS: the server ends by itself with this code.
ends() {
  for _ in $(seq $(($2 * 10))); do
    kill -0 "$server" 2> /dev/null || break
    sleep 0.1
  done
  kill -0 "$server" 2> /dev/null && fail "the server did not end within $2 s"
  local code=0
  wait "$server" || code=$?
  server=0
  [ "$code" = "$1" ] || fail "exit code $code, expected $1"
}
# get PATH HEADER: prints the reply.
get() {
  exec 3<> "/dev/tcp/127.0.0.1/$port"
  printf 'GET %s HTTP/1.1\r\nHost: t\r\nConnection: close\r\n%b\r\n' "$1" "${2:-}" >&3
  cat <&3
  exec 3>&-
}
# refused EXPECTED-WORDS OPTIONS...: exit code 2 and a message that names the thing.
refused() {
  local words="$1" code=0
  shift
  "$program" serve --model "$nano" "$@" > "$work/out" 2>&1 < /dev/null || code=$?
  [ "$code" = 2 ] || fail "serve $*: exit code $code, expected 2"
  grep -qF -- "$words" "$work/out" || fail "serve $*: no \"$words\" in: $(cat "$work/out")"
}

start --served-model-name first second --max-queue 3
get /health | grep -q '{"status":"ok"}' || fail "health"
get /v1/models | grep -q '"id":"first"' || fail "served name"
code=0
"$program" serve --model "$nano" --port "$port" > "$work/out" 2>&1 || code=$?
[ "$code" = 1 ] || fail "a port in use: exit code $code, expected 1"
grep -q "$port" "$work/out" || fail "a port in use is not named: $(cat "$work/out")"
kill -TERM "$server"
ends 0 30
grep -q 'event=request .*path="/health" status=200' "$work/log" || fail "no access log"

# A generation that would take too long: the second signal does not wait for it, and its client is told.
PAGESTATE_API_KEY=sesame start --drain-seconds 600
get /v1/models | grep -q '401 Unauthorized' || fail "the key is not asked for"
get /v1/models 'x-api-key: sesame\r\n' | grep -q '"object":"list"' || fail "the key is refused"
body='{"prompt":"a","max_tokens":16000,"ignore_eos":true,"stream":true}'
exec 4<> "/dev/tcp/127.0.0.1/$port"
printf 'POST /v1/completions HTTP/1.1\r\nHost: t\r\nx-api-key: sesame\r\nContent-Length: %s\r\n\r\n%s' "${#body}" "$body" >&4
head -1 <&4 | grep -q '200 OK' || fail "no stream"
kill -INT "$server"
sleep 0.5
kill -0 "$server" || fail "the server did not wait for its request"
kill -INT "$server"
ends 0 30
grep -q '"code":"stopping"' <&4 || fail "the stream was not told that the server stops"
exec 4>&-

"$program" serve --help | grep -q -- --drain-seconds || fail "serve --help"
refused "0 (any free one) to 65535" --port 70000
refused "1 to 2^32" --max-connections 0
refused "max-queue" --max-queue -1
refused "max-body" --max-body much
refused "keep-alive-seconds" --keep-alive-seconds 0
refused "body-rate" --body-rate 0
refused "workers" --workers 0
refused "drain-seconds" --drain-seconds -1
refused "host" --host no.such.host.invalid
refused "page" --page-tokens 33
echo "serve: all held"
