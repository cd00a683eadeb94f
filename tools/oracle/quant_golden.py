#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the quantiser's golden file from MLX itself (CPU back end).

    python3 -m venv venv && venv/bin/pip install 'mlx[cpu]==0.32.4' numpy==2.4.6
    venv/bin/python tools/oracle/quant_golden.py tests/golden/quant/quantized.txt

Lines (fields separated by blanks, bytes in hex, "-" for none):
    input NAME TYPE VALUES                          one row of 128, in the stored type
    result ORACLE FORMAT NAME TYPE CODES SCALES BIASES
Oracles: "cpu-up" is mlx.core.quantize; "cpu-nearest" is the scale rule of MLX before 0.32, put
together from MLX operations; "metal-up" and "metal-nearest" follow the Metal rules in numpy.
"""

import argparse

import mlx.core as mx
import numpy as np

COLUMNS = 128
TYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
AFFINE = [(bits, group) for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
FLOAT_CODED = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def inputs(rng, huge):
    """Rows by name, as float32; `huge` is the largest magnitude the stored type leaves finite."""
    normal = rng.standard_normal(COLUMNS)
    halves = rng.integers(-30, 31, COLUMNS) / 2.0
    middles = rng.choice([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], COLUMNS)
    middles *= rng.choice([-1, 1], COLUMNS)
    middles[::16] = 6.0  # the group's largest, so that the scale is a power of two
    heavy = normal * np.exp(2 * rng.standard_normal(COLUMNS))
    zeros = np.zeros(COLUMNS)
    signed_zeros = np.where(rng.random(COLUMNS) < 0.5, -0.0, 0.0)
    sparse = np.where(rng.random(COLUMNS) < 0.1, normal, signed_zeros)
    return {
        "normal": 0.02 * normal,
        "wide": rng.uniform(-60, 60, COLUMNS),
        "heavy": heavy,
        "positive": rng.uniform(0.5, 0.75, COLUMNS),
        "negative": -rng.uniform(0.5, 0.75, COLUMNS),
        "constant": np.full(COLUMNS, 0.7109375),
        "constant_negative": np.full(COLUMNS, -0.7109375),
        "zero": zeros,
        "signed_zero": signed_zeros,
        "sparse": sparse,
        "halves": halves,
        "middles": middles * 2.0 ** rng.integers(-6, 6),
        "tiny": 1e-7 * normal,
        "saturating": 3000.0 * normal,
        "huge": huge * rng.uniform(-1, 1, COLUMNS),
    }


def hexadecimal(array):
    return np.array(array).tobytes().hex() or "-"


def stored_bytes(array):
    """Bytes of an MLX array of floats in its own type."""
    return hexadecimal(array.view(mx.uint16) if array.dtype != mx.float32 else array)


def pack(codes, bits):
    """One little-endian bit stream per row, element 0 lowest."""
    stream = (codes[:, None].astype(np.uint8) >> np.arange(bits, dtype=np.uint8)) & 1
    return np.packbits(stream.reshape(-1), bitorder="little").tobytes().hex()


def cpu_nearest(row, bits, group):
    limit = mx.array(6.0 if bits == 4 else 448.0).astype(row.dtype)
    groups = row.reshape(-1, group)
    ideal = mx.max(mx.abs(groups), axis=-1, keepdims=True) / limit
    exponent = mx.where(ideal == 0, mx.zeros_like(ideal), mx.round(mx.log2(ideal)))
    scaled = groups / mx.power(mx.array(2.0).astype(row.dtype), exponent)
    scales = np.array((exponent.astype(mx.float32) + 127).astype(mx.uint8)).reshape(-1)
    if bits == 8:
        return np.array(mx.to_fp8(scaled)).reshape(-1), scales
    table = mx.array(np.concatenate([E2M1, -E2M1])).astype(row.dtype)
    distance = mx.abs(mx.expand_dims(scaled, -1) - table)
    return np.array(mx.argmin(distance, axis=-1)).reshape(-1), scales


def half_away(x):
    return np.sign(x) * np.floor(np.abs(x.astype(np.float64)) + 0.5)


def metal_e2m1(x):
    """Nearest of the eight magnitudes, at a tie the even code; bit 3 is the sign."""
    magnitude = np.minimum(np.abs(x), np.float32(6))
    distance = np.abs(magnitude[:, None].astype(np.float64) - E2M1)
    best = np.array([min(range(8), key=lambda code: (d[code], code % 2)) for d in distance])
    return (best + 8 * np.signbit(x)).astype(np.uint8)


def metal_float_coded(values, name, rule):
    bits, group = FLOAT_CODED[name]
    codes, scales = [], []
    for chunk in values.reshape(-1, group):
        ideal = np.float32(np.max(np.abs(chunk)) / np.float32(6 if bits == 4 else 448))
        if name == "nvfp4":
            byte = int(np.array(mx.to_fp8(mx.array(np.array([ideal]))))[0])
            scale = np.array(mx.from_fp8(mx.array([byte], dtype=mx.uint8), mx.float32))[0]
            factor = np.float32(0) if scale == 0 else np.float32(1) / scale
        else:
            exact = np.log2(np.float64(ideal)) if ideal > 0 else -127.0
            chosen = np.ceil(exact) if rule == "up" else half_away(np.array(exact))
            byte = int(np.clip(chosen, -127, 127)) + 127
            factor = np.float32(2.0 ** (127 - byte))
        scaled = chunk * factor
        if factor == 0:
            scaled = np.zeros_like(chunk)
        codes.append(metal_e2m1(scaled) if bits == 4 else np.array(mx.to_fp8(mx.array(scaled))))
        scales.append(byte)
    return np.concatenate(codes), np.array(scales, np.uint8)


def metal_affine(values, bits, group):
    codes, scales, biases = [], [], []
    levels = np.float32(2**bits - 1)
    for chunk in values.reshape(-1, group):
        low, high = np.min(chunk), max(np.float32(0), np.max(chunk))
        scale = max((high - low) / levels, np.float32(1e-7))
        edge = low if abs(low) > abs(high) else high
        scale = scale if abs(low) > abs(high) else -scale
        steps = np.float32(half_away(edge / scale))
        bias = edge if steps != 0 else np.float32(0)
        scale = edge / steps if steps != 0 else scale
        codes.append(np.clip(half_away((chunk - bias) / scale), 0, levels))
        scales.append(scale)
        biases.append(bias)
    return np.concatenate(codes), np.array(scales), np.array(biases)


def results(name, type_name, row):
    """Lines of one input under every format and oracle."""
    values = np.array(row.astype(mx.float32))
    tail = f"{name} {type_name}"
    for bits, group in AFFINE:
        if type_name != "bf16" and group != 64:
            continue
        suffix = "" if type_name == "bf16" else f"-{type_name}"
        format_name = f"affine{bits}-g{group}{suffix}"
        words, scales, biases = mx.quantize(row[None], group_size=group, bits=bits)
        yield (f"result cpu-up {format_name} {tail} {hexadecimal(words)} "
               f"{stored_bytes(scales)} {stored_bytes(biases)}")
        codes, scales, biases = metal_affine(values, bits, group)
        rounded = [stored_bytes(mx.array(x).astype(row.dtype)) for x in (scales, biases)]
        yield f"result metal-up {format_name} {tail} {pack(codes, bits)} {' '.join(rounded)}"
    for format_name, (bits, group) in FLOAT_CODED.items():
        words, scales = mx.quantize(row[None], group_size=group, bits=bits, mode=format_name)
        yield (f"result cpu-up {format_name} {tail} {hexadecimal(words)} "
               f"{hexadecimal(scales)} -")
        rules = ("up",) if format_name == "nvfp4" else ("up", "nearest")
        for rule in rules:
            codes, scales = metal_float_coded(values, format_name, rule)
            yield (f"result metal-{rule} {format_name} {tail} {pack(codes, bits)} "
                   f"{hexadecimal(scales)} -")
        if format_name != "nvfp4":
            codes, scales = cpu_nearest(row, bits, group)
            yield (f"result cpu-nearest {format_name} {tail} {pack(codes, bits)} "
                   f"{hexadecimal(scales)} -")


def main():
    parser = argparse.ArgumentParser(description="Golden file of the quantiser.")
    parser.add_argument("output")
    parser.add_argument("--seed", type=int, default=20260418)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    mx.set_default_device(mx.cpu)
    lines = [f"# mlx {mx.__version__} CPU, numpy {np.__version__}, seed {arguments.seed}, "
             "written by tools/oracle/quant_golden.py"]
    rng = np.random.default_rng(arguments.seed)
    for repeat in range(arguments.repeats):
        for type_name, type_ in TYPES.items():
            huge = 3e4 if type_name == "f16" else 1e38
            for name, values in inputs(rng, huge).items():
                row = mx.array(values.astype(np.float32)).astype(type_)
                name = f"{name}{repeat}" if repeat else name
                lines.append(f"input {name} {type_name} {stored_bytes(row)}")
                lines.extend(results(name, type_name, row))
    with open(arguments.output, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
