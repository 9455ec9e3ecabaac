# SPDX-License-Identifier: Apache-2.0
"""Writes folders of runs as `trireme train` leaves them (docs/formats.md), with chosen content."""
import json
import math
import os
import struct

START = 1790000000.0
TABLE = [0] * 256
for _i in range(256):
    _value = _i
    for _ in range(8):
        _value = (_value >> 1) ^ (0x82F63B78 if _value & 1 else 0)
    TABLE[_i] = _value


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = TABLE[(value ^ byte) & 255] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def number(value):
    """A number as JSON; what is not finite is a string."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def metric_line(step, values, attempt=1, kind="train", time=None):
    line = {"kind": kind, "attempt": attempt, "step": step, "time": START + step if time is None else time}
    line.update({tag: number(value) for tag, value in values.items()})
    return json.dumps(line, ensure_ascii=False) + "\n"


def table_block(kind, payload):
    return struct.pack("<II", ord(kind), len(payload)) + payload + struct.pack("<I", crc32c(payload))


def write_table(path, table, rows, columns, records, about=None):
    """records: [(step, [[value by column] by row])]."""
    shape = {"table": table, "rows": rows, "columns": columns, "about": about or {}}
    with open(path, "wb") as out:
        out.write(table_block("H", json.dumps(shape).encode()))
        for step, values in records:
            floats = [value for row in values for value in row]
            out.write(table_block("R", struct.pack("<qqd", step, 1, START + step) + struct.pack(f"<{len(floats)}f", *floats)))


def write_lines(path, objects):
    with open(path, "w", encoding="utf-8") as out:
        for one in objects:
            out.write(json.dumps(one, ensure_ascii=False) + "\n")


def write_run(folder, name="a run", steps=200, values=None, total=None, events=(), ranks=0, prediction=None, config=None,
              validations=None):
    """values(step) -> {tag: value}; validations: {step: {tag: value}}. Returns the folder."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "run.json"), "w", encoding="utf-8") as out:
        json.dump({"job": {"name": name, "dump_folder": folder}, "training": {"steps": total or steps}, **(config or {})},
                  out)
    values = values or (lambda step: {"loss_metrics/global_avg_loss": 2 + 3 / step, "grad_norm": 1 / step + 0.5,
                                      "tokens": step * 4096})
    with open(os.path.join(folder, "metrics.jsonl"), "w", encoding="utf-8") as out:
        out.write(json.dumps({"kind": "start", "attempt": 1, "step": 0, "time": START, "name": name}) + "\n")
        for step in range(1, steps + 1):
            out.write(metric_line(step, values(step)))
            if validations and step in validations:
                out.write(metric_line(step, validations[step], kind="validation"))
    write_lines(os.path.join(folder, "events.jsonl"), events)
    if ranks:
        columns = ["step_seconds", "compute_seconds", "memory_bytes"]
        about = {"nodes": [f"node-{rank // 8}" for rank in range(ranks)], "devices": ["cpu"] * ranks,
                 "coords": [{"pp": 0, "dp": rank, "zero": 0, "cp": 0, "tp": 0} for rank in range(ranks)]}
        records = [(step, [[1 + rank / ranks, 0.5, 1e9] for rank in range(ranks)]) for step in range(20, steps + 1, 20)]
        write_table(os.path.join(folder, "ranks.bin"), "ranks", [f"rank {rank}" for rank in range(ranks)], columns, records,
                    about)
        layers = ["embedding", "blocks.0", "head"]
        write_table(os.path.join(folder, "layers.bin"), "layers", layers, ["grad_norm"],
                    [(step, [[0.1], [0.2], [0.3]]) for step in range(1, steps + 1)])
        # Values of blocks.2 are lost in the second half.
        columns = ["amax_bits", "flushed_share", "saturated_share", "snr_db", "headroom_bits"]
        rows = [f"blocks.{block} {role}" for block in range(1, 4) for role in ("h1", "act", "dy")]
        records = []
        for step in range(10, steps + 1, 10):
            lost = 0.4 if step > steps / 2 else 0.01
            records.append((step, [[1, lost if row == "blocks.2 act" else 0.01, 0, 30, 10] for row in rows]))
        write_table(os.path.join(folder, "numerics.bin"), "numerics", rows, columns, records)
    if prediction:
        with open(os.path.join(folder, "prediction.json"), "w", encoding="utf-8") as out:
            json.dump(prediction, out)
    return folder
