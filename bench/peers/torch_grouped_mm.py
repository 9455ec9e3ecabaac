#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch._grouped_mm on the shapes of bench/grouped_speed.cpp, beside one torch.mm of the same FLOPs. Prints a line a
product: microseconds, TFLOP/s, and the fraction of one product.

  python3 bench/peers/torch_grouped_mm.py --rows 4096 --width 2048 --hidden 1024 --experts 64
"""
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=4096, help="rows of an expert, on average")
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--hidden", type=int, default=1024)
parser.add_argument("--experts", type=int, default=64)
parser.add_argument("--skew", type=float, default=1, help="rows of the fullest expert over those of the emptiest")
parser.add_argument("--rounds", type=int, default=10)
options = parser.parse_args()


def microseconds(*functions):
    """The median time of each; they run in turn, so that all see the same clocks."""
    for _ in range(2):
        for function in functions:
            function()
    events = [torch.cuda.Event(True) for _ in range(options.rounds * len(functions) + 1)]
    events[0].record()
    for number, event in enumerate(events[1:]):
        functions[number % len(functions)]()
        event.record()
    torch.cuda.synchronize()
    times = [1e3 * a.elapsed_time(b) for a, b in zip(events, events[1:])]
    return [sorted(times[i::len(functions)])[options.rounds // 2] for i in range(len(functions))]


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def sizes():
    for expert in range(options.experts):
        at = 0.5 if options.experts == 1 else expert * 37 % options.experts / (options.experts - 1)
        share = 2 / (1 + options.skew) * (1 + (options.skew - 1) * at)
        yield int(options.rows * share / 128 + 0.5) * 128


ends = torch.tensor(list(sizes())).cumsum(0).to(device="cuda", dtype=torch.int32)
rows, width, hidden, experts = int(ends[-1]), options.width, options.hidden, options.experts
print(f"torch {torch.__version__}: {options.rows} rows an expert, skew {options.skew}: D {width}, F {hidden}, E {experts}")
warm = random(8192, 8192)  # a second of work: under load, power limits the clocks
for _ in range(700):
    warm @ warm
for name, n, k in [("up", 2 * hidden, width), ("down", width, hidden)]:
    x, dy, weight = random(rows, k), random(rows, n), random(experts, n, k) * 0.02
    flops = 2 * rows * n * k
    pairs = [("forward", lambda: torch._grouped_mm(x, weight.transpose(1, 2), offs=ends), lambda: x @ weight[0].t()),
             ("input gradient", lambda: torch._grouped_mm(dy, weight, offs=ends), lambda: dy @ weight[0]),
             ("weight gradient", lambda: torch._grouped_mm(dy.t(), x, offs=ends), lambda: dy.t() @ x)]
    for kind, grouped, dense in pairs:
        one, all_of = microseconds(dense, grouped)
        print(f"{name + ', ' + kind:26} {all_of:9.1f} us {flops / all_of / 1e6:7.1f} TFLOP/s, one product "
              f"{flops / one / 1e6:7.1f}: {one / all_of:.3f} of it", flush=True)
    del x, dy, weight
