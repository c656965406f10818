#!/usr/bin/env python3
"""Writes base_vectors.json: what Python and NumPy say about floats, JSON text and random integers.

Needs NumPy; the tests read only the file. Run: python3 tests/data/make_base_vectors.py
"""
import json
import pathlib
import random
import struct

import numpy


def double_bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def floats() -> list:
    chosen = [0.0, -0.0, 1.0, 100.0, 0.1, 1e-05, 1.5e-07, 1e16, 9999999999999998.0, 1e15, 123456789012345680.0,
              0.0001, 9.999999999999999e-05, 0.00012345678901234567, 5e-324, 2.2250738585072014e-308,
              1.7976931348623157e308, 9007199254740993.0, 0.3, 2.0 / 3.0, 1e22, 1e23, -1e-07, 6.0, 1e21, 12345.678]
    generator = random.Random(1)
    while len(chosen) < 400:
        value = struct.unpack(">d", struct.pack(">Q", generator.getrandbits(64)))[0]
        if value == value and abs(value) != float("inf"):
            chosen.append(value)
    while len(chosen) < 600:  # the range that is written without an exponent
        chosen.append(generator.uniform(-1, 1) * 10.0 ** generator.randint(-5, 17))
    return [[double_bits(value), repr(value)] for value in chosen]


def rewritten() -> list:
    texts = ['{"a":1,"b":[true,false,null]}', '[]', '{}', '[[],{}]', '{"a":1,"b":2,"a":3}', '"\\u00e9\\ud83d\\ude00\\/"',
             '[1.0,1e5,1E-5,0.00001,1e400,-1e400,1e-400,-0,-0.0,12345678901234567890123]', '"\\u0000\\u001f\\u007f"',
             '"a\\"b\\\\c\\n\\r\\t\\b\\f"', ' \t\r\n[ 1 , 2 ] \n', '{"":{"":""}}', '[0.1,100.0,1e16,1.5e-07]']
    return [[text, json.dumps(json.loads(text), ensure_ascii=False), compact(text)] for text in texts]


def compact(text: str) -> str | None:
    """None where Python's text is no JSON: Infinity."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return None


def integers() -> list:
    ranges = [(0, 1), (0, 10), (-5, 6), (0, 2**31 + 1), (0, 2**32 - 1), (0, 2**32), (0, 2**32 + 1), (-7, 2**40),
              (0, 2**62 + 1), (-2**63, 2**63 - 1), (-2**63, 2**62 + 1), (0, 3)]
    cases = []
    for seed in (0, 42, 10007, 2**32 + 5, 2**64 - 1):
        for low, high in ranges:
            draws = numpy.random.default_rng(seed).integers(low, high, 24)
            cases.append({"seed": str(seed), "low": low, "high": high, "draws": [int(x) for x in draws]})
        generator = numpy.random.default_rng(seed)  # draws of both widths from one stream
        mixed = [int(generator.integers(*ranges[i % len(ranges)])) for i in range(48)]
        cases.append({"seed": str(seed), "mixed": mixed})
    return [ranges, cases]


def uniforms() -> list:
    return [[str(seed), [double_bits(x) for x in numpy.random.default_rng(seed).random(8)]] for seed in (0, 12345, 2**63)]


def main() -> None:
    ranges, cases = integers()
    vectors = {"numpy": numpy.__version__, "floats": floats(), "rewritten": rewritten(), "ranges": ranges,
               "integers": cases, "uniforms": uniforms()}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in vectors.items())
    pathlib.Path(__file__).with_name("base_vectors.json").write_text("{" + lines + "}\n")


if __name__ == "__main__":
    main()
