"""Engram addressing, model.md section 3: token classes, primes, multipliers, row numbers. Integers only."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import numpy as np

DEAD = -1  # a token that belongs to an image span, or the time before the prompt

_UNICODE_SPACE = (
    "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


def byte_symbols() -> dict[str, int]:
    """The byte-level alphabet: symbol -> byte. Printable bytes stand for themselves, the rest for U+0100 upward."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in printable}
    others = [b for b in range(256) if b not in set(printable)]
    table.update({chr(0x100 + i): b for i, b in enumerate(others)})
    return table


def normalize(text: str) -> str:
    """The normalizer of model.md 3.1, step by step."""
    text = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    text = "".join(c for c in text if unicodedata.category(c) not in ("Mn", "Mc", "Me"))
    text = "".join(c.lower() for c in text)
    out: list[str] = []
    for c in text:
        if c in " \t\r\n":
            if not out or out[-1] != " ":
                out.append(" ")
        else:
            out.append(c)
    text = "".join(out)
    if text == " ":
        text = "\ue000"
    return text.strip(_UNICODE_SPACE).replace("\ue000", " ")


def token_classes(tokenizer: dict[str, Any], vocab_size: int) -> np.ndarray:
    """[vocab_size] int32: token id -> compressed id, first occurrence numbered first."""
    symbols = byte_symbols()
    raw: dict[int, str] = {i: s for s, i in tokenizer["model"]["vocab"].items()}
    added: dict[int, str] = {t["id"]: t["content"] for t in tokenizer["added_tokens"]}
    classes: dict[str, int] = {}
    out = np.empty(vocab_size, np.int32)
    for token in range(vocab_size):
        if token in added:
            text = added[token]
        else:
            text = bytes(symbols[c] for c in raw[token]).decode("utf-8", errors="replace")
        if "\ufffd" in text:
            key = added[token] if token in added else raw[token]
        else:
            key = normalize(text) or text
        out[token] = classes.setdefault(key, len(classes))
    return out


def load_token_classes(path: str, vocab_size: int) -> np.ndarray:
    with open(path, encoding="utf-8") as f:
        return token_classes(json.load(f), vocab_size)


def _is_prime(n: int) -> bool:
    if n < 2:
        return False
    divisor = 2
    while divisor * divisor <= n:
        if n % divisor == 0:
            return False
        divisor += 1
    return True


def table_primes(start: int, layers: int, ngrams: int, heads: int) -> np.ndarray:
    """[layers, ngrams, heads] int64: the next unused primes >= start, one set for the whole model."""
    found: list[int] = []
    candidate = start
    while len(found) < layers * ngrams * heads:
        if _is_prime(candidate):
            found.append(candidate)
        candidate += 1
    return np.array(found, np.int64).reshape(layers, ngrams, heads)


def multipliers(layer: int, classes: int, count: int) -> np.ndarray:
    """[count] int64: 2v+1 with v drawn by PCG64 seeded with 10007*layer."""
    bound = max(1, ((2**63 - 1) // classes) // 2)
    return 2 * np.random.default_rng(10007 * layer).integers(0, bound, size=count, dtype=np.int64) + 1


def row_numbers(compressed: np.ndarray, mult: np.ndarray, primes: np.ndarray, pad_class: int) -> np.ndarray:
    """Table rows per position: [T] ids, [n] multipliers, [n-1, heads] primes -> [T, (n-1)*heads] int64."""
    flat = primes.reshape(-1)
    offsets = np.concatenate([[0], np.cumsum(flat)[:-1]])
    heads = primes.shape[1]
    rows = np.empty((len(compressed), flat.size), np.int64)
    for p in range(len(compressed)):
        blocked, roll = False, 0
        for back in range(len(mult)):
            blocked = blocked or p - back < 0 or int(compressed[p - back]) == DEAD
            value = pad_class if blocked else int(compressed[p - back])
            roll ^= value * int(mult[back])
            if back >= 1:
                for head in range(heads):
                    col = (back - 1) * heads + head
                    rows[p, col] = roll % int(flat[col]) + int(offsets[col])
    return rows
