#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Muon as Trireme defines it with PyTorch's own optimizer, in double precision.

The loops of tests/engine/muon_test.cpp are the definition; this script writes them with PyTorch
tensors and runs 50 steps beside torch.optim.Muon (PyTorch 2.9 or newer; skipped with a message
otherwise) on matrices of all shapes that a block has. PyTorch computes its iterations in bf16
unless they are replaced, so the script replaces that one function by the same loop in fp64: what is
compared is momentum, Nesterov, the factor of the learning rate, and weight decay.

  python3 tests/golden/muon_check.py        exit code 0: equal within 1e-12
"""
import sys

import torch

A, B, C = 3.4445, -4.7750, 2.0315


def newton_schulz(g, steps=5, eps=1e-7):
    x = g.double()
    is_tall = x.shape[0] > x.shape[1]
    if is_tall:
        x = x.T
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        a = x @ x.T
        x = A * x + (B * a + C * a @ a) @ x
    return x.T if is_tall else x


def step(p, m, g, lr, decay, momentum=0.95, nesterov=True):
    m.mul_(momentum).add_(g)
    u = g + momentum * m if nesterov else m
    factor = 0.2 * max(p.shape) ** 0.5
    p.sub_(lr * (factor * newton_schulz(u) + decay * p))


def main():
    if not hasattr(torch.optim, "Muon"):
        print(f"torch {torch.__version__} has no Muon; skipped")
        return 0
    module = sys.modules[torch.optim.Muon.__init__.__module__]  # not that of the public name
    module._zeropower_via_newtonschulz = lambda g, c, steps, eps: newton_schulz(g, steps, eps)
    torch.manual_seed(1)
    largest = 0.0
    for shape in [(32, 24), (16, 24), (24, 32), (56, 24), (24, 56), (64, 64)]:
        start = torch.randn(shape, dtype=torch.float64)
        ours, m = start.clone(), torch.zeros(shape, dtype=torch.float64)
        theirs = torch.nn.Parameter(start.clone())
        optimizer = torch.optim.Muon([theirs], lr=0.01, weight_decay=0.1, momentum=0.95,
                                     nesterov=True, ns_steps=5, adjust_lr_fn="match_rms_adamw")
        for _ in range(50):
            g = torch.randn(shape, dtype=torch.float64)
            step(ours, m, g, 0.01, 0.1)
            theirs.grad = g.clone()
            optimizer.step()
        largest = max(largest, (ours - theirs.detach()).abs().max().item())
    print(f"torch {torch.__version__}: largest difference of a weight after 50 steps {largest:.3g}")
    return 0 if largest < 1e-12 else 1


if __name__ == "__main__":
    sys.exit(main())
