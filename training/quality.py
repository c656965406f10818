"""Measures a model through the engine and rewrites the measured parts of docs/quality.md, and docs/needle.svg.

Runs `pagestate eval` on the whole suite, then on parts of it under other settings, each compared case by case with the first run. Needs nothing
but Python. With --torch, a Python that has torch, numpy and tokenizers, it also runs verify.py and rewrites its part.

    python3 training/quality.py --program build/release/apps/pagestate --model models/tiny [--quick] [--torch PYTHON]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
Report = dict[str, Any]
# A PAGE as short as the window: prompts then span several, and warm prompts find most of themselves in the cache.
COMMON = ["--page-tokens", "128"]
FULL = {"limit": 64, "lengths": [100, 250, 500, 1000, 2000, 4000], "pair_limit": 8, "pair_lengths": [250, 1000]}
LONG = [8000, 16000]  # with --long: as slow as all the rest
QUICK = {"limit": 4, "lengths": [100, 250, 500, 1000], "pair_limit": 2, "pair_lengths": [250, 500]}


class Runs:
    """The program, and where its reports go."""

    def __init__(self, program: str, model: str, folder: str, render: bool) -> None:
        self.base = [program, "eval", "--model", model, *COMMON]
        self.folder = folder
        self.render = render
        self.seconds = 0.0

    def run(self, name: str, options: list[str]) -> Report:
        path = os.path.join(self.folder, name + ".json")
        if not self.render:
            print(f"{name}: {' '.join(options)}", flush=True)
            done = subprocess.run([*self.base, *options, "--json", path], stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"{done.stdout}pagestate eval ended with {done.returncode}")
        with open(path, encoding="utf-8") as f:
            report = json.load(f)
        self.seconds += report["seconds"]
        return report

    def compare(self, name: str, base: str, options: list[str]) -> Report:
        return self.run(name, [*options, "--compare", os.path.join(self.folder, base + ".json")])


def numbers(values: list[int]) -> str:
    return ",".join(map(str, values))


def percent(rate: Report) -> str:
    if not rate["of"]:
        return "–"
    return f"{100 * rate['value']:.1f} % [{100 * rate['low']:.0f}, {100 * rate['high']:.0f}]"


def pooled(rates: list[Report]) -> Report:
    """Several rates as one, with Wilson's interval."""
    hits, of = sum(r["hits"] for r in rates), sum(r["of"] for r in rates)
    z, share = 1.959963984540054, hits / of
    center, half = (share + z * z / (2 * of)) / (1 + z * z / of), z * (share * (1 - share) / of + z * z / (4 * of * of)) ** 0.5 / (1 + z * z / of)
    return {"hits": hits, "of": of, "value": share, "low": max(0.0, center - half), "high": min(1.0, center + half)}


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + ["| " + " | ".join(r) + " |" for r in rows]
    return "\n".join(lines)


def machine() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        found = re.search(r"model name\s*:\s*(.*)", f.read())
    return f"{found.group(1) if found else 'unknown processor'}, {len(os.sched_getaffinity(0))} logical CPUs"


