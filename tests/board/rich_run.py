# SPDX-License-Identifier: Apache-2.0
"""A run with content for every panel: experts, a mixture with phases, 8-bit numbers, traces, failures, costs."""
import json
import math
import os
import random

from run_folder import START, write_run, write_table

LOSS = "loss_metrics/global_avg_loss"
DATA = "loss_metrics/by_data/"
BLOCKS = 4

PREDICTION = {"machine": "h100", "why": "", "seconds": 1.0123456789, "band": 0.1123456789, "terms": {"compute": 0.5123456789},
              "stage_seconds": None,
              "memory": {"limit_bytes": 8589934577, "items": {"params": 1073741879, "stash": 2147483713}, "total_bytes": 3221225592},
              "model_flops": 1.23456789e12, "hardware_flops": 1.33456789e12, "peak_flops": 1.03456789e13, "peak_source": "a file",
              "ranks": 16, "tokens_per_step": 4096, "seq_len": 64, "mfu_formula": "6 N", "price_per_hour": 2.4912345678,
              "recompute": "none"}

PHASES = {"phase": [{"name": "long texts", "from_step": 81}, {"name": "", "from_tokens": 4096 * 150}]}


def rich_values(seed=1):
    source = random.Random(seed)

    def values(step):
        found = {LOSS: 2 + 5 / step + source.gauss(0, 0.05), "loss_metrics/min": 1.8 + 5 / step, "loss_metrics/max": 2.3 + 5 / step,
                 "grad_norm": abs(source.gauss(1, 0.1)), "clip_limit": 1.0123456789, "update_norm": 0.0123456789 / step,
                 "tokens": step * 4096, "lr": 3e-05 * source.random(), "throughput(tps)": 41234.567890123 + source.gauss(0, 30),
                 "time_metrics/end_to_end(s)": 0.123456789 + source.random(), "tflops": 412.3456789, "mfu(%)": 41.23456789,
                 "time_metrics/data_loading(s)": 2.0154919993728982e-05, "memory/max_active(GiB)": 1.23456789,
                 f"{DATA}web": 2.1 + 5 / step + source.gauss(0, 0.02), f"{DATA}books": 2.6 + 4 / step + source.gauss(0, 0.02)}
        for block in range(1, BLOCKS + 1):
            load = 1 + block * source.random()
            found.update({f"experts/block_{block}/expert_max_over_mean": load, f"experts/block_{block}/busiest_expert": block,
                          f"experts/block_{block}/idle_experts": block % 2, f"experts/block_{block}/dropped": 1.04e-8 * load,
                          f"experts/block_{block}/entropy": 1 - 0.0123456789 * block})
        found.update({"experts/expert_max_over_mean": 3.123456789, "experts/idle_experts": 1, "experts/dropped": 1.0412345678e-8,
                      "experts/entropy": 0.9712345678})
        return found
    return values


def event(step, kind, text, severity="info", **more):
    return {"time": START + step, "step": step, "attempt": 1, "epoch": 1, "kind": kind, "severity": severity, "text": text, **more}


EVENTS = [event(1, "start", "attempt 1 starts on 16 ranks"), event(120, "spike", "loss is 9 deviations high", "warning"),
          event(150, "verdict", "rank 3 does not answer", "error", rank=3, node="node-0"),
          event(150, "checkpoint", "step 150 is saved")]


def write_rich_run(folder, name="a run", seed=1, steps=200):
    source = random.Random(seed)
    validations = {step: {"validation_metrics/loss": 2.2 + 4 / step, "validation_metrics/tokens": 4096} for step in range(20, steps + 1, 20)}
    write_run(folder, name=name, steps=steps, values=rich_values(seed), events=EVENTS, ranks=16, prediction=PREDICTION, config=PHASES,
              validations=validations)
    columns = ["step_seconds", "compute_seconds", "wait_data_seconds", "late_data_seconds", "memory_bytes", "memory_limit_bytes",
               "host_bytes", "cpu_share", "clock_hz", "power_watts", "temperature_celsius"]
    about = {"nodes": [f"node-{rank // 8}" for rank in range(16)], "devices": ["cpu"] * 16,
             "coords": [{"pp": 0, "dp": rank, "zero": 0, "cp": 0, "tp": 0} for rank in range(16)]}
    row = lambda rank: [1 + rank / 16.123, 0.5123456 + source.random() / 9, 0.123456, 1.23e-5, 1234567891, 8589934577, 987654321,
                        0.123456, 1.41234567e9, 654.321, 61.2345]
    write_table(os.path.join(folder, "ranks.bin"), "ranks", [f"rank {rank}" for rank in range(16)], columns,
                [(step, [row(rank) for rank in range(16)]) for step in range(20, steps + 1, 20)], about)
    write_table(os.path.join(folder, "layers.bin"), "layers", ["embedding", "blocks.0", "blocks.1", "head"], ["grad_norm"],
                [(step, [[0.123456 * math.sin(step + i) ** 2 + 0.01] for i in range(4)]) for step in range(1, steps + 1)])
    actions = [{"rank": rank, "kind": kind, "action": f"{kind}{micro}", "stage": rank, "micro": micro,
                "begin": 0.0123456789 * (4 * micro + rank + 2 * (kind == "B")),
                "end": 0.0123456789 * (4 * micro + rank + 2 * (kind == "B") + 1)}
               for rank in range(2) for micro in range(4) for kind in "FB"]
    with open(os.path.join(folder, "pipeline.json"), "w", encoding="utf-8") as out:
        json.dump({"version": 1, "steps": [{"step": 3, "pp": 2, "planned": actions, "traced": actions}]}, out)
    rows = [{"rank": rank, "group": "data", "op": op, "layer": f"blocks.{rank}", "calls": 4, "seconds": 0.0123456789 * (rank + 1),
             "exposed_seconds": 0.00123456789, "bytes": 123456789} for rank in range(2) for op in ("all_gather", "reduce_scatter")]
    with open(os.path.join(folder, "collectives.json"), "w", encoding="utf-8") as out:
        json.dump({"version": 1, "steps": 1, "rows": rows}, out)
    seconds = {"startup": 1.0123456789, "useful": 190.123456789, "data_wait": 0.00123456789, "exposed_save": 3.123456789,
               "validation": 5.7401975319}
    span = {"attempt": 1, "begin": START, "end": START + sum(seconds.values()), "first_step": 1, "last_step": steps, "seconds": seconds,
            "tokens": {"trained": 4096 * steps}, "skipped_steps": 0, "current": "useful"}
    with open(os.path.join(folder, "phases.jsonl"), "w", encoding="utf-8") as out:
        out.write(json.dumps(span) + "\n")
    return folder
