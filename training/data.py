"""The data set: built once from packages (`make`), then an endless, seeded stream of packed sequences.

`make` writes to training/data: tokenizer.json, text_train.npz and text_held.npz (token ids of the corpus), filler lines,
definitions, and DATA.md's table. A pack is one row of a batch: documents behind each other, each starting at a multiple of 8
(so that compressed groups and candidate blocks do not straddle documents), with a class per token that decides its loss weight.

    python training/data.py make
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import re
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

import skills
import word_lists
from skills import Sample, World

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
ALIGN = 8
# Classes of a token as a prediction target, and their loss weights.
NOTHING, PROMPT, TEXT, ANSWER = 0, 1, 2, 3
WEIGHTS = np.array([0.0, 0.1, 0.5, 1.0], np.float32)

# Share of tokens per kind, and the usual length of one sample.
LENGTHS = {"text": 600, "chat": 130, "fact": 70, "arithmetic": 90, "copy": 150, "key_value": 240, "story": 150, "json": 220, "tools": 640}
MIXES = {
    "short": {"text": 0.36, "chat": 0.09, "fact": 0.02, "arithmetic": 0.08, "copy": 0.08, "key_value": 0.09, "story": 0.04, "json": 0.07,
              "tools": 0.08, "recall": 0.09},
    "medium": {"text": 0.25, "chat": 0.08, "fact": 0.02, "arithmetic": 0.07, "copy": 0.07, "key_value": 0.09, "story": 0.08, "json": 0.07,
               "tools": 0.09, "recall": 0.18},
    "long": {"text": 0.20, "chat": 0.05, "fact": 0.01, "arithmetic": 0.04, "copy": 0.05, "key_value": 0.06, "story": 0.05, "json": 0.05,
             "tools": 0.07, "recall": 0.42},
    "finish": {"text": 0.25, "chat": 0.08, "fact": 0.02, "arithmetic": 0.05, "copy": 0.10, "key_value": 0.10, "story": 0.08, "json": 0.06,
               "tools": 0.06, "recall": 0.20},
}


@dataclass
class Pack:
    ids: np.ndarray  # [T] uint16
    kind: np.ndarray  # [T] uint8, class of the token itself
    doc: np.ndarray  # [T] int32
    pos: np.ndarray  # [T] int32
    labels: list[str]  # skill of each document


class Source:
    """Tokenizer, corpus and world, loaded from the data folder. `held` switches to the held-out side of all of them."""

    def __init__(self, folder: str = FOLDER, held: bool = False) -> None:
        self.tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        with np.load(os.path.join(folder, "text_held.npz" if held else "text_train.npz")) as f:
            self.tokens, self.offsets, self.origin = f["tokens"], f["offsets"], f["origin"]
        with open(os.path.join(folder, "filler.json"), encoding="utf-8") as f:
            filler = json.load(f)["held" if held else "train"]
        with open(os.path.join(folder, "definitions.json"), encoding="utf-8") as f:
            definitions = [tuple(d) for d in json.load(f)]
        self.world = World(filler, definitions, word_lists.HELD_OUT_NAMES if held else word_lists.NAMES + word_lists.invented_names(2000))
        ids = {t: self.tokenizer.token_to_id(t) for t in ("<｜Assistant｜>", "<think>", "</think>", "<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>")}
        self.assistant, self.think, self.unthink, self.eos, self.bos = ids.values()

    def encode(self, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
        """-> ids, classes. The answer runs from behind the assistant's header token pair to the end token."""
        ids = np.array(self.tokenizer.encode(sample.text, add_special_tokens=False).ids, np.uint16)
        kind = np.full(len(ids), PROMPT, np.uint8)
        inside = False
        for i, t in enumerate(ids.tolist()):
            if inside:
                kind[i] = ANSWER
                inside = t != self.eos
            elif i and ids[i - 1] == self.assistant:
                inside = True  # this token is <think> or </think>, given by the prompt
        return ids, kind

    def text(self, r: random.Random, limit: int) -> tuple[np.ndarray, np.ndarray]:
        i = r.randrange(len(self.offsets) - 1)
        doc = self.tokens[self.offsets[i] : self.offsets[i + 1]]
        if len(doc) > limit:
            at = r.randrange(len(doc) - limit + 1)
            doc = doc[at : at + limit]
        return doc, np.full(len(doc), TEXT, np.uint8)

    def pack(self, seed: str, length: int, mix: str) -> Pack:
        r = random.Random(seed)
        shares = MIXES[mix]
        names = list(shares)
        usual = dict(LENGTHS, recall=max(200, length / 4))
        chances = [shares[n] / usual[n] for n in names]
        p = Pack(np.full(length, 2, np.uint16), np.zeros(length, np.uint8), np.zeros(length, np.int32), np.zeros(length, np.int32), [])
        at = misses = 0
        while length - at >= 64 and misses < 20:
            room = length - at
            name = r.choices(names, chances)[0]
            if name == "text":
                ids, kind = self.text(r, min(room, 1024 if length <= 2048 else 4096))
            else:
                wanted = int(np.exp(r.uniform(np.log(60), np.log(max(80, min(room, length) - 150))))) if name == "recall" else 0
                ids, kind = self.encode(skills.make(name, r, self.world, wanted))
                if len(ids) > room:
                    if room > 256 or "text" not in shares:
                        misses += 1
                        continue
                    name = "text"
                    ids, kind = self.text(r, room)
            misses = 0
            n = len(ids)
            p.ids[at : at + n], p.kind[at : at + n] = ids, kind
            end = min(length, -(-(at + n) // ALIGN) * ALIGN)
            p.doc[at:end] = len(p.labels)
            p.pos[at:end] = np.arange(end - at)
            p.labels.append(name)
            at = end
        if at < length:
            p.doc[at:], p.pos[at:] = len(p.labels), np.arange(length - at)
            p.labels.append("none")
        return p


def arrays(packs: list[Pack]) -> dict[str, np.ndarray]:
    """Packs -> batch arrays; the weight of position t is that of its target t+1 in the same document."""
    ids = np.stack([p.ids for p in packs])
    kind = np.stack([p.kind for p in packs])
    doc, pos = np.stack([p.doc for p in packs]), np.stack([p.pos for p in packs])
    target, target_kind = np.roll(ids, -1, axis=1), np.roll(kind, -1, axis=1)
    # A document's first token has no predecessor to predict it.
    same = np.roll(doc, -1, axis=1) == doc
    same[:, -1] = False
    # The header's <think> or </think> is ANSWER-adjacent but given: its class is PROMPT already.
    target_kind = np.where(same, target_kind, NOTHING).astype(np.uint8)
    return {"ids": ids, "target": target, "kind": target_kind, "doc": doc, "pos": pos}


def batch(source: Source, seed: str, rows: int, length: int, mix: str) -> dict[str, np.ndarray]:
    return arrays([source.pack(f"{seed}/{i}", length, mix) for i in range(rows)])


# ---- building ---------------------------------------------------------------------------------------------------------

def _filler(docs: list[str], count: int, r: random.Random) -> list[str]:
    lines = [l for d in docs for l in d.split("\n") if 40 <= len(l) <= 240 and l[0].isalnum() and l.isascii() and l[-1] in ".,;:\"'?!)"]
    r.shuffle(lines)
    return lines[:count]


def _definitions(folder: str, texts: list[str], count: int) -> list[tuple[str, str, str]]:
    """The most frequent words of the corpus that have a short first gloss."""
    import corpus

    seen: collections.Counter[str] = collections.Counter()
    for t in texts:
        seen.update(re.findall(r"\b[a-z]{4,10}\b", t))
    out: dict[str, tuple[str, str, str]] = {}
    counts: dict[str, dict[str, int]] = {}
    for word, part, senses in corpus.wordnet_entries(os.path.join(folder, "packages", "dict-wn")):
        if word not in seen:
            continue
        counts.setdefault(word, {})[part] = len(senses)
        gloss = re.split(r"[;\[(]", senses[0])[0].strip()
        if part == "noun" and 12 <= len(gloss) <= 60 and word not in out and gloss.isascii() and '"' not in gloss:
            out[word] = (word, part, gloss)
    for word, parts in counts.items():  # only words that are nouns first of all
        if "adjective" in parts or "adverb" in parts or parts.get("verb", 0) > parts.get("noun", 0):
            out.pop(word, None)
    return [out[w] for w, _ in seen.most_common() if w in out][:count]


def make(folder: str = FOLDER) -> None:
    import bpe
    import corpus

    os.makedirs(folder, exist_ok=True)
    packages = os.path.join(folder, "packages")
    versions = corpus.fetch(packages)
    documents = corpus.documents(packages)
    r = random.Random(1)
    train = [d for t, _ in documents.values() for d in t]
    held = [d for _, h in documents.values() for d in h]
    filler = {"train": _filler(train, 12000, r), "held": _filler(held, 2500, r)}
    definitions = _definitions(folder, r.sample(train, 4000), 300)
    with open(os.path.join(folder, "filler.json"), "w", encoding="utf-8") as f:
        json.dump(filler, f)
    with open(os.path.join(folder, "definitions.json"), "w", encoding="utf-8") as f:
        json.dump(definitions, f)
    world = World(filler["train"], definitions, word_lists.NAMES)
    talk = [skills.make(s, random.Random(f"bpe/{s}/{i}"), world, 150).text for s in skills.SKILLS for i in range(700 if s != "tools" else 200)]
    path = os.path.join(folder, "tokenizer.json")
    bpe.save(bpe.train(r.sample(train, 5000) + talk), path)
    tokenizer = Tokenizer.from_file(path)
    bos, eos = 0, 1
    names = list(documents)
    for side, name in ((0, "text_train.npz"), (1, "text_held.npz")):
        tokens, offsets, origin = [], [0], []
        for s, source in enumerate(names):
            docs = documents[source][side]
            for start in range(0, len(docs), 256):
                for e in tokenizer.encode_batch(docs[start : start + 256], add_special_tokens=False):
                    tokens.append(np.array([bos, *e.ids, eos], np.uint16))
                    offsets.append(offsets[-1] + len(tokens[-1]))
                    origin.append(s)
        np.savez(os.path.join(folder, name), tokens=np.concatenate(tokens), offsets=np.array(offsets, np.int64),
                 origin=np.array(origin, np.uint8), names=np.array(names))
        print(name, f"{offsets[-1]:,} tokens in {len(origin):,} documents")
    rows = ["| source | package | version | licence | content | training characters | held-out characters |", "|---|---|---|---|---|---|---|"]
    for s in corpus.SOURCES:
        t, h = documents[s.name]
        rows.append(f"| {s.name} | {s.package} | {versions[s.package]} | {s.licence} | {s.what} | {sum(map(len, t)):,} | {sum(map(len, h)):,} |")
    print("\n".join(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["make", "show"])
    args = parser.parse_args()
    if args.action == "make":
        return make()
    source = Source()
    p = source.pack("show", 2048, "medium")
    print(source.tokenizer.decode(p.ids.tolist(), skip_special_tokens=False))


if __name__ == "__main__":
    main()
