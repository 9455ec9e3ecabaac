#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a GPU can reach: matrix products (bf16, fp8) and causal attention, on random data. Prints a line a shape.

  python3 bench/peers/gpu_ceilings.py
"""
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

PRODUCTS = [(8192, 8192, 8192), (16384, 2048, 8192), (16384, 8192, 2048), (32768, 2304, 768), (32768, 128256, 2048),
            (16384, 28672, 4096)]  # m, n, k
ATTENTION = [(32, 12, 1024, 64), (4, 32, 4096, 64), (2, 32, 8192, 128)]  # sequences, heads, length, head size


def milliseconds(function, rounds=20, warmup=5):
    for _ in range(warmup):
        function()
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(True), torch.cuda.Event(True)
    start.record()
    for _ in range(rounds):
        function()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / rounds


def random(*shape, **options):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, **options)


def products():
    one = torch.ones((), device="cuda")
    for m, n, k in PRODUCTS:
        a, b = random(m, k), random(n, k)
        a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)

        def fp8(fast):
            return torch._scaled_mm(a8, b8.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=fast)

        times = milliseconds(lambda: a @ b.t()), milliseconds(lambda: fp8(True)), milliseconds(lambda: fp8(False))
        bf16, fast, exact = (round(2 * m * n * k / 1e9 / ms) for ms in times)
        print(f"product {m} x {n} x {k}: bf16 {bf16}, fp8 {fast}, fp8 with fp32 sums {exact} TFLOP/s", flush=True)


def attention():
    for sequences, heads, length, size in ATTENTION:
        q, k, v = (random(sequences, heads, length, size, requires_grad=True) for _ in range(3))

        def forward():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            with sdpa_kernel(backend):
                forward_ms = milliseconds(forward)
                out = forward()
                gradient = torch.randn_like(out)
                backward_ms = milliseconds(lambda: out.backward(gradient, retain_graph=True))
            flops = 2 * sequences * heads * length * length * size / 1e9  # under the mask
            print(f"attention {sequences} x {heads} x {length} x {size} {backend.name}: forward "
                  f"{flops / forward_ms:.0f}, backward {2.5 * flops / backward_ms:.0f} TFLOP/s", flush=True)


if __name__ == "__main__":
    products()
    attention()
