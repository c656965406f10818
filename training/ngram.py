"""The baseline: an interpolated Kneser-Ney 5-gram over the same tokens, trained and measured on the same text.

A token has 12 bits, so five of them are one int64: counts are sorted arrays, no hashing.

    python training/ngram.py
"""

from __future__ import annotations

import math

import numpy as np

import data

ORDER, BITS, DISCOUNT = 5, 12, 0.75


def windows(source: data.Source, n: int) -> np.ndarray:
    """All n-grams inside documents, one number each."""
    tokens = source.tokens.astype(np.int64)
    out = np.zeros(len(tokens) - n + 1, np.int64)
    for i in range(n):
        out = (out << BITS) | tokens[i : len(tokens) - n + 1 + i]
    doc = np.repeat(np.arange(len(source.offsets) - 1, dtype=np.int32), np.diff(source.offsets))
    return out[doc[: len(out)] == doc[n - 1 :]]


class Level:
    """Counts of one order, and per history their sum and how many different tokens follow."""

    def __init__(self, grams: np.ndarray, counts: np.ndarray) -> None:
        self.grams, self.counts = grams, counts
        history = grams >> BITS
        self.histories, first = np.unique(history, return_index=True)
        self.sums = np.add.reduceat(counts, first)
        self.kinds = np.diff(np.append(first, len(history)))

    @staticmethod
    def _find(table: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at = np.minimum(np.searchsorted(table, keys), len(table) - 1)
        return at, table[at] == keys

    def probability(self, grams: np.ndarray, lower: np.ndarray) -> np.ndarray:
        at, known = self._find(self.histories, grams >> BITS)
        slot, seen = self._find(self.grams, grams)
        count = np.where(seen, self.counts[slot], 0)
        total = np.where(known, self.sums[at], 1)
        share = np.maximum(count - DISCOUNT, 0) / total
        return np.where(known, share + DISCOUNT * self.kinds[at] / total * lower, lower)


def train(source: data.Source) -> list[Level]:
    levels: list[Level] = []
    grams, counts = np.unique(windows(source, ORDER), return_counts=True)
    levels.append(Level(grams, counts))
    for n in range(ORDER - 1, 0, -1):
        # Kneser-Ney: a lower order counts the different tokens that stand before.
        shorter = grams & ((1 << (BITS * n)) - 1)
        grams, counts = np.unique(shorter, return_counts=True)
        levels.append(Level(grams, counts))
    return levels[::-1]


def main() -> None:
    levels = train(data.Source())
    held = data.Source(held=True)
    tokens = held.tokens.astype(np.int64)
    total = count = 0.0
    for d in range(len(held.offsets) - 1):
        t = tokens[held.offsets[d] : held.offsets[d + 1]]
        for n in range(1, ORDER + 1):  # the first tokens of a document have shorter histories
            last = np.arange(n, len(t)) if n == ORDER - 1 else np.arange(n, min(n + 1, len(t)))
            if n == ORDER or len(last) == 0:
                continue
            grams = np.zeros(len(last), np.int64)
            p = np.full(len(last), 1 / 4096)
            for order in range(1, n + 2):
                grams = np.zeros(len(last), np.int64)
                for i in range(order):
                    grams = (grams << BITS) | t[last - order + 1 + i]
                p = levels[order - 1].probability(grams, p)
            total -= np.log(p).sum()
            count += len(last)
    print(f"{int(count):,} held-out tokens: loss {total / count:.4f}, perplexity {math.exp(total / count):.2f}")


if __name__ == "__main__":
    main()
