"""Checks the reference's parts against published vectors, and the reference against itself.

usage: check_reference.py [--vectors test_vectors.json] [--engram-tables engram_tables.json]
                          [--tokenizer tokenizer.json[.gz]] [--golden DIR ...]

The vector file holds quantizer, PCG64, Engram row, RoPE, mHC, router and gate cases; the tokenizer is the released one
(or an equivalent) and its token classes must number 99,092 with the published SHA-256. Each golden folder is run again:
BF16 goldens must come out bit for bit, float32 goldens of the other implementation within 2e-5 of the logit range; and a
prompt cut short must give the same bits for the rows that are left.
Prints one line per check and 'N passed, N failed'; exits 1 on a failure.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
from typing import Any, Callable

import numpy as np

import engram_address
import numerics as nx
import reference_model as rm
from checkpoint_io import E2M1, E4M3, Checkpoint, RawTensor, bf16_bits_to_f32, f32_to_bf16_bits, read_safetensors
from numerics import F32, F64

RESULTS: list[bool] = []


def check(name: str, ok: bool, detail: str = "") -> None:
    RESULTS.append(bool(ok))
    print(f"{'ok  ' if ok else 'FAIL'} {name} {detail}")


def check_fma() -> None:
    """fma against exact rational arithmetic on operands that put the sum near a rounding edge."""
    from fractions import Fraction

    rng = np.random.default_rng(1)
    a = nx.to_bf16(rng.standard_normal(4000).astype(F32))
    b = nx.to_bf16(rng.standard_normal(4000).astype(F32))
    c = (rng.standard_normal(4000) * np.exp2(rng.integers(-30, 30, 4000))).astype(F32)
    c[::3] = (-(a.astype(F64) * b))[::3].astype(F32)
    got = nx.fma(a, b, c)
    bad = 0
    for x, y, z, g in zip(a, b, c, got):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        near = [g, np.nextafter(g, F32(np.inf)), np.nextafter(g, F32(-np.inf))]
        distances = [abs(Fraction(float(n)) - exact) for n in near]
        tie = distances[0] == min(distances[1:])
        bad += distances[0] > min(distances[1:]) or (tie and int(g.view(np.uint32)) & 1 == 1)
    check("fma is correctly rounded", bad == 0, f"{bad} of 4000 wrong")


def check_exp() -> None:
    x = np.linspace(-87.3, 88.7, 200001).astype(F32)
    relative = np.abs(nx.exp(x).astype(F64) / np.exp(x.astype(F64)) - 1).max()
    edge = nx.exp(np.array([0, -88, -1e30, 89], F32))
    check("exp", relative < 1.2e-7 and list(edge) == [1, 0, 0, np.inf], f"max relative error {relative:.2e}")


def check_quantizers(v: dict[str, Any]) -> None:
    wanted = np.array([np.nan if x is None else float(x) for x in v["e4m3fn_decode"]])
    check("E4M3 table", np.array_equal(E4M3.astype(F64), wanted, equal_nan=True))
    check("E2M1 table", [float(x) for x in E2M1] == v["e2m1_decode"])
    cases = {"act_quant_e4m3_block32": nx.q8, "fp4_e8m0_group32": nx.q4_index, "fp4_e4m3_group16": nx.q4_latent}
    for key, quantize in cases.items():
        for i, case in enumerate(v[key]):
            got = f32_to_bf16_bits(quantize(bf16_bits_to_f32(np.array(case["x_bf16"], np.uint16))))
            check(f"{key}[{i}]", np.array_equal(got, np.array(case["dequant_bf16"], np.uint16)))


def check_engram(v: dict[str, Any], tables: dict[str, Any] | None) -> None:
    for case in v["pcg64"]:
        draws = np.random.PCG64(case["seed"]).random_raw(4)
        check(f"PCG64 seed {case['seed']}", [int(d) for d in draws] == case["first_u64"])
    primes = engram_address.table_primes(16_000_000, 2, 3, 8)
    check("Engram table sizes", [int(p.sum()) for p in primes] == [384006168, 384016682])
    mult = {layer: engram_address.multipliers(layer, 99092, 4) for layer in (1, 14)}
    if tables:
        for layer in (1, 14):
            t = tables["layers"][str(layer)]
            check(f"multipliers of layer {layer}", mult[layer].tolist() == t["multipliers"])
            check(f"primes of layer {layer}", primes[0 if layer == 1 else 1].tolist() == t["primes"])
    for i, case in enumerate(v["engram_rows"]):
        for at, layer in enumerate((1, 14)):
            rows = engram_address.row_numbers(np.array(case["compressed_ids"]), mult[layer], primes[at], 2)
            check(f"engram_rows[{i}] layer {layer}", rows.tolist() == case["rows"][str(layer)])
    for case in v["engram_gate"]:
        got = float(rm.engram_gate(np.array([case["dot"]], F32))[0])
        check(f"Engram gate at {case['dot']!r}", abs(got - case["gate"]) <= 1e-7, f"{got:.9f}")


def check_rope(v: dict[str, Any]) -> None:
    yarn = {"factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 65536}
    tables = {"window": rm.rope_frequencies(64, 10000, None), "compressed": rm.rope_frequencies(64, 160000, yarn)}
    check("rope frequencies, window", tables["window"].tolist() == v["rope"]["window_theta10000_inv_freq"])
    check("rope frequencies, compressed", tables["compressed"].tolist() == v["rope"]["compressed_theta160000_yarn16_inv_freq"])
    bad = 0
    for s in v["rope"]["samples"]:
        cos, sin = rm.rope_table(np.array([s["pos"]]), tables[s["table"]])
        bad += abs(float(cos[0, s["i"]]) - s["cos"]) > 6e-8 or abs(float(sin[0, s["i"]]) - s["sin"]) > 6e-8
    check("rope samples", bad == 0, f"{bad} of {len(v['rope']['samples'])} differ")


def check_mhc(v: dict[str, Any]) -> None:
    case = v["mhc"]
    z, scale, base = (np.array(case[k], F32) for k in ("mixes", "scale", "base"))
    pre, post, comb = rm.mhc_coefficients(z[None], scale, base, F32(1e-6), 20, 4)
    wanted = {"pre": case["pre"], "post": case["post"], "comb": case["comb_row_major_from_to"]}
    for (name, want), got in zip(wanted.items(), (pre[0], post[0], comb[0])):
        error = np.abs(got.astype(F64) - np.array(want)).max()
        check(f"mHC {name}", error < 5e-7, f"max error {error:.1e}")


def check_router(v: dict[str, Any]) -> None:
    case = v["router_top3"]
    s = rm.router_scores(np.array(case["logits"], F32))
    error = np.abs(s.astype(F64) / np.array(case["scores"]) - 1).max()
    check("router scores", error < 3e-7, f"max relative error {error:.1e}")
    picked = rm.pick_largest(nx.add(s, np.array(case["bias"], F32)), 3)
    check("router picks", sorted(case["indices_desc_lowest_id_on_ties"]) == picked.tolist())
    total = nx.add(nx.sum_ascending(s[picked]), F32(1e-20))
    g = nx.mul(nx.div(s[picked], total), F32(1.5))
    want = np.array(case["weights"])[np.argsort(case["indices_desc_lowest_id_on_ties"])]
    check("router weights", np.abs(g - want).max() < 3e-7)


def check_token_classes(path: str) -> None:
    opener: Callable[..., Any] = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as f:
        classes = engram_address.token_classes(json.load(f), 129280)
    digest = hashlib.sha256(classes.astype("<i4").tobytes()).hexdigest()
    check("token classes", int(classes.max()) + 1 == 99092, str(int(classes.max()) + 1))
    check("token class hash", digest == "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481")


def as_float(t: RawTensor) -> np.ndarray:
    return bf16_bits_to_f32(t.data) if t.dtype == "BF16" else np.asarray(t.data)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if a.shape != b.shape:
        return False
    if a.dtype == np.float32:
        return np.array_equal(a.view(np.uint32), b.astype(F32).view(np.uint32))
    return np.array_equal(a, b)


def check_golden(folder: str) -> None:
    """Runs a golden checkpoint again, whole and cut short."""
    golden = read_safetensors(os.path.join(folder, "golden.safetensors"))
    other = "logits_reference" in golden  # made by the other implementation, float32
    model = rm.ReferenceModel(Checkpoint(folder), "f32" if other else "bf16")
    ids = np.asarray(golden["ids"].data)
    capture = rm.Capture()
    result = model.forward(ids, capture)
    name = os.path.basename(folder.rstrip("/"))
    if other:
        logits = as_float(golden["logits"])
        error = np.abs(logits - result.logits).max(axis=-1) / np.ptp(logits, axis=-1)
        check(f"{name}: logits of the other implementation", error.max() <= 2e-5, f"max {error.max():.2e} of the range")
        check(f"{name}: own logits", same_bits(as_float(golden["logits_reference"]), result.logits))
    else:
        values = {**capture.values, "logits": result.logits, "ids": ids}
        wrong = [k for k, t in golden.items() if not same_bits(as_float(t), values[k])]
        check(f"{name}: {len(golden)} tensors bit for bit", not wrong, " ".join(wrong[:5]))
    for cut in (1, 2, 3, len(ids) - 3):
        part = model.forward(ids[:cut])
        ok = same_bits(part.logits, result.logits[:cut])
        ok &= all(same_bits(a, b[:cut]) for a, b in zip(part.residuals, result.residuals))
        check(f"{name}: the first {cut} rows alone", ok)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors")
    parser.add_argument("--golden", nargs="*", default=[])
    parser.add_argument("--engram-tables")
    parser.add_argument("--tokenizer")
    args = parser.parse_args()
    tables = None
    if args.engram_tables:
        with open(args.engram_tables, encoding="utf-8") as f:
            tables = json.load(f)
    check_fma()
    check_exp()
    if args.vectors:
        with open(args.vectors, encoding="utf-8") as f:
            vectors = json.load(f)
        check_quantizers(vectors)
        check_engram(vectors, tables)
        check_rope(vectors)
        check_mhc(vectors)
        check_router(vectors)
    if args.tokenizer:
        check_token_classes(args.tokenizer)
    for folder in args.golden:
        check_golden(folder)
    print(f"{sum(RESULTS)} passed, {len(RESULTS) - sum(RESULTS)} failed")
    return 0 if all(RESULTS) else 1


if __name__ == "__main__":
    raise SystemExit(main())
