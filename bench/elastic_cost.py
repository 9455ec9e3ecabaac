#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs a run without failures that `trireme launch` would replace a rank that is lost.

Runs the configuration in pairs, as launch runs it by default and with --no-elastic, in turn (ABBA), so that a machine
that becomes slower changes both alike. All runs take the same number of steps, which --seconds of a first run gives.
The time of a step is that from the line of one step in metrics.jsonl to the line of the last one, without the first
tenth. Prints the median of the ratios of the pairs with an interval of at least 95 % that assumes no distribution: two
of the sorted ratios. Both save once, at the end, which is not part of the time. Options that are none of this script
go to launch.

  bench/elastic_cost.py configs/kjv.toml -n 2 --pairs 15 --seconds 60 --parallelism.data_parallel_shard_degree=2
"""
import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

LOSS = "loss_metrics/global_avg_loss"


def step_times(folder):
    """The time at which each step was recorded."""
    times = {}
    with open(folder / "metrics.jsonl", encoding="utf-8") as lines:
        for line in lines:
            values = json.loads(line)
            if LOSS in values:
                times[values["step"]] = values["time"]
    return times


def train(options, folder, steps, more):
    """Returns the seconds of a step."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [options.program, "launch", "-n", str(options.n), *more, options.config, f"--training.steps={steps}",
               f"--job.dump_folder={folder}", "--checkpoint.interval=0", *options.words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"elastic_cost.py: {' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    times = step_times(folder)
    events = folder / "events.jsonl"
    if events.exists() and '"replan"' in events.read_text(encoding="utf-8"):
        sys.exit(f"elastic_cost.py: a rank was lost in {' '.join(command)}; this is no run without failures")
    if sorted(times) != list(range(1, steps + 1)):
        sys.exit(f"elastic_cost.py: {folder}/metrics.jsonl has {len(times)} of {steps} steps")
    first = 1 + steps // 10
    return (times[steps] - times[first]) / (steps - first)


def interval(ratios):
    """The narrowest pair of sorted values that contains the median with at least 95 %; None with fewer than six."""
    ratios = sorted(ratios)
    n = len(ratios)
    for k in range(n // 2, 0, -1):
        outside = 2 * sum(math.comb(n, i) for i in range(k)) / 2 ** n
        if outside <= 0.05:
            return ratios[k - 1], ratios[n - k]
    return None


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("-n", type=int, default=2, help="ranks (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=15, help="pairs of runs (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="of a run, at least (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=0, help="of a run, instead of --seconds")
    parser.add_argument("--program", default="build/release/trireme", help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one object")
    options, options.words = parser.parse_known_args()
    if options.pairs < 1 or options.n < 2:
        parser.error("--pairs: at least 1; -n: at least 2")
    with tempfile.TemporaryDirectory(prefix="elastic-cost-") as work:
        folder = pathlib.Path(work) / "run"
        steps = options.steps
        if steps == 0:
            steps = max(100, math.ceil(1.5 * options.seconds / train(options, folder, 100, ["--no-elastic"])))
        ratios, begin = [], time.monotonic()
        for pair in range(options.pairs):
            seconds = {}
            for is_elastic in (pair % 2 == 0, pair % 2 == 1):
                seconds[is_elastic] = train(options, folder, steps, [] if is_elastic else ["--no-elastic"])
            ratios.append(seconds[True] / seconds[False])
            print(f"pair {pair + 1} of {options.pairs} after {time.monotonic() - begin:.0f} s: a step takes "
                  f"{1e3 * seconds[False]:.3f} ms with --no-elastic, {1e3 * seconds[True]:.3f} ms without it "
                  f"({100 * (ratios[-1] - 1):+.2f} %)", file=sys.stderr, flush=True)
    bounds = interval(ratios)
    if options.json:
        print(json.dumps({"pairs": options.pairs, "steps": steps, "ratios": ratios, "median": median(ratios),
                          "interval": bounds}))
        return
    shown = "" if bounds is None else f", 95 % interval {100 * (bounds[0] - 1):+.2f} to {100 * (bounds[1] - 1):+.2f} %"
    print(f"cost of replacement without a failure: median {100 * (median(ratios) - 1):+.2f} %{shown}, "
          f"{options.pairs} pairs of {steps} steps on {options.n} ranks")


if __name__ == "__main__":
    main()
