#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Trireme's conversions to 8-bit floats and fp16 with PyTorch's casts, code by code.

All codes are compared as values. fp32 values are compared on the CPU and, if there is one, on the
GPU: every 16th bit pattern and its two neighbours, which contains every tie of every format and
what is next to it; with --all every one of the 2^32. PyTorch's 8-bit casts make NaN of values
beyond the largest; Trireme limits them before, so they are limited here, too. Codes of NaN are
compared without their sign.

  python3 tests/golden/float8_check.py [--all] [--program build/.../float8_codes]

Without --program the script compiles tests/golden/float8_codes.cpp with c++. Exit code 0: all
equal; 1: a difference; 2: nothing was compared, for the reason printed.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("PyTorch is not installed; nothing was compared")
    sys.exit(2)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = 1 << 26  # values at a time
FORMATS = {
    "e4m3": (getattr(torch, "float8_e4m3fn", None), torch.uint8, 448.0, 0x7F),
    "e5m2": (getattr(torch, "float8_e5m2", None), torch.uint8, 57344.0, 0x7F),
    "f16": (torch.float16, torch.int16, None, 0x7FFF),
}


def compiled(folder):
    program = pathlib.Path(folder) / "float8_codes"
    subprocess.run(["c++", "-std=c++20", "-O3", "-I", str(ROOT / "src"),
                    str(ROOT / "tests/golden/float8_codes.cpp"), "-o", str(program)], check=True)
    return program


def ours(program, arguments, dtype):
    answer = subprocess.run([str(program), *map(str, arguments)], check=True, capture_output=True)
    return torch.frombuffer(bytearray(answer.stdout), dtype=dtype)


def check_values(program, name):
    dtype, bits, _, _ = FORMATS[name]
    found = ours(program, [name, "values"], torch.float32)
    codes = torch.arange(found.numel(), dtype=torch.int32).to(bits)
    expected = codes.view(dtype).float()
    both_nan = found.isnan() & expected.isnan()
    same = (found.view(torch.int32) == expected.view(torch.int32)) | both_nan
    print(f"  {name}: {found.numel()} codes, {int((~same).sum())} differ")
    return bool(same.all())


def check_casts(program, name, device, first, stride):
    dtype, bits, largest, magnitude = FORMATS[name]
    count, differ = (1 << 32) // stride, 0
    for begin in range(0, count, BLOCK):
        size = min(BLOCK, count - begin)
        start = first + begin * stride
        found = ours(program, [name, start, size, stride], bits).to(device)
        patterns = torch.arange(start, start + size * stride, stride, dtype=torch.int64,
                                device=device)
        x = patterns.to(torch.int32).view(torch.float32)  # wraps
        limited = x if largest is None else x.clamp(-largest, largest)
        expected = limited.to(dtype).view(bits)
        is_nan = x.isnan()
        stays = (found & magnitude) > (0x7C00 if name == "f16" else 0x7E)
        same = torch.where(is_nan, stays, found == expected)
        if not bool(same.all()):
            i = int((~same).nonzero()[0])
            print(f"    {x[i].item()!r} (bits {int(patterns[i]) & 0xFFFFFFFF:#x}): Trireme "
                  f"{int(found[i]):#x}, PyTorch {int(expected[i]):#x}")
            differ += int((~same).sum())
    print(f"  {name} on {device}: {count} values from {first} by {stride}, {differ} differ")
    return differ == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--program", help="float8_codes, already built")
    parser.add_argument("--all", action="store_true", help="all 2^32 values")
    options = parser.parse_args()
    missing = [name for name, row in FORMATS.items() if row[0] is None]
    if missing:
        print(f"torch {torch.__version__} has no {', '.join(missing)}; nothing was compared")
        return 2
    print(f"torch {torch.__version__}")
    devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    passes = [(0, 1)] if options.all else [(0, 16), (1, 16), (15, 16)]
    is_equal = True
    with tempfile.TemporaryDirectory() as folder:
        program = options.program or compiled(folder)
        for name in FORMATS:
            is_equal &= check_values(program, name)
            for device in devices:
                for first, stride in passes:
                    is_equal &= check_casts(program, name, device, first, stride)
    print("equal" if is_equal else "DIFFERENT")
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
