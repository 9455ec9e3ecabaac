#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the alarm of 8-bit numbers on real runs.

A small Llama is trained in fp8-tensor until all its blocks matter for its loss, and every run goes on
from its checkpoint. By seed, the activations of one block begin to grow at some step and at some
rate (src/train/numerics/drift_plant.h). The table lists when the first alarm came, which block it
named, and when the loss diverged: the first step whose loss is more than six standard deviations
above the mean of the 50 steps before the onset. With --fallback every run is repeated with
precision.fallback = "bf16", which must keep the loss. --healthy N trains N steps in several runs
without a drift, which must have no alarm. --jobs 2 trains two runs at once.

  tests/drift/run.py --program build/release/trireme --data runs/kjv-data/kjv --seeds 20 --fallback
  tests/drift/run.py --program build/release/trireme --data runs/kjv-data/kjv --healthy 50000

Ends with 1 if fewer than 19 of 20 alarms come in the first half of the way to divergence and name
the right block, if a fall-back does not keep its run, or if a healthy run has an alarm.
"""
import argparse
import concurrent.futures
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile

MODEL = """family = "llama"
layers = {layers}
hidden = 64
heads = 2
kv_heads = 2
head_dim = 32
ffn = 128
vocab = 256
max_seq = 64
norm_eps = 1e-5
tied_head = true
rope_theta = 10000
"""
LAYERS = 3
WINDOW = 50
BASE = "base"
BASE_STEPS = 1500  # so many make z-scores of 8 and more if any one block is lost


def train(args, folder, name, steps, options, drift=None, goes_on=False):
    """Runs `trireme train`, from the checkpoint of BASE if it goes on from there; returns losses by step and the
    events of kind numerics."""
    run = os.path.join(folder, name)
    shutil.rmtree(run, ignore_errors=True)
    if goes_on:
        shutil.copytree(os.path.join(folder, BASE), run)
    model = os.path.join(folder, "model.toml")
    with open(model, "w", encoding="utf-8") as out:
        out.write(MODEL.format(layers=LAYERS))
    settings = {
        "job.dump_folder": run, "model.name": model, "training.dataset_path": args.data,
        "training.local_batch_size": 16, "training.seq_len": 64, "training.steps": steps,
        "training.max_norm": 1e9, "training.skip_norm_multiple": 0, "optimizer.lr": 4e-3,
        "lr_scheduler.warmup_steps": 50, "precision.recipe": "fp8-tensor", "precision.fallback": "warn", "system.device": "cpu", "system.threads": 1,
        "checkpoint.enable": "false", "metrics.enable_tensorboard": "false", "metrics.log_freq": 100}
    settings.update(options)
    command = [args.program, "train"] + (["--resume", "auto"] if goes_on else [])
    command += [f"--{key}={value}" for key, value in settings.items()]
    environment = dict(os.environ)
    environment.pop("TRIREME_PLANT_DRIFT", None)
    if drift:
        environment["TRIREME_PLANT_DRIFT"] = ",".join(f"{key}={value}" for key, value in drift.items())
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        print(done.stdout[-2000:], file=sys.stderr)
        raise SystemExit(f"{name}: exit code {done.returncode}")
    losses = {}
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
        for line in lines:
            one = json.loads(line)
            if one["kind"] == "train":
                losses[one["step"]] = float(one["loss_metrics/global_avg_loss"])
    with open(os.path.join(run, "events.jsonl"), encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines]
    if not args.keep and name != BASE:
        shutil.rmtree(run, ignore_errors=True)
    return losses, [event for event in events if event["kind"] == "numerics"]


def divergence(losses, onset):
    """The first step after the onset whose loss has a z-score above 6."""
    before = [losses[step] for step in range(onset - WINDOW + 1, onset + 1)]
    mean = sum(before) / len(before)
    deviation = math.sqrt(sum((loss - mean) ** 2 for loss in before) / (len(before) - 1))
    for step in range(onset + 1, max(losses) + 1):
        if not losses[step] <= mean + 6 * deviation:
            return step
    return None


def drift_of(seed):
    dice = random.Random(seed)
    return {"block": dice.randrange(LAYERS), "channel": dice.randrange(64),
            "onset": BASE_STEPS + dice.randrange(100, 200), "rate": round(math.exp(dice.uniform(math.log(1.1), math.log(1.6))), 4),
            "place": "both"}


def run_seed(args, folder, seed):
    """Returns a line of the table, whether the alarm was in time and whether the fall-back kept the run."""
    drift = drift_of(seed)
    bits = math.log2(drift["rate"])
    steps = drift["onset"] + int(24 / bits) + 10
    losses, events = train(args, folder, f"seed-{seed}", steps, {}, drift, goes_on=True)
    end = divergence(losses, drift["onset"])
    alarms = [event for event in events if event["data"]["what"] == "alarm"]
    first = alarms[0] if alarms else None
    share = (first["step"] - drift["onset"]) / (end - drift["onset"]) if first and end else math.nan
    is_good = first is not None and first["data"]["block"] == drift["block"] and 0 < share <= 0.5
    line = f"{seed:4} {drift['block']:5} {drift['rate']:5.3f} {drift['onset']:5} | "
    line += f"{first['step']:5} {first['data']['block']:5} {first['data']['growth_bits']:6.2f} | " if first else "    -     -      - | "
    line += f"{end or '-':>8} {share:5.2f} | "
    is_kept = True
    if args.fallback:
        safe, changes = train(args, folder, f"seed-{seed}-bf16", steps, {"precision.fallback": "bf16"}, drift,
                              goes_on=True)
        tail = range(max(safe) - 9, max(safe) + 1)
        loss, lost = (sum(of[step] for step in tail) / 10 for of in (safe, losses))
        fell = [event["data"]["blocks"] for event in changes if event["data"]["what"] == "fallback"]
        is_kept = divergence(safe, drift["onset"]) is None and fell[:1] == [[drift["block"]]]
        line += f"{'kept' if is_kept else 'LOST'}: loss {loss:.3f}, in 8 bits {lost:.3f}"
    return line + ("" if is_good else "  <-- not in time"), is_good, is_kept


def run_seeds(args, folder):
    print(f"{BASE_STEPS} steps before the drifts ...", file=sys.stderr, flush=True)
    losses, events = train(args, folder, BASE, BASE_STEPS, {"checkpoint.enable": "true", "checkpoint.interval": BASE_STEPS})
    alarms = [event["text"] for event in events]
    print(f"{BASE_STEPS} steps before: loss {losses[BASE_STEPS]:.3f}, alarms: {alarms}")
    print("seed block  rate onset | alarm named growth | diverged share |" + (" after fall-back" if args.fallback else ""))
    in_time = kept = 0
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for line, is_good, is_kept in pool.map(lambda seed: run_seed(args, folder, seed), seeds):
            in_time += is_good
            kept += is_kept
            print(line, flush=True)
    print(f"{in_time} of {args.seeds} alarms in the first half, with the right block")
    if args.fallback:
        print(f"{kept} of {args.seeds} runs kept by the fall-back")
    return not alarms and in_time * 20 >= args.seeds * 19 and kept * 20 >= args.seeds * 19


def run_healthy(args, folder):
    """Several runs: constant and falling learning rate, small batches, resumed."""
    kinds = [{}, {"lr_scheduler.decay_ratio": 0.8, "optimizer.lr": 4e-3}, {"training.local_batch_size": 1},
             {"optimizer.lr": 8e-3, "lr_scheduler.warmup_steps": 200}, {"optimizer.lr": 5e-4, "training.max_norm": 1}]
    alarms, steps = 0, args.healthy // len(kinds)
    print(f"{len(kinds)} runs of {steps} steps ...", file=sys.stderr, flush=True)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        runs = pool.map(lambda run: train(args, folder, f"healthy-{run[0]}", steps,
                                          {"training.local_batch_size": 8, "debug.seed": 100 + run[0], **run[1]}),
                        enumerate(kinds))
        for number, (options, (losses, events)) in enumerate(zip(kinds, runs)):
            found = [event["text"] for event in events]
            alarms += len(found)
            print(f"run {number} ({options}): {max(losses)} steps, loss {losses[max(losses)]:.3f}, alarms: {found}",
                  flush=True)
    print(f"{alarms} alarms in {steps * len(kinds)} healthy steps")
    return alarms == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the program trireme")
    parser.add_argument("--data", required=True, help="prefix of a data set of bytes")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--fallback", action="store_true", help="repeat every run with the fall-back")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--healthy", type=int, default=0, help="train so many steps without a drift instead")
    parser.add_argument("--keep", help="keep the runs in this folder")
    args = parser.parse_args()
    if args.seeds < 1 or args.jobs < 1:
        parser.error(f"--seeds {args.seeds} --jobs {args.jobs}: both must be at least 1")
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or scratch
        os.makedirs(folder, exist_ok=True)
        is_good = run_healthy(args, folder) if args.healthy else run_seeds(args, folder)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
