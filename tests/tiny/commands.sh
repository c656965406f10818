#!/bin/bash
# commands.sh PROGRAM MODEL: the trained model answers, and `pagestate eval` measures it. Prints what broke; ends with 1
# at the first failure.
set -euo pipefail
program="$1" model="$2"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $1"
  exit 1
}
answer() { "$program" generate --model "$model" --prompt "<｜User｜>$1<｜Assistant｜></think>" --max-tokens 48 "${@:2}" 2> /dev/null; }
evaluate() { "$program" eval --model "$model" --page-tokens 128 "$@"; }
# refused EXIT-CODE EXPECTED-WORDS ARGUMENTS...: this exit code and a message that names the thing.
refused() {
  local expected="$1" words="$2" code=0
  shift 2
  "$program" eval "$@" > "$work/out" 2>&1 < /dev/null || code=$?
  [ "$code" = "$expected" ] || fail "$*: exit code $code, expected $expected: $(cat "$work/out")"
  grep -qF -- "$words" "$work/out" || fail "$*: no \"$words\" in: $(cat "$work/out")"
}

got="$(answer "What is the capital of France?")"
[ "$got" = "The capital of France is Paris." ] || fail "the capital of France: $got"
[ "$(answer "What is the capital of France?" --kv-cache-dtype fp4 --prefill-chunk 5)" = "$got" ] || fail "another answer from fp4 KV"

# A run writes its report and picture; the same cases under the packed cache and small chunks give the same bits.
evaluate --limit 1 --needle-tokens 100 --json "$work/a.json" --svg "$work/a.svg" --show 1 > "$work/a"
for words in "perplexity per token" "bits per byte" "arithmetic" "made where needed" "Needle" "expected"; do
  grep -qF "$words" "$work/a" || fail "no \"$words\" in: $(cat "$work/a")"
done
grep -q '^<svg ' "$work/a.svg" && grep -q '</svg>' "$work/a.svg" || fail "no picture"
evaluate --parts text,skills --limit 1 --kv-cache-dtype fp4 --long-prefill-tokens 128 --max-sequences 3 --compare "$work/a.json" > "$work/b"
grep -qF "kv-cache-dtype bf16 -> fp4" "$work/b" || fail "the comparison does not name the change: $(cat "$work/b")"
grep -q "text: loss per token +0.00000 .* 1 of 1 windows equal" "$work/b" || fail "text differs: $(cat "$work/b")"
grep -Eq "all answers +9 .* 9$" "$work/b" || fail "answers differ: $(cat "$work/b")"

# Warm prompts come from the prefix cache.
evaluate --parts skills --skills tools --limit 2 --warm --max-sequences 1 --json "$work/warm.json" > "$work/warm"
[ "$(grep -Eo '"cached_tokens": [1-9]' "$work/warm.json" | wc -l)" = 2 ] || fail "--warm: not every prompt came from the cache: $(cat "$work/warm")"

# Refusals.
echo '{"kind": "text", "id": "t"}' > "$work/suite.jsonl"
refused 2 "suite.jsonl:1: \"source\" is missing" --model "$model" --suite "$work/suite.jsonl"
refused 2 "nowhere" --model "$model" --suite "$work/nowhere"
refused 2 "legal values are" --model "$model" --skills chess
refused 2 "prefix cache" --model "$model" --skills fact --parts skills --warm --no-prefix-cache
refused 1 "needle.jsonl:" --model "$model" --parts needle --needle-tokens 1000 --limit 1 --max-context 512
refused 2 "report" --model "$model" --compare "$model/config.json"
refused 2 "no needle" --model "$model" --parts skills --skills fact --limit 1 --svg "$work/x.svg"
echo "tiny: all held"
