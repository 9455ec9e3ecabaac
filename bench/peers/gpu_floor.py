#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The counted floor of one training step on a GPU: what its parts take if nothing else were there.

The sum of its matrix products (forward, gradient of the input, gradient of the weight) at the rate that the library
reaches on random data, attention through cuDNN, the bytes of all other operations at copy bandwidth, and one pass of
AdamW. Times are taken after a second of load, at the clocks that the power limit leaves a step. The library takes its
first choice of algorithm, so a better choice can go below the floor. fp8 swaps the rate of the products of the blocks;
the head stays in bf16. Prints one JSON line a model, times in ms. Without names: all models.

  python3 bench/peers/gpu_floor.py llama-1b llama-3b
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpu_ceilings import milliseconds, random

COPY_BYTES_PER_SECOND = 4.3e12  # H200, read and write
ADAMW_BYTES_PER_PARAMETER = 30
HEAD_ROWS = 8192
MODELS = {  # layers, hidden, heads, kv_heads, ffn, vocab, seq, micro-batch, gated; those of torch_peer.py
    "gpt2-124m": (12, 768, 12, 12, 3072, 50304, 1024, 64, False),
    "gpt2-1.5b": (48, 1600, 25, 25, 6400, 50304, 1024, 16, False),
    "llama-1b": (16, 2048, 32, 8, 8192, 128256, 4096, 8, True),
    "llama-8b-4l": (4, 4096, 32, 8, 14336, 128256, 8192, 2, True),
    "llama-3b": (28, 3072, 24, 8, 8192, 128256, 4096, 4, True),
}


def heat(seconds=1.0):
    """Keeps the GPU at its power limit for so long."""
    a, b = random(8192, 8192), random(8192, 8192)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            a @ b
        torch.cuda.synchronize()


def timed(function):
    """The time of one call between many, for a tenth of a second: what ran before has left the clocks of a step."""
    first = milliseconds(function, rounds=3, warmup=2)
    return milliseconds(function, rounds=max(10, int(100 / first)), warmup=1)


def linear_ms(m, k, n, fp8=False):
    """y [m, n] = x [m, k] w [n, k]^T, dx = dy w, dw = dy^T x."""
    x, w, dy = random(m, k), random(n, k), random(m, n)
    if not fp8:
        return timed(lambda: x @ w.t()) + timed(lambda: dy @ w) + timed(lambda: dy.t() @ x)
    one = torch.ones((), device="cuda")

    def cast(tensor):
        return tensor.contiguous().to(torch.float8_e4m3fn)

    def product(a, b):
        return torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)

    pairs = (cast(x), cast(w)), (cast(dy), cast(w.t())), (cast(dy.t()), cast(x.t()))
    return sum(timed(lambda a=a, b=b: product(a, b)) for a, b in pairs)


def attention_ms(sequences, heads, length, size):
    q, k, v = (random(sequences, heads, length, size).requires_grad_() for _ in range(3))

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        total = timed(forward)
        out = forward()
        gradient = random(*out.shape)
        return total + timed(lambda: out.backward(gradient, retain_graph=True))


def floor(name):
    layers, hidden, heads, kv_heads, ffn, vocab, seq, batch, gated = MODELS[name]
    size, tokens = hidden // heads, batch * seq
    qkv, up = (heads + 2 * kv_heads) * size, (2 if gated else 1) * ffn
    result = dict(model=name, mb=batch, seq=seq)
    heat()
    for tag, fp8 in (("bf16", False), ("fp8", True)):
        try:
            pairs = (hidden, qkv), (hidden, hidden), (hidden, up), (ffn, hidden)
            result["gemm_" + tag] = round(layers * sum(linear_ms(tokens, k, n, fp8) for k, n in pairs), 1)
        except RuntimeError as error:  # shapes or GPUs without fp8 products
            result["gemm_" + tag] = str(error)[:60]
    torch.cuda.empty_cache()
    result["head_bf16"] = round(linear_ms(HEAD_ROWS, hidden, vocab) * tokens / HEAD_ROWS, 1)
    result["attention"] = round(layers * attention_ms(batch, heads, seq, size), 1)
    parameters = layers * (qkv * hidden + hidden * hidden + (3 if gated else 2) * ffn * hidden)
    parameters += vocab * hidden * (2 if gated else 1)
    # Elements that are read or written per layer and token: two norms with residual forward (3 each) and backward
    # (5 each), RoPE on q, k, v forward and backward, the activation forward and backward.
    activation = (2 * ffn + ffn) + (ffn + 2 * ffn + 2 * ffn) if gated else (ffn + ffn) + (ffn + ffn + ffn)
    elements = layers * tokens * (2 * 3 * hidden + 2 * 5 * hidden + 4 * qkv + activation)
    result["elementwise_at_4.3TBs"] = round(2 * elements / COPY_BYTES_PER_SECOND * 1e3, 1)
    result["adamw_30B_per_param"] = round(parameters * ADAMW_BYTES_PER_PARAMETER / COPY_BYTES_PER_SECOND * 1e3, 1)
    parts = ("gemm_bf16", "head_bf16", "attention", "elementwise_at_4.3TBs", "adamw_30B_per_param")
    total = sum(result[part] for part in parts)
    result.update(floor_ms_bf16=round(total, 1), floor_tok_s_bf16=round(tokens / total * 1e3))
    if isinstance(result["gemm_fp8"], float):
        result["floor_tok_s_fp8"] = round(tokens / (total - result["gemm_bf16"] + result["gemm_fp8"]) * 1e3)
    return result


def main():
    names = sys.argv[1:] or list(MODELS)
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        sys.exit(f"gpu_floor: unknown model {unknown[0]}; known are {', '.join(MODELS)}")
    for name in names:
        print(json.dumps(floor(name)), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
