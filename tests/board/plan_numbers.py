# SPDX-License-Identifier: Apache-2.0
"""Checks that a number of the planner's page is a number of `trireme plan --json`: its unit and its rounding."""
import re

# Units by what a path of the answer means, each with its size.
UNITS = {
    "bytes": {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
    "seconds": {"s": 1, "ms": 1e-3, "µs": 1e-6},
    "days": {"days": 1, "hours": 1 / 24, "minutes": 1 / 1440},
    "share": {"%": 0.01},
    "dollars": {"": 1, "M": 1e6, "B": 1e9},
    "amount": {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12},
    "rate": {"tokens/s": 1},
    "count": {"": 1},
}
# Rounding that is always allowed; otherwise a number has at least three digits.
ALLOWED = {"bytes": 0.5, "seconds": 0, "days": 0, "share": 0.0005, "dollars": 0.5, "amount": 0.5, "rate": 0.5, "count": 0}
BY_NAME = {"mfu": "share", "hfu": "share", "time_change": "share", "throughput_share": "share", "tolerance": "share", "time": "share", "batch_efficiency": "share",
           "seconds": "seconds", "days": "days", "deadline_days": "days", "dollars": "dollars", "budget": "dollars",
           "dollars_per_gpu_hour": "dollars", "parameters": "amount", "tokens": "amount", "tokens_per_second": "rate"}
# Counts that are rounded.
ROUNDED_COUNTS = {"gpu_hours": 0.5, "tokens_per_parameter": 0.5, "bytes_per_parameter": 0.5}


def at_path(answer, path):
    for part in path.split("."):
        if answer is None:
            return None
        answer = answer[int(part)] if isinstance(answer, list) else answer.get(part)
    return answer


def unit_kind(path):
    parts = path.split(".")
    if "terms" in parts:
        return "seconds"
    if "items" in parts or parts[-1].endswith("bytes"):
        return "bytes"
    return BY_NAME.get(parts[-1], "count")


def read_number(text, kind):
    """Returns the value, and half of its last digit."""
    found = re.fullmatch(r"([+±−]?)(\$?)([\d,]+)(\.\d+)?(?: (\S+))?", text)
    if not found:
        raise ValueError(f"'{text}' is no number")
    sign, dollar, whole, fraction, unit = found.groups()
    if (dollar == "$") != (kind == "dollars") or (unit or "") not in UNITS[kind]:
        raise ValueError(f"'{text}' has not the unit of {kind}")
    if not re.fullmatch(r"\d{1,3}(,\d{3})*", whole):
        raise ValueError(f"'{text}' has no thousands")
    size = UNITS[kind][unit or ""]
    decimals = len(fraction or ".") - 1
    value = float(whole.replace(",", "") + (fraction or "")) * size
    return (-value if sign == "−" else value), 0.5 * size / 10**decimals


def fault_of(answer, shown):
    """Returns what is wrong with a shown number, or none. shown: {path, text, over, band, sign} of its element."""
    path, text = shown["path"], shown["text"]
    value = at_path(answer, path)
    kind = "share" if shown["over"] else unit_kind(path)
    if value is None:
        return None if text == "–" else f"{path}: the page has {text}, the answer has nothing"
    if shown["over"]:
        value /= at_path(answer, shown["over"])
    if shown["band"]:
        value *= 1 + int(shown["sign"]) * at_path(answer, shown["band"])
    try:
        found, rounding = read_number(text, kind)
    except ValueError as error:
        return f"{path}: {error}"
    if abs(found - value) > rounding * (1 + 1e-9) + 1e-9 * abs(value):
        return f"{path}: the page has {text}, the answer has {value!r}"
    name = path.split(".")[-1]
    allowed = 0.005 if text.startswith("±") else ROUNDED_COUNTS.get(name, ALLOWED[kind])
    if found != value and rounding > max(0.005 * abs(value), allowed) * (1 + 1e-9):
        return f"{path}: {text} is too rough for {value!r}"
    return None