def weights_hash(model: str) -> str:
    """Of config.json and all shards, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(n for n in os.listdir(model) if n == "config.json" or n.endswith(".safetensors")):
        with open(os.path.join(model, name), "rb") as f:
            digest.update(f.read())
    return digest.hexdigest()[:16]


def measured_part(main: Report, model: str) -> str:
    settings = main["settings"]
    text = main["text"]
    out = [
        f"Weights `{weights_hash(model)}` (SHA-256 of config and shards), suite `{main['suite_sha256'][:16]}`; {machine()}, backend {settings['backend']}; "
        f"KV cache {settings['kv-cache-dtype']}, index {settings['index-cache-dtype']}, replay on, prompts computed. Brackets are 95 % intervals.",
        f"**Text.** {text['tokens']:,} tokens ({text['bytes']:,} bytes) in {text['windows']} windows: perplexity per token "
        f"{text['perplexity']['value']:.2f} [{text['perplexity']['low']:.2f}, {text['perplexity']['high']:.2f}], bits per byte "
        f"{text['bits_per_byte']['value']:.3f} [{text['bits_per_byte']['low']:.3f}, {text['bits_per_byte']['high']:.3f}].",
        table(["skill", "answers", "exact", "reply right"], [[s["skill"], str(s["exact"]["of"]), percent(s["exact"]), percent(s["right"])] for s in main["skills"]]),
    ]
    calls = main["tool_calls"]
    names = {"made": "a call where one is needed", "valid": "valid, of the calls made", "correct": "right tool and arguments where a call is needed",
             "quiet": "no call where none is needed"}
    out.append(table(["tool calls", "of", "share"], [[label, str(calls[key]["of"]), percent(calls[key])] for key, label in names.items()]))
    lengths = sorted({n["tokens"] for n in main["needle"]})
    depths = sorted({n["depth"] for n in main["needle"]})
    cell = {(n["tokens"], n["depth"]): n["exact"] for n in main["needle"]}
    rows = [[f"{100 * d:.0f} %"] + [f"{cell[t, d]['hits']}/{cell[t, d]['of']}" if (t, d) in cell else "–" for t in lengths] for d in depths]
    rows.append(["all"] + [percent(pooled([r for (t, _), r in cell.items() if t == length])) for length in lengths])
    out.append("**Needle**: one fact in a text of so many tokens; rows are the fact's depth.\n\n" + table(["depth"] + [f"{t:,}" for t in lengths], rows)
               + "\n\n![needle recall](needle.svg)")
    return "\n\n".join(out)


def paired_part(runs: list[tuple[str, Report]]) -> str:
    rows = []
    for label, report in runs:
        c = report["comparison"]
        total = c["answers"][-1] if c["answers"] else None
        loss = c.get("loss_difference")
        needles = [r for r in c["answers"] if r["name"].startswith("needle")]
        rows.append([
            label,
            f"{loss['value']:+.4f} [{loss['low']:+.4f}, {loss['high']:+.4f}], {c['same_windows']} of {c['windows']} equal" if loss and "low" in loss else "–",
            f"{total['exact_before']} → {total['exact_now']} of {total['cases']}" if total else "–",
            points(total["difference"]) if total else "–",
            f"{sum(r['exact_before'] for r in needles)} → {sum(r['exact_now'] for r in needles)} of {sum(r['cases'] for r in needles)}" if needles else "–",
            f"{total['same_text']} of {total['cases']}" if total else "–",
        ])
    return table(["changed", "loss per token", "exact answers", "difference in points", "of these needles", "same text"], rows)


def points(d: Report) -> str:
    return f"{100 * d['value']:+.1f} [{100 * d['low']:+.1f}, {100 * d['high']:+.1f}]"


def verify_part(report: Report, model: str) -> str:
    t, g = report["texts"], report["greedy"]

    def row(label: str, r: Report, key: str) -> list[str]:
        d = r["difference"][key]
        return [label, f"{d['median']:.2f}", f"{d['p99']:.2f}", f"{d['maximum']:.2f}", f"{r['within_bound'][key]:,} of {r['positions']:,}",
                f"{r['ratio_to_bound'][key]['median']:.1f}", f"{r['argmax_equal'][key]:,} of {r['positions']:,}", f"{r['loss'][key]:.4f}"]

    head = ["against PyTorch's exact mode", "median", "p99", "maximum", "within the bound", "median of the bound", "same argmax", "loss per token"]
    same = report["restatement"]
    choices = g["other_choices"]
    gaps = sorted((c["gap"] for c in choices), reverse=True)
    out = [
        f"Weights `{weights_hash(model)}`. The NumPy restatement gives the engine's logits to the bit at {same['equal_bits']} of {same['positions']} positions.",
        table(head, [row("engine, held-out text", t, "engine"), row("PyTorch, other sum order, held-out text", t, "pytorch_reversed"),
                     row("engine, its own continuations", g, "engine"), row("PyTorch, other sum order, same tokens", g, "pytorch_reversed")]),
        f"Logits spread {t['spread']:.2f} (standard deviation); PyTorch's own loss on the held-out text is {t['loss']['pytorch']:.4f}.",
        f"Greedy continuations of {g['prompts']} prompts, {g['tokens']:,} tokens: PyTorch would have chosen another token behind the same tokens at {len(choices)}, "
        + (f"by at most {gaps[0]:.2f} logits; near ties are gaps below {g['near_tie']:.2f}, and {g['other_choices_beyond_near_ties']} gaps are larger. "
           f"PyTorch with the other sum order chooses otherwise at {g['positions'] - g['argmax_equal']['pytorch_reversed']}." if gaps else "so the texts agree."),
    ]
    if choices:
        shown = sorted(choices, key=lambda c: -c["gap"])[:12]
        out.append("The largest gaps:\n\n" + table(["text", "step", "engine", "PyTorch", "gap"], [
            [c["text"], str(c["step"]), f"`{json.dumps(c['engine'], ensure_ascii=False)}`", f"`{json.dumps(c['pytorch'], ensure_ascii=False)}`", f"{c['gap']:.3f}"] for c in shown]))
    return "\n\n".join(out)


def rewrite(path: str, parts: dict[str, str]) -> None:
    """Replaces what lies between <!-- NAME: begin --> and <!-- NAME: end -->."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for name, content in parts.items():
        pattern = re.compile(f"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", re.S)
        if not pattern.search(text):
            sys.exit(f"{path} has no part {name}")
        text = pattern.sub(lambda m: m.group(1) + "\n" + content + "\n\n" + m.group(2), text)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default=os.path.join(ROOT, "build/release/apps/pagestate"))
    p.add_argument("--model", default=os.path.join(ROOT, "models/tiny"))
    p.add_argument("--docs", default=os.path.join(ROOT, "docs"))
    p.add_argument("--keep", default="", help="a folder for the JSON reports; default: a temporary one")
    p.add_argument("--quick", action="store_true", help="few cases, for a first look")
    p.add_argument("--long", action="store_true", help="needles in texts of 8,000 and 16,000 tokens too")
    p.add_argument("--render", action="store_true", help="run nothing: write the tables from the reports in the folder of --keep")
    p.add_argument("--torch", default="", help="a Python with torch, numpy and tokenizers: run verify.py too")
    args = p.parse_args()
    if args.render and not args.keep:
        p.error("--render needs --keep")
    size = QUICK if args.quick else FULL
    lengths = size["lengths"] + (LONG if args.long else [])
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or temporary
        os.makedirs(folder, exist_ok=True)
        runs = Runs(args.program, args.model, folder, args.render)
        main_run = runs.run("main", ["--limit", str(size["limit"]), "--needle-tokens", numbers(lengths), "--svg", os.path.join(args.docs, "needle.svg")])
        pair = ["--limit", str(size["pair_limit"]), "--needle-tokens", numbers(size["pair_lengths"])]
        answers = [*pair, "--parts", "skills,needle"]  # texts are computed whole in any case
        few = ["--parts", "text,skills", "--limit", "2"]
        paired = [
            ("KV cache FP4 (packed) instead of BF16, and chunks of 128 tokens", runs.compare("kv_fp4", "main", [*few, "--kv-cache-dtype", "fp4", "--long-prefill-tokens", "128"])),
            ("index cache FP8 instead of FP4", runs.compare("index_fp8", "main", [*pair, "--index-cache-dtype", "fp8"])),
            ("decoder replay off", runs.compare("replay_off", "main", [*answers, "--no-decoder-swa-bounded-replay"])),
            ("prompts from the prefix cache", runs.compare("warm", "main", [*answers, "--warm"])),
        ]
        served = [sum(c[key] for c in paired[-1][1]["answer_cases"]) for key in ("cached_tokens", "prompt_tokens")]
        paired[-1] = (f"prompts from the prefix cache ({100 * served[0] / served[1]:.0f} % of their tokens), windows replayed", paired[-1][1])
        parts = {"measured": measured_part(main_run, args.model), "paired": paired_part(paired)}
        path = os.path.join(folder, "verify.json")
        if args.torch:
            subprocess.run([args.torch, os.path.join(ROOT, "training/verify.py"), "--program", args.program, "--model", args.model, "--json", path],
                           stdout=subprocess.DEVNULL, check=True)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                parts["agreement"] = verify_part(json.load(f), args.model)
        rewrite(os.path.join(args.docs, "quality.md"), parts)
        print(f"{runs.seconds:.0f} s in the engine; {os.path.join(args.docs, 'quality.md')} and needle.svg are rewritten")


if __name__ == "__main__":
    main()
