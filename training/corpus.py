"""Plain text from Debian packages: fetch, clean, cut into documents, split off a held-out part.

Owns: which packages, how each is cleaned. The list with versions and licences is DATA.md, written by `report`.
Only texts that are in the public domain or freely licensed are taken. Of GCIDE, only the entries of Webster 1913.
A document is a string; it is held out iff a hash of (source, number) says so, so a rerun gives the same split.
"""

from __future__ import annotations

import gzip
import hashlib
import html.parser
import os
import re
import subprocess
from dataclasses import dataclass
from typing import Callable, Iterator

HELD_OUT_ONE_IN = 50


@dataclass(frozen=True)
class Source:
    name: str
    package: str
    licence: str
    what: str
    read: Callable[[str], Iterator[str]]  # unpacked package folder -> documents
    max_bytes: int


def _zcat(path: str) -> str:
    with gzip.open(path, "rb") as f:
        return f.read().decode("utf-8", errors="replace")


def _reflow(lines: list[str]) -> str:
    """Joins wrapped lines; a word cut by a hyphen at the line end keeps the hyphen."""
    out = ""
    for line in (l.strip() for l in lines):
        if not line:
            continue
        out += line if not out or out.endswith("-") else " " + line
    return out


def _group(entries: Iterator[str], size: int) -> Iterator[str]:
    """Joins short entries to documents of about `size` characters."""
    part: list[str] = []
    total = 0
    for e in entries:
        part.append(e)
        total += len(e)
        if total >= size:
            yield "\n".join(part)
            part, total = [], 0
    if part:
        yield "\n".join(part)


