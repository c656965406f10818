"""The tokenizer of the tiny model: byte-level BPE in the structure of the released tokenizer.json (encoding.md 1).

The merges are trained on the corpus and on generated conversations with every digit taken out, so a digit stays one token.
Ids: 0..2 sentence tokens, 256 byte symbols, merges, then the added tokens that the chat format needs.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, Iterable

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SENTENCE = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>")
# (content, special, normalized): the flags of the released file.
ADDED = (
    ("<｜System｜>", False, True), ("<｜User｜>", False, True), ("<｜Assistant｜>", False, True), ("<|EOT|>", True, True),
    ("<think>", False, False), ("</think>", False, False), ("｜DSML｜", False, False), ("<｜latest_reminder｜>", False, False),
    ("<｜action｜>", False, False), ("<｜query｜>", False, False), ("<｜authority｜>", False, False), ("<｜domain｜>", False, False),
    ("<｜task｜>", False, False), ("<｜political｜>", False, False), ("<｜entity｜>", False, False), ("<｜title｜>", False, False),
    ("<｜safety｜>", False, False), ("<｜answer｜>", False, False), ("<｜search｜>", False, False), ("<｜read_url｜>", False, False),
    ("<｜rl_image_pad｜>", False, False), ("<｜rl_image_start｜>", False, False), ("<｜deepseek_image｜>", False, False),
    ("<|place_holder_mm_span_0442|>", True, False),
)
VOCAB = 4096
NOISE, IMAGE = "<｜System｜>", "<｜deepseek_image｜>"
SPLITS = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)


def train(texts: Iterable[str]) -> dict[str, Any]:
    """-> the content of tokenizer.json."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(s), "isolated") for s in SPLITS]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    control = re.compile("|".join(re.escape(t) for t in SENTENCE + tuple(x[0] for x in ADDED)))
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(ADDED), special_tokens=list(SENTENCE), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False)

    def plain() -> Iterable[str]:
        for t in texts:
            for piece in control.split(t):
                yield re.sub(r"\d+", "", piece)

    tokenizer.train_from_iterator(plain(), trainer)
    trained = json.loads(tokenizer.to_str())
    vocab = trained["model"]["vocab"]
    assert len(vocab) == VOCAB - len(ADDED)
    merges = [m if isinstance(m, str) else " ".join(m) for m in trained["model"]["merges"]]

    def added(token: int, content: str, special: bool, normalized: bool) -> dict[str, Any]:
        return {"id": token, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": normalized, "special": special}

    steps: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": s}, "behavior": "Isolated", "invert": False} for s in SPLITS]
    steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False})
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added(i, s, True, False) for i, s in enumerate(SENTENCE)]
        + [added(len(vocab) + i, *t) for i, t in enumerate(ADDED)],
        "normalizer": {"type": "Sequence", "normalizers": []},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "vocab": dict(sorted(vocab.items(), key=lambda kv: kv[1])), "merges": merges,
        },
    }


def save(content: dict[str, Any], path: str) -> None:
    with open(path, "w", encoding="utf-8") as f:
        json.dump(content, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def added_ids(path: str) -> dict[str, int]:
    with open(path, encoding="utf-8") as f:
        return {t["content"]: t["id"] for t in json.load(f)["added_tokens"]}


# ---- token classes of Engram, model.md 3.1 ----------------------------------------------------------------------------

_SPACE = ("\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f"
          "\u205f\u3000")


def _class_key(text: str) -> str:
    text = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    text = "".join(c.lower() for c in text if unicodedata.category(c) not in ("Mn", "Mc", "Me"))
    text = re.sub(r"[ \t\r\n]+", " ", text)
    return " " if text == " " else text.strip(_SPACE)


def token_classes(path: str) -> np.ndarray:
    """[vocab] token id -> class, numbered by first occurrence."""
    with open(path, encoding="utf-8") as f:
        content = json.load(f)
    symbols = {s: b for b, s in _byte_symbols().items()}
    added = {t["id"]: t["content"] for t in content["added_tokens"]}
    base = {i: s for s, i in content["model"]["vocab"].items()}
    size = max(max(added), max(base)) + 1
    classes: dict[str, int] = {}
    out = np.empty(size, np.int32)
    for token in range(size):
        text = added[token] if token in added else bytes(symbols[c] for c in base[token]).decode("utf-8", errors="replace")
        key = (added.get(token) or base[token]) if "\ufffd" in text else (_class_key(text) or text)
        out[token] = classes.setdefault(key, len(classes))
    return out


def _byte_symbols() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {b: chr(b) for b in printable}
    table.update({b: chr(0x100 + i) for i, b in enumerate(x for x in range(256) if x not in set(printable))})
    return table
