#!/usr/bin/env python3
"""Prints the ratios of the CPU backend beside what they should reach, as Markdown.

tables.py OPS_JSON [PROGRAM SLICE]: OPS_JSON is what ops_bench wrote. With the program and a full-size synthetic
checkpoint (`pagestate make-checkpoint --preset flash-slice`) it also runs `bench decode` and `bench prefill` on it,
which takes some minutes and 6 GB of memory. Every ratio is a median of 5 against ceilings sampled during its own run,
but for the long prompt, which runs once. What OPS_JSON lacks, as after --benchmark_filter, is left out.
"""

import json
import subprocess
import sys

READ, PEAK = "of_read", "of_peak"
ONE_ROW = [("wq_b_fp8", 0.90), ("wo_a_fp8", 0.90), ("wo_b_fp8", 0.90), ("head_bf16", 0.90), ("expert_w1_fp4", 0.85),
           ("expert_w2_fp4", 0.85)]
MANY_ROWS = ["wq_b_fp8", "wo_b_fp8", "expert_w1_fp4", "head_bf16"]
# option values, target
DECODE = [(1024, 0.75), (32768, 0.72), (262144, 0.65)]


def row(what, value, target):
    print(f"| {what} | {value:.2f} | {target} |")


def print_isa(results, isa):
    def ratio(what, name, unit, target):
        if name in results:
            row(what, results[name][unit], target)

    def few(target):  # few rows are the widest set's task
        return target if isa == "amx" else ""

    for shape, target in ONE_ROW:
        name = f"linear/{shape}/{isa}"
        ratio(f"{shape}, 1 row, {isa}: of read bandwidth", f"{name}/1", READ, few(target))
        for rows in (4, 8) if shape.endswith("fp8") else ():
            if {f"{name}/1", f"{name}/{rows}"} <= results.keys():
                row(f"{shape}, {rows} rows, {isa}: time to that of 1 row, each in terms of its own read bandwidth",
                    results[f"{name}/1"][READ] / results[f"{name}/{rows}"][READ], few("1.15 at most"))
    for rows in (1, 4, 8):
        ratio(f"experts, {rows} rows, {isa}: distinct experts' bytes of read bandwidth", f"moe/{isa}/{rows}", READ,
              few(0.85 if rows == 1 else 0.80))
    for shape in MANY_ROWS:
        for rows in (256, 1024, 4096):
            ratio(f"{shape}, {rows} rows, {isa}: of peak", f"linear/{shape}/{isa}/{rows}", PEAK, 0.60)
    ratio(f"experts, 96 rows each, {isa}: of peak", f"moe/{isa}/1024", PEAK, few(0.50))


def print_ops(path):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    context = report["context"]
    ceilings = [f"{name} {float(value):.0f}" for name, value in context.items() if "GB/s" in name or "FLOP/s" in name]
    print(f"{context['num_cpus']} processors at {context['mhz_per_cpu']} MHz; at the start {', '.join(ceilings)}\n")
    print("| what | ratio | target |\n|---|---|---|")
    results = {run["name"].split("/iterations:")[0]: run for run in report["benchmarks"]}
    for isa in ("amx", "avx512", "avx2"):
        print_isa(results, isa)


def bench(program, slice_folder, kind, *options):
    command = [program, "bench", kind, "--model", slice_folder, "--json", *map(str, options)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def print_steps(program, slice_folder):
    print("\n| what | ratio | target |\n|---|---|---|")
    for context, target in DECODE:
        result = bench(program, slice_folder, "decode", "--context", context, "--page-tokens", 256)
        row(f"decode, context {context}: of the floor", result["ratio"], target)
    costs = {}
    for tokens, repeats in ((4096, 5), (65536, 1)):
        result = bench(program, slice_folder, "prefill", "--context", tokens, "--chunk", 4096, "--repeats", repeats)
        costs[tokens] = 1 / result["tokens_per_second"]
        if tokens == 4096:
            row(f"prefill, {tokens} tokens: of the floor", result["ratio"], 0.40)
    row("prefill, cost of a token at 65536 to that at 4096", costs[65536] / costs[4096], "1.5 at most")


def main():
    if len(sys.argv) not in (2, 4):
        sys.exit(__doc__)
    print_ops(sys.argv[1])
    if len(sys.argv) == 4:
        sys.stdout.flush()
        print_steps(sys.argv[2], sys.argv[3])


if __name__ == "__main__":
    main()