def read_bible(folder: str) -> Iterator[str]:
    """One document per chapter. The text is dumped by the package's own reader (bible-kjv)."""
    binary = os.path.join(os.path.dirname(folder), "bible-kjv", "usr", "bin", "bible")
    os.chmod(binary, 0o755)
    dump = subprocess.run([binary, "-p", os.path.join(folder, "usr/lib"), "-l9999", "Genesis1:1-Revelation22:21"],
                          stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout.decode("latin-1")
    head, verses = "", []
    for line in dump.split("\n"):
        verse = re.match(r"^\s*(\d+)\s+(\S.*)$", line)
        if verse:
            verses.append(f"{verse[1]} {verse[2].strip()}")
        elif line.strip():
            if verses:
                yield head + "\n" + "\n".join(verses)
            head, verses = line.strip(), []
    if verses:
        yield head + "\n" + "\n".join(verses)


PARTS = {"n": "noun", "v": "verb", "adj": "adjective", "adv": "adverb"}


def wordnet_entries(folder: str) -> Iterator[tuple[str, str, list[str]]]:
    """(word, part of speech, senses) in file order; a sense is "gloss; \"example\"" without synonym lists."""
    word, sense, part = "", [], ""
    senses: list[tuple[str, str]] = []

    def clean(text: list[str]) -> str:
        s = re.sub(r"\s*\[(?:syn|ant|also):.*?\]", "", _reflow(text))
        return re.sub(r"[{}]", "", s).strip()

    def flush() -> Iterator[tuple[str, str, list[str]]]:
        by_part: dict[str, list[str]] = {}
        for p, s in senses:
            if s:
                by_part.setdefault(p, []).append(s)
        for p, s in by_part.items():
            yield word, PARTS.get(p, p), s

    for line in _zcat(os.path.join(folder, "usr/share/dictd/wn.dict.dz")).split("\n"):
        if line and not line[0].isspace():
            if sense:
                senses.append((part, clean(sense)))
            yield from flush()
            word, sense, senses = line.strip(), [], []
            continue
        start = re.match(r"^\s+(?:(n|v|adj|adv)\s*)?(\d*):?\s?(.*)$", line)
        new = re.match(r"^\s+(?:(?:n|v|adj|adv)\s*\d*|\d+)\s*:\s", line)
        if new and start:
            if sense:
                senses.append((part, clean(sense)))
            part = start[1] or part
            sense = [re.sub(r"^\s+(?:(?:n|v|adj|adv)\s*\d*|\d+)\s*:\s", "", line)]
        else:
            sense.append(line)
    if sense:
        senses.append((part, clean(sense)))
    yield from flush()


def read_wordnet(folder: str) -> Iterator[str]:
    def entries() -> Iterator[str]:
        for word, part, senses in wordnet_entries(folder):
            if word.startswith("00-database") or not word.isascii():
                continue
            if len(senses) == 1:
                yield f"{word} ({part}): {senses[0]}."
            else:
                yield f"{word} ({part}):\n" + "\n".join(f"{i}. {s}." for i, s in enumerate(senses, 1))

    return _group(entries(), 2400)


def read_gcide(folder: str) -> Iterator[str]:
    """Entries of Webster 1913 only: a paragraph that another source signed is dropped."""
    text = _zcat(os.path.join(folder, "usr/share/dictd/gcide.dict.dz"))
    text = text[text.index("\n\nA \\") if "\n\nA \\" in text else 0 :]

    def entries() -> Iterator[str]:
        for block in re.split(r"\n\n(?=\S)", text):
            head = re.match(r"^(\S[^\n\\]*?)\s*\\[^\\]*\\,?\s*(.*)", block, re.S)
            if not head or "[1913 Webster]" not in block or "PJC]" in block or "WordNet" in block:
                continue
            body = head[2]
            body = re.sub(r"\s*\[1913 Webster\]", "", body)
            for _ in range(3):  # etymologies and forms, innermost brackets first
                body = re.sub(r"\s*\[[^\[\]]*\]", "", body)
            body = re.sub(r"^[^\n]*?\\,\s*", "", body)
            body = re.sub(r"[{}]", "", body)
            paragraphs = [_reflow(p.split("\n")) for p in body.split("\n\n")]
            paragraphs = [re.sub(r"\s{2,}", " ", p) for p in paragraphs if p]
            if "?" in body and re.search(r"\? ", body[:60]):
                continue
            yield head[1] + ", " + "\n".join(paragraphs)

    return _group(entries(), 2600)


def read_jargon(folder: str) -> Iterator[str]:
    text = _zcat(os.path.join(folder, "usr/share/dictd/jargon.dict.dz"))

    def entries() -> Iterator[str]:
        for block in re.split(r"\n\n(?=\S)", text):
            lines = block.strip("\n").split("\n")
            body = "\n".join(lines[1:])
            paragraphs = [re.sub(r"[{}]", "", _reflow(p.split("\n"))) for p in body.split("\n\n")]
            paragraphs = [p for p in paragraphs if p]
            if paragraphs:
                yield f"{lines[0].strip()}: " + "\n".join(paragraphs)

    return _group(entries(), 2400)


def read_devil(folder: str) -> Iterator[str]:
    text = _zcat(os.path.join(folder, "usr/share/dictd/devil.dict.dz"))

    def entries() -> Iterator[str]:
        for block in re.split(r"\n\n(?=[A-Z][A-Z'\- ]+,)", text):
            paragraphs = []
            for p in block.split("\n\n"):
                verse = all(l.startswith("    ") for l in p.split("\n") if l.strip())
                paragraphs.append("\n".join(l.strip() for l in p.split("\n")) if verse else _reflow(p.split("\n")))
            yield re.sub(r"[{}]", "", "\n".join(p for p in paragraphs if p))

    return _group(entries(), 2400)


class _Text(html.parser.HTMLParser):
    """The running text of a page: paragraphs, headings, list items, code blocks."""

    BLOCK = {"p", "li", "h1", "h2", "h3", "h4", "dt", "dd", "pre", "div", "td", "tr"}

    def __init__(self) -> None:
        super().__init__()
        self.out: list[str] = []
        self.skip = 0
        self.pre = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style"):
            self.skip += 1
        if tag == "pre":
            self.pre += 1
        if tag in self.BLOCK:
            self.out.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self.skip = max(0, self.skip - 1)
        if tag == "pre":
            self.pre = max(0, self.pre - 1)
        if tag in self.BLOCK:
            self.out.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.skip:
            self.out.append(data if self.pre else re.sub(r"\s+", " ", data))


def read_handbook(folder: str) -> Iterator[str]:
    root = os.path.join(folder, "usr/share/doc/debian-handbook/html/en-US")
    for name in sorted(os.listdir(root)):
        if not name.endswith(".html") or name.startswith(("ix", "index")):
            continue
        parser = _Text()
        with open(os.path.join(root, name), encoding="utf-8") as f:
            parser.feed(re.sub(r"(?s)<head>.*?</head>", "", f.read()))
        text = re.sub(r"[ \xa0]+\n", "\n", "".join(parser.out))
        text = re.sub(r"\n\s*\n+", "\n", text).strip()
        lines = [l.strip() for l in text.split("\n")]
        lines = [l for l in lines if l not in ("Prev", "Next", "Up", "Home", "")]
        yield from _group(iter(lines), 3200)


def read_perl(folder: str) -> Iterator[str]:
    """The perl manual: POD with its markup taken off, program text kept."""
    root = os.path.join(folder, "usr/share/perl/5.36.0/pod")
    for name in sorted(os.listdir(root)):
        if not name.endswith(".pod") or re.match(r"perl(\d|5)|perl(cn|jp|ko|tw|toc|uniprops)", name) or "delta" in name:
            continue
        with open(os.path.join(root, name), encoding="utf-8", errors="replace") as f:
            pod = f.read()
        parts: list[str] = []
        for p in re.split(r"\n\s*\n", pod):
            if p.startswith("="):
                command = re.match(r"=(head\d|item)\s+(.*)", p, re.S)
                if not command:
                    continue
                p = ("# " if command[1].startswith("head") else "* ") + _reflow(command[2].split("\n"))
            elif not p.startswith((" ", "\t")):
                p = _reflow(p.split("\n"))
            for _ in range(3):
                p = re.sub(r"[ABCFILSXZ]<<+\s(.*?)\s>>+", r"\1", p)
                p = re.sub(r"X<[^<>]*>", "", p)
                p = re.sub(r"[ABCFISZ]<([^<>]*)>", r"\1", p)
                p = re.sub(r"L<(?:[^<>|]*\|)?([^<>]*)>", r"\1", p)
            p = p.replace("E<lt>", "<").replace("E<gt>", ">")
            if p.strip():
                parts.append(p)
        yield from _group(iter(parts), 3200)


def read_state(folder: str) -> Iterator[str]:
    root = os.path.join(folder, "usr/share/state")
    for name in sorted(os.listdir(root)):
        text = _zcat(os.path.join(root, name))
        yield from _group((_reflow(p.split("\n")) for p in re.split(r"\n\s*\n", text) if p.strip()), 2400)


SOURCES = (
    Source("bible", "bible-kjv-text", "public domain", "the King James Bible, by chapters", read_bible, 5_000_000),
    Source("wordnet", "dict-wn", "WordNet 3.0 licence (free use with notice)", "dictionary entries with examples", read_wordnet, 9_000_000),
    Source("webster", "dict-gcide", "text of 1913 in the public domain; collection GPL-2+", "Webster 1913 entries", read_gcide, 9_000_000),
    Source("jargon", "dict-jargon", "public domain", "the Jargon File", read_jargon, 5_000_000),
    Source("devil", "dict-devil", "public domain", "The Devil's Dictionary", read_devil, 5_000_000),
    Source("handbook", "debian-handbook", "GPL-2+ or CC-BY-SA-3.0", "The Debian Administrator's Handbook", read_handbook, 5_000_000),
    Source("perl", "perl-doc", "GPL-1+ or Artistic", "the Perl manual", read_perl, 6_000_000),
    Source("state", "miscfiles", "public domain", "US constitution and declaration", read_state, 1_000_000),
)
READERS = ("bible-kjv",)  # programs of a package that reads another one's file


def fetch(folder: str) -> dict[str, str]:
    """Downloads and unpacks the packages with apt; returns package -> version."""
    os.makedirs(folder, exist_ok=True)
    versions: dict[str, str] = {}
    for package in [s.package for s in SOURCES] + list(READERS):
        found = [f for f in os.listdir(folder) if f.startswith(package + "_") and f.endswith(".deb")]
        if not found:
            subprocess.run(["apt-get", "download", "-q", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            found = [f for f in os.listdir(folder) if f.startswith(package + "_") and f.endswith(".deb")]
        target = os.path.join(folder, package)
        if not os.path.isdir(target):
            subprocess.run(["dpkg", "-x", os.path.join(folder, found[0]), target], check=True)
        versions[package] = found[0].split("_")[1].replace("%3a", ":")
    return versions


def is_held_out(source: str, number: int) -> bool:
    digest = hashlib.sha256(f"{source}/{number}".encode()).digest()
    return int.from_bytes(digest[:4], "little") % HELD_OUT_ONE_IN == 0


def documents(folder: str) -> dict[str, tuple[list[str], list[str]]]:
    """Source -> (training documents, held-out documents). A source over its cap is thinned evenly, not cut off."""
    out: dict[str, tuple[list[str], list[str]]] = {}
    for source in SOURCES:
        docs = [d.strip() for d in source.read(os.path.join(folder, source.package))]
        docs = [d for d in docs if len(d) > 200 and d.count("\ufffd") == 0]
        total = sum(len(d) for d in docs)
        keep = min(1.0, source.max_bytes / max(1, total))
        train: list[str] = []
        held: list[str] = []
        for i, d in enumerate(docs):
            if is_held_out(source.name, i):
                held.append(d)
            elif int(i * keep) != int((i + 1) * keep):
                train.append(d)
        out[source.name] = (train, held)
    return out
