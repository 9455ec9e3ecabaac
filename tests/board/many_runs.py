# SPDX-License-Identifier: Apache-2.0
"""Writes folders of many runs with configurations that differ, for the list of the board.

python3 -B tests/board/many_runs.py FOLDER --runs 500 --longest 1000000"""
import argparse
import json
import math
import os
import random

START = 1790000000.0
MODELS = ("kjv-llama", "gpt2-10m", "qwen3-small", "mixtral-tiny")


def config_of(number, source):
    model = MODELS[number % len(MODELS)]
    return {"job": {"name": f"{model}-{number:03d}", "group": f"sweep {number % 7}",
                    "tags": "baseline, long" if number % 10 == 3 else ""}, "model": {"name": model},
            "optimizer": {"lr": 0.0001 * 2 ** (number % 6), "name": "AdamW" if number % 3 else "Muon"},
            "training": {"dtype": "bf16" if number % 2 else "fp32", "seed": source.randrange(1000)}}


def lines_of(steps, number, source, start):
    """Lines of metrics.jsonl, in parts of a few megabytes."""
    floor, speed = 2 + number % 5 / 4, 4000 + 10 * number
    part = [json.dumps({"kind": "start", "attempt": 1, "step": 0, "time": start + number}) + "\n"]
    for step in range(1, steps + 1):
        loss = floor + 6 / math.sqrt(step) + 0.02 * source.random()
        part.append(f'{{"kind":"train","attempt":1,"step":{step},"time":{start + number + step:.3f},'
                    f'"loss_metrics/global_avg_loss":{loss:.7f},"grad_norm":{0.5 + 1 / step:.7f},"lr":0.001,'
                    f'"tokens":{step * 4096},"throughput(tps)":{speed + source.random():.6f},"mfu(%)":{30 + number % 20}}}\n')
        if step % 100 == 0 or step == steps:
            part.append(f'{{"kind":"validation","attempt":1,"step":{step},"time":{start + number + step:.3f},'
                        f'"validation_metrics/loss":{loss + 0.1:.7f}}}\n')
        if len(part) > 20000:
            yield "".join(part)
            part = []
    yield "".join(part)


def write_many_run(folder, number, steps, source, start=START, has_config=True):
    os.makedirs(folder)
    config = config_of(number, source)
    config["training"]["steps"] = steps
    if has_config:
        with open(os.path.join(folder, "run.json"), "w", encoding="utf-8") as out:
            json.dump(config, out)
    with open(os.path.join(folder, "prediction.json"), "w", encoding="utf-8") as out:
        json.dump({"price_per_hour": 2.5, "ranks": 1, "seconds": 1.0, "tokens_per_step": 4096}, out)
    with open(os.path.join(folder, "metrics.jsonl"), "w", encoding="utf-8") as out:
        for part in lines_of(steps, number, source, start):
            out.write(part)


def write_many(folder, runs, longest, usual=2000, seed=1):
    """Writes `runs` folders; the first has `longest` steps, the others up to `usual`."""
    source = random.Random(seed)
    for number in range(runs):
        steps = longest if number == 0 else source.randrange(10, usual + 1)
        write_many_run(os.path.join(folder, f"run-{number:03d}"), number, steps, source)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--longest", type=int, default=1_000_000)
    given = parser.parse_args()
    write_many(given.folder, given.runs, given.longest)
