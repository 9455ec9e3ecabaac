#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch 2.x on one GPU in fp8: torch_peer.py with the linear maps of the blocks in fp8.

One scale a tensor, from the values at hand (current scaling); E4M3 forward, E5M2 gradients; the head in bf16.

  python3 bench/peers/torch_fp8_peer.py llama-1b:8:compile      model:micro-batch:compile|eager
"""
import torch
import torch.nn as nn

import torch_peer

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def quantize(x, dtype):
    """Returns (x in `dtype`, the factor that undoes its scale)."""
    limits = torch.finfo(dtype)
    scale = limits.max / x.abs().amax().float().clamp(min=1e-12)
    return (x.float() * scale).clamp(limits.min, limits.max).to(dtype), scale.reciprocal()


def by_columns(x):
    return x.t().contiguous().t()


class Product(torch.autograd.Function):
    """y = x w^T, x [T, K], w [N, K]."""

    @staticmethod
    def forward(context, x, w):
        xq, x_scale = quantize(x, E4M3)
        wq, w_scale = quantize(w, E4M3)
        context.save_for_backward(xq, x_scale, wq, w_scale)
        return torch._scaled_mm(xq, wq.t(), x_scale, w_scale, out_dtype=torch.bfloat16, use_fast_accum=True)

    @staticmethod
    def backward(context, dy):
        xq, x_scale, wq, w_scale = context.saved_tensors
        dyq, dy_scale = quantize(dy, E5M2)
        dx = torch._scaled_mm(dyq, by_columns(wq), dy_scale, w_scale, out_dtype=torch.bfloat16, use_fast_accum=False)
        dw = torch._scaled_mm(dyq.t().contiguous(), by_columns(xq), dy_scale, x_scale, out_dtype=torch.bfloat16,
                              use_fast_accum=False)
        return dx, dw.float()


class Fp8Linear(nn.Linear):
    def forward(self, x):
        y = Product.apply(x.reshape(-1, x.shape[-1]).to(torch.bfloat16), self.weight).view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias.to(torch.bfloat16)


class Fp8Block(torch_peer.Block):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        for module in self.children():
            if isinstance(module, nn.Linear):
                module.__class__ = Fp8Linear


if __name__ == "__main__":
    torch_peer.main(Fp8Block)
