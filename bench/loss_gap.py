#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far the loss of a recipe of number formats is from that of bf16.

Trains one model in each recipe and in bf16 from the same weights, on the same samples in the same order, for one or
more seeds; in bf16 for at least two, whose deviation is the noise. Prints, for each run, the mean loss of the last
tenth of its steps and the difference to bf16 of the same seed in percent; then, for each recipe, the mean of the
differences, its standard error if there are several seeds, and the noise. Runs that differ by a rounding somewhere
soon differ as much as seeds do: a difference below the noise says nothing, in either direction.

Most of that noise arises early, where the gradient is large and the learning rate still rises, and stays to the end.
--start-tokens keeps it out: bf16 trains on so many tokens first, and all recipes, bf16 among them, continue from its
checkpoint with --tokens further ones. Such pairs differ only by what the recipes lose from there on.

Without --data a corpus is made of text files below --folder (sources and documents of this machine) and becomes the
data set, by --tokenizer or by one of --vocab tokens that is trained on it. --jobs 2 trains two runs at once: what one
leaves idle on the GPU the other uses. Speeds are not comparable then, losses are.

  bench/loss_gap.py --program build/gpu/trireme --model gpt2-124m --tokens 100e6 --micro-batch 16 --seq 1024 \\
    --recipes fp8-tensor,fp8-block,fp16 --folder /usr/lib/python3 --work /tmp/loss
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

SUFFIXES = {".py", ".txt", ".md", ".rst", ".h", ".hpp", ".c", ".cpp", ".cu", ".cuh", ".html", ".json", ".js", ".sh"}

LOSS = "loss_metrics/global_avg_loss"


def corpus(folders, to, limit):
    """Writes text files without duplicates as JSON lines, in the order of their names' hashes, until `limit` bytes."""
    files = [path for folder in folders for path in pathlib.Path(folder).rglob("*")
             if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink()]
    files.sort(key=lambda path: hashlib.sha256(str(path).encode()).digest())
    seen, total = set(), 0
    part = to.with_suffix(".part")
    with open(part, "w", encoding="utf-8") as out:
        for path in files:
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            digest = hashlib.sha256(text.encode()).digest()
            if digest in seen or not 200 <= len(text) <= 400_000:
                continue
            seen.add(digest)
            out.write(json.dumps({"text": text}) + "\n")
            total += len(text)
            if total >= limit:
                break
    os.replace(part, to)
    print(f"corpus: {len(seen):,} texts, {total:,} characters", flush=True)


