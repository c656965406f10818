"""Writes the evaluation suite that `pagestate eval` reads: JSON lines made from the held-out split, the same for the same data.

Three files, one record a line; docs/quality.md describes the fields:
  text.jsonl    windows of held-out documents, for perplexity
  skills.jsonl  conversations as they go to the tokenizer, cut into prompts and the answers that are right
  needle.jsonl  held-out filler lines, and recipes that hide one fact at a depth of a text of some length

    python training/make_suite.py --out models/tiny/suite
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
from typing import Any

import data
import skills
from chat_format import ASSISTANT, BOS, EOS, THINK, UNTHINK, USER

Record = dict[str, Any]
ANSWERS = {"recall": 48}  # of a skill; its conversations are long
USUAL_ANSWERS = 64
WINDOW_TOKENS = 1024
DEPTHS = (5, 25, 50, 75, 95)  # percent
CASES = {100: 10, 250: 10, 500: 10, 1000: 10, 2000: 5, 4000: 2, 8000: 1, 16000: 1}  # length in tokens -> cases of a depth
CHARACTERS_PER_TOKEN = 3.3
FILLER_LINES = 997  # a prime, so that every stride visits every line


def text_records(source: data.Source, count: int) -> list[Record]:
    """Beginnings of held-out documents. A cut is moved back until its text gives the same tokens again."""
    names = [str(n) for n in source.names]
    picked = random.Random("suite/text").sample(range(len(source.offsets) - 1), count)  # in an order whose every beginning is a sample
    out = []
    for d in picked:
        ids = source.tokens[source.offsets[d] + 1 : source.offsets[d + 1]].tolist()
        whole = len(ids) < WINDOW_TOKENS
        ids = ids[:-1] if whole else ids[: WINDOW_TOKENS - 1]
        text = source.tokenizer.decode(ids, skip_special_tokens=False)
        while source.tokenizer.encode(text, add_special_tokens=False).ids != ids:
            assert not whole and len(ids) > 1
            ids = ids[:-1]
            text = source.tokenizer.decode(ids, skip_special_tokens=False)
        out.append({"kind": "text", "id": f"text-{d}", "source": names[source.origin[d]], "ends": whole, "text": text})
    return out


def cut(text: str) -> list[Record]:
    """A rendered conversation -> its turns: each prompt goes on where the answer before it ended. A last header that nothing
    answers is left out."""
    turns = []
    at = 0
    for header in re.finditer(f"{re.escape(ASSISTANT)}({re.escape(THINK)}|{re.escape(UNTHINK)})", text):
        end = text.find(EOS, header.end())
        if end < 0:
            break
        turns.append({"prompt": text[at : header.end()], "answer": text[header.end() : end]})
        at = end
    assert turns, text
    return turns


def offered_tools(text: str) -> list[Any]:
    block = text.split("### Available Tool Schemas\n\n")[1].split("\n\nYou MUST strictly follow")[0]
    return [json.loads(line) for line in block.split("\n")]


def skill_records(source: data.Source) -> list[Record]:
    out = []
    for skill in skills.SKILLS:
        answers = number = 0
        while answers < ANSWERS.get(skill, USUAL_ANSWERS):
            r = random.Random(f"suite/{skill}/{number}")
            sample = skills.make(skill, r, source.world, int(60 * 15 ** r.random()))  # recall texts of 60 to 900 tokens
            record: Record = {"kind": "conversation", "id": f"{skill}-{number}", "skill": skill}
            if skill == "tools":
                record["tools"] = offered_tools(sample.text)
            record["turns"] = cut(sample.text)
            out.append(record)
            answers += len(record["turns"])
            number += 1
    return out


def needle_records(source: data.Source) -> list[Record]:
    r = random.Random("suite/needle")
    lines = r.sample([l for l in source.world.filler if len(l) <= 160], FILLER_LINES)
    out: list[Record] = [{"kind": "filler", "head": BOS + USER, "tail": ASSISTANT + UNTHINK, "lines": lines}]
    for tokens, cases in CASES.items():
        for depth in DEPTHS:
            for i in range(cases):
                fact, question, answer = skills._needle(r, source.world, set())
                out.append({
                    "kind": "needle", "id": f"needle-{tokens}-{depth}-{i}", "tokens": tokens, "depth": depth / 100,
                    "characters": int(tokens * CHARACTERS_PER_TOKEN), "first": r.randrange(FILLER_LINES), "step": r.randrange(1, FILLER_LINES),
                    "intro": r.choice(["Read this text:", "Here is a text:", "Remember what this text says:", "Text:"]),
                    "fact": fact, "question": question, "answer": answer})
    return out


def write(path: str, records: list[Record]) -> None:
    with open(path, "w", encoding="utf-8") as f:
        for record in records:
            f.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{path}: {len(records)} records, {os.path.getsize(path):,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--data", default=data.FOLDER, help="the folder that `data.py make` wrote")
    parser.add_argument("--windows", type=int, default=72)
    args = parser.parse_args()
    source = data.Source(args.data, held=True)
    os.makedirs(args.out, exist_ok=True)
    write(os.path.join(args.out, "text.jsonl"), text_records(source, args.windows))
    write(os.path.join(args.out, "skills.jsonl"), skill_records(source))
    write(os.path.join(args.out, "needle.jsonl"), needle_records(source))


if __name__ == "__main__":
    main()
