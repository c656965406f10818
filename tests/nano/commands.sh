#!/bin/bash
# commands.sh PROGRAM CHECKPOINT: what the command line promises. Prints what broke; ends with 1 at the first failure.
set -euo pipefail
program="$1" nano="$2"
work="$(mktemp -d)"
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $1"
  exit 1
}
text() { "$program" generate --model "$nano" --prompt "Hello" --max-tokens 32 "$@" 2> "$work/errors"; }
# refused EXPECTED-WORDS ARGUMENTS...: exit code 2 and a message that names the thing.
refused() {
  local words="$1" code=0
  shift
  "$program" "$@" > "$work/out" 2>&1 < /dev/null || code=$?
  [ "$code" = 2 ] || fail "$*: exit code $code, expected 2"
  grep -qF -- "$words" "$work/out" || fail "$*: no \"$words\" in: $(cat "$work/out")"
}

# Any chunking, PAGE size, cache format and thread count prints the same text. (The fp8 index approximates scores; it
# can choose other rows only where there are more than index_topk of them, which this text does not reach.)
expected="$(text)"
[ -n "$expected" ] || fail "no text"
for options in "--prefill-chunk 3" "--kv-cache-dtype fp4" "--index-cache-dtype fp8" \
    "--kv-cache-dtype fp4 --index-cache-dtype fp8 --prefill-chunk 3" "--page-tokens 32 --threads 2"; do
  [ "$(text $options)" = "$expected" ] || fail "other text with $options"
done
# Every backend and instruction set prints it too; a set that the machine lacks is refused with those that it has.
[ "$(text --backend ref)" = "$expected" ] || fail "other text with --backend ref"
for isa in auto avx2 avx512 amx; do
  if out="$(text --backend cpu --isa "$isa")"; then
    [ "$out" = "$expected" ] || fail "other text with --isa $isa"
  else
    grep -qF -- "--isa is $isa: this processor has no" "$work/errors" || fail "--isa $isa: $(cat "$work/errors")"
    grep -qF "legal values here are auto, avx2" "$work/errors" || fail "--isa $isa names no legal values"
  fi
done
suite="$(dirname "$0")/../../models/tiny/suite"
for command in "generate --tokens 1" chat serve validate "eval --suite $suite" "bench serve" "bench decode" "bench prefill"; do
  refused "legal values are auto, cpu, ref" $command --model "$nano" --backend avx2
  refused "--isa is sse; legal values here are auto, avx2" $command --model "$nano" --isa sse
  refused "--backend ref has none" $command --model "$nano" --backend ref --isa avx2
done
# Sampling repeats with its seed.
[ "$(text --temperature 1 --top-p 0.9 --seed 7)" = "$(text --temperature 1 --top-p 0.9 --seed 7)" ] || fail "sampling does not repeat"

# Teacher-forced logits: one row per token, the same file from any chunking.
"$program" generate --model "$nano" --tokens 5,6,7,8,9,10 --dump-logits "$work/a.safetensors"
echo "5 6 7
8,9,10" > "$work/ids"
"$program" generate --model "$nano" --tokens "@$work/ids" --dump-logits "$work/b.safetensors" --prefill-chunk 2
cmp "$work/a.safetensors" "$work/b.safetensors" || fail "logits depend on the chunks"
# A forward of more rows than the widest buffers hold takes them in blocks, and nobody can tell.
seq 1 1100 | awk '{ print ($1 * 7919) % 500 + 4 }' > "$work/many_ids"
"$program" generate --model "$nano" --tokens "@$work/many_ids" --dump-logits "$work/blocks.safetensors" --prefill-chunk 2048
"$program" generate --model "$nano" --tokens "@$work/many_ids" --dump-logits "$work/chunks.safetensors" --prefill-chunk 275
cmp "$work/blocks.safetensors" "$work/chunks.safetensors" || fail "logits depend on blocks of rows"
grep -aq '"logits":{"dtype":"F32","shape":\[6,512\]' "$work/a.safetensors" || fail "no [6, 512] logits"

# Tokens there and back.
printf '"Hello world"\n"\\u00e9\\n"\n' > "$work/texts"
"$program" tokenize --model "$nano" < "$work/texts" > "$work/tokens"
"$program" detokenize --model "$nano" < "$work/tokens" > "$work/back"
[ "$(head -1 "$work/back")" = '"Hello world"' ] || fail "detokenize: $(cat "$work/back")"

# A request to its prompt, its ids, or the body of its error; the model's text to a message.
echo '{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "none"}' > "$work/request"
[ "$("$program" prompt --request "$work/request")" = "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>" ] || fail "prompt"
"$program" prompt --request "$work/request" --ids --model "$nano" > "$work/ids"
"$program" detokenize --model "$nano" < "$work/ids" | grep -qF '<｜User｜>Hi<｜Assistant｜></think>' || fail "prompt --ids"
code=0
echo '{"model": "m", "messages": []}' | "$program" prompt --request - --chat-encoding model > "$work/out" 2> /dev/null || code=$?
[ "$code" = 1 ] || fail "a refused request: exit code $code, expected 1"
[ "$(cat "$work/out")" = '{"error":{"message":"Empty input messages","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}' ] ||
  fail "the body of a refusal: $(cat "$work/out")"
[ "$(printf 'r</think>a' | "$program" parse --start reasoning)" = '{"message": {"role": "assistant", "content": "a", "reasoning_content": "r"}, "finish_reason": "stop"}' ] ||
  fail "parse"
echo '{"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png;base64,AA=="}]}]}' > "$work/image"
code=0
"$program" prompt --request "$work/image" > "$work/out" 2> /dev/null || code=$?
[ "$code" = 1 ] || fail "prompt with an image: exit code $code, expected 1"
grep -qF '"message":"messages[0].content[0]: images are not supported' "$work/out" || fail "prompt with an image: $(cat "$work/out")"
refused "recipe and model" prompt --request "$work/request" --chat-encoding v4
refused "--tokenizer PATH or --model DIR" prompt --request "$work/request" --ids
refused "legal are reasoning" parse --start thinking

# A read-only folder works, and nothing is written into it.
cp -r "$nano" "$work/read_only"
chmod -R a-w "$work/read_only"
"$program" generate --model "$work/read_only" --prompt Hello --max-tokens 2 > /dev/null 2>&1 || fail "read-only folder"

# Refusals name the thing and the legal values.
"$program" --version | grep -q '^pagestate ' || fail "--version"
for command in inspect devices generate tokenize detokenize prompt parse make-checkpoint validate eval; do
  "$program" "$command" --help > "$work/out" || fail "$command --help"
  grep -q -- --help "$work/out" || fail "$command --help prints no options"
done
refused "nowhere" generate --model "$work/nowhere" --prompt x
refused "bf16 or fp4" generate --model "$nano" --prompt x --kv-cache-dtype fp8
refused "fp4 or fp8" generate --model "$nano" --prompt x --index-cache-dtype bf16
refused "bf16, f32" generate --model "$nano" --prompt x --compute f16
refused "top-p" generate --model "$nano" --prompt x --top-p 0
refused "0 to 511" generate --model "$nano" --tokens 1,512
refused "1,2,3" generate --model "$nano" --tokens 1,x
refused "--prompt" generate --model "$nano"
refused "prefill-chunk" generate --model "$nano" --prompt x --prefill-chunk 0
refused "page" generate --model "$nano" --prompt x --page-tokens 33
refused "nano" make-checkpoint --preset micro --out "$work/x"
touch "$work/occupied"
refused "occupied" make-checkpoint --preset nano --out "$work/occupied"
echo "commands: all held"
