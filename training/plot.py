"""Draws log.csv as an SVG: loss on text and on answers over the tokens seen, phases marked. No libraries.

    python training/plot.py log.csv [more.csv ...] --out models/tiny/loss.svg
"""

from __future__ import annotations

import argparse
import csv
import math

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 820, 400, 60, 50, 30, 20
SERIES = (("text", "#1f6fb2", "text"), ("answer", "#c0392b", "answers"))


def smooth(points: list[tuple[float, float]], span: int = 4) -> list[tuple[float, float]]:
    out = []
    for i, (x, _) in enumerate(points):
        near = [y for _, y in points[max(0, i - span) : i + span + 1]]
        out.append((x, math.exp(sum(math.log(max(y, 1e-4)) for y in near) / len(near))))
    return out


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("logs", nargs="+")
    p.add_argument("--out", required=True)
    args = p.parse_args()
    rows = [r for path in args.logs for r in csv.DictReader(open(path, encoding="utf-8"))]
    rows = [r for r in rows if r["text"] and r["answer"]]
    end = max(int(r["tokens"]) for r in rows) / 1e6
    low, high = math.log10(0.005), 1.0

    def x(tokens: float) -> float:
        return LEFT + tokens / end * (WIDTH - LEFT - RIGHT)

    def y(loss: float) -> float:
        return TOP + (high - math.log10(max(loss, 0.005))) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    for v in (0.01, 0.03, 0.1, 0.3, 1, 3, 10):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(v):.1f}" y2="{y(v):.1f}" stroke="#dddddd"/>'
                   f'<text x="{LEFT - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v:g}</text>')
    step = 25 if end > 60 else 5
    for v in range(0, int(end) + 1, step):
        out.append(f'<text x="{x(v):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{v}</text>')
    before = ""
    for r in rows:
        if r["phase"] != before:
            at = x(int(r["tokens"]) / 1e6)
            out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#888888" stroke-dasharray="4 3"/>'
                       f'<text x="{at + 4:.1f}" y="{TOP + 12}" fill="#555555">{r["phase"]}</text>')
            before = r["phase"]
    for i, (key, color, label) in enumerate(SERIES):
        points = smooth([(int(r["tokens"]) / 1e6, float(r[key])) for r in rows if float(r[key]) > 0])
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"/>'
                   f'<text x="{WIDTH - RIGHT - 80}" y="{TOP + 40 + 18 * i}" fill="{color}">{label}</text>')
    out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 12}" text-anchor="middle">million tokens</text>'
               f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">loss per token (nats)</text></svg>')
    with open(args.out, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