def call(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"loss_gap: {' '.join(map(str, command))}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done


def data_set(options):
    if options.data:
        return options.data
    work = pathlib.Path(options.work)
    prefix = work / "tokens"
    if not (work / "tokens.bin").exists():
        if not (work / "corpus.jsonl").exists():
            corpus(options.folder, work / "corpus.jsonl", options.corpus_bytes)
        tokenizer = options.tokenizer
        if not tokenizer:
            tokenizer = work / "tokenizer"
            call([options.program, "data", "tokenizer", "train", work / "corpus.jsonl", "--output", tokenizer,
                  "--vocab", str(options.vocab), "--pattern", "gpt2", "--overwrite"])
        call([options.program, "data", "build", work / "corpus.jsonl", "--output", prefix, "--tokenizer", tokenizer,
              "--overwrite"])
    return str(prefix)


def training(options, data, recipe, seed, folder):
    """The command that trains, without checkpoints; and its first step and number of steps."""
    batch = options.micro_batch * options.seq
    start = int(options.start_tokens) // batch
    steps = start + max(10, int(options.tokens) // batch)
    settings = {
        "job.dump_folder": folder, "training.dataset_path": data, "training.steps": steps,
        "training.local_batch_size": options.micro_batch, "training.seq_len": options.seq,
        "precision.recipe": recipe, "debug.seed": seed, "checkpoint.enable": "false", "validation.enable": "false",
        "optimizer.lr": options.lr, "lr_scheduler.warmup_steps": max(1, steps // 10),
        "lr_scheduler.min_lr_factor": 0,
        "metrics.log_freq": max(1, steps // 10)}
    settings.update(word.split("=", 1) for word in options.set)
    command = [options.program, "train", "--model", options.model]
    return command + [f"--{key}={value}" for key, value in settings.items()], start, steps


def run_folder(options, recipe, seed):
    return pathlib.Path(options.work) / f"{pathlib.Path(options.model).stem}-{recipe}-{seed}"


def checkpoint_of(folder, step):
    return folder / "checkpoint" / f"step-{step:08d}"


def make_start(options, data, seed):
    """Trains in bf16 until the checkpoint of the start is there, then kills the run."""
    folder = run_folder(options, "start", seed)
    command, start, _ = training(options, data, "bf16", seed, folder)
    checkpoint = checkpoint_of(folder, start)
    print(f"start, seed {seed}: {start} steps ...", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    with open(os.path.join(options.work, f"start-{seed}.log"), "w", encoding="utf-8") as log:
        process = subprocess.Popen(command + ["--checkpoint.enable=true", f"--checkpoint.interval={start}"],
                                   stdout=log, stderr=log)
        while not checkpoint.exists() and process.poll() is None:
            time.sleep(0.05)
        process.kill()
        process.wait()
    if not checkpoint.exists():
        sys.exit(f"loss_gap: no checkpoint of step {start}; see {log.name}")


def losses(options, data, recipe, seed):
    """Trains, and returns the loss of every step after the start."""
    folder = run_folder(options, recipe, seed)
    command, start, steps = training(options, data, recipe, seed, folder)
    if start > 0:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(checkpoint_of(run_folder(options, "start", seed), start), checkpoint_of(folder, start),
                        copy_function=os.link)
        command += ["--resume", str(start)]
    else:
        command += ["--overwrite"]
    print(f"{recipe}, seed {seed}: {steps - start} steps ...", file=sys.stderr, flush=True)
    call(command)
    found = {}
    with open(folder / "metrics.jsonl", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["kind"] == "train" and LOSS in row and row["step"] > start:
                found[row["step"]] = row[LOSS]
    return [found[step] for step in sorted(found)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/gpu/trireme")
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=float, required=True)
    parser.add_argument("--start-tokens", type=float, default=0, help="tokens of a start in bf16 that all runs share")
    parser.add_argument("--micro-batch", type=int, required=True)
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--recipes", default="fp8-tensor,fp8-block")
    parser.add_argument("--data", help="a data set; default: one is made of --folder")
    parser.add_argument("--tokenizer", help="folder of the tokenizer of --folder's texts; default: one is trained")
    parser.add_argument("--vocab", type=int, default=50257, help="of the tokenizer that is trained")
    parser.add_argument("--seeds", type=int, default=1, help="seeds with which every recipe is trained")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--folder", nargs="+", default=["/usr/lib/python3", "/usr/share/doc"])
    parser.add_argument("--corpus-bytes", type=int, default=600_000_000)
    parser.add_argument("--work", default="/tmp/loss_gap")
    parser.add_argument("--set", nargs="*", default=[], help="further settings, as optimizer.beta2=0.98")
    options = parser.parse_args()
    if options.seeds < 1 or options.jobs < 1:
        parser.error(f"--seeds {options.seeds} --jobs {options.jobs}: both must be at least 1")
    if options.start_tokens and options.start_tokens < options.micro_batch * options.seq:
        parser.error(f"--start-tokens {options.start_tokens:g}: at least a batch, or 0 for a start from new weights")
    if not os.access(options.program, os.X_OK):
        parser.error(f"--program {options.program}: no such program; build it, or name another")
    os.makedirs(options.work, exist_ok=True)
    data = data_set(options)

    def tail(run):
        recipe, seed = run
        values = losses(options, data, recipe, seed)
        mean = statistics.fmean(values[-max(1, len(values) // 10):])
        return {"recipe": recipe, "seed": seed, "steps": len(values), "first": values[0], "tail": mean}

    recipes = list(filter(None, options.recipes.split(",")))
    runs = [("bf16", seed) for seed in range(1, max(2, options.seeds) + 1)]
    runs += [(recipe, seed) for seed in range(1, options.seeds + 1) for recipe in recipes]
    if options.start_tokens:
        for seed in sorted({seed for _, seed in runs}):
            make_start(options, data, seed)
    tails = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for run, result in zip(runs, pool.map(tail, runs)):
            tails[run] = result["tail"]
            gap = 100 * (result["tail"] / tails["bf16", run[1]] - 1)
            print(json.dumps({**result, "gap_percent": round(gap, 4)}), flush=True)
    base = [value for (recipe, _), value in tails.items() if recipe == "bf16"]
    noise = 100 * statistics.stdev(base) / statistics.fmean(base)
    for recipe in recipes:
        gaps = [100 * (tails[recipe, seed] / tails["bf16", seed] - 1) for seed in range(1, options.seeds + 1)]
        summary = {"recipe": recipe, "seeds": options.seeds, "mean_gap_percent": round(statistics.fmean(gaps), 4)}
        if options.seeds > 1:
            summary["standard_error_percent"] = round(statistics.stdev(gaps) / options.seeds ** 0.5, 4)
        print(json.dumps({**summary, "noise_percent": round(noise, 4)}), flush=True)


if __name__ == "__main__":
    main()
