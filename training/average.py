"""Averages exported folders of one config: runs that started from the same weights and saw the data in another order often
average to a model that is better than each of them on held-out text. The result is put back onto the storage grids.

    python training/average.py --out OUT --part A/model:0.5 --part B/model:0.5 [--draft C/model]
"""

from __future__ import annotations

import argparse
import json
import os

import export


def parse_part(text: str) -> tuple[str, float]:
    folder, colon, share = text.rpartition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"{text}: expected FOLDER:SHARE, such as runs/a/model:0.5")
    return folder, float(share)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder of the result; tokenizer.json is the first part's")
    parser.add_argument("--part", required=True, action="append", type=parse_part, help="FOLDER:SHARE; shares sum to 1")
    parser.add_argument("--draft", default="", help="folder whose draft stages are taken as they are")
    args = parser.parse_args()
    if abs(sum(share for _, share in args.part) - 1) > 1e-6:
        parser.error(f"the shares sum to {sum(share for _, share in args.part)}, not to 1")
    first = args.part[0][0]
    with open(os.path.join(first, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    parts = [(export.read_back(config, folder), share) for folder, share in args.part]
    state = {name: sum(weights[name].float() * share for weights, share in parts) for name in parts[0][0]}
    if args.draft:
        state.update((name, w.float()) for name, w in export.read_back(config, args.draft).items() if name.startswith("mtp."))
    export.export(config, state, os.path.join(first, "tokenizer.json"), args.out)


if __name__ == "__main__":
    main()
