#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch 2.x on one GPU: bf16 autocast, fp32 master weights, torch.compile, fused AdamW, gradients clipped at 1.

Every model trains on random batches; the first four steps are warm-up, the time is the median of the others. Prints one
JSON line a run: tokens/s, ms a step, MFU, peak memory, time until the end of the last step.

  python3 bench/peers/torch_peer.py gpt2-124m:64:compile llama-1b:8:eager      model:micro-batch:compile|eager
"""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WARMUP = 4
PEAK = 989e12  # H100 and H200, dense bf16
MODELS = {  # layers, hidden, heads, kv_heads, ffn, vocab, seq, style; bench/models/*.toml has the same
    "gpt2-124m": (12, 768, 12, 12, 3072, 50304, 1024, "gpt2"),
    "gpt2-1.5b": (48, 1600, 25, 25, 6400, 50304, 1024, "gpt2"),
    "llama-1b": (16, 2048, 32, 8, 8192, 128256, 4096, "llama"),  # the shape of Llama-3.2-1B
    "llama-1b-32k": (16, 2048, 32, 8, 8192, 32000, 4096, "llama"),
    "llama-8b-4l": (4, 4096, 32, 8, 14336, 128256, 8192, "llama"),  # four layers of Llama-3-8B
    "llama-3b": (28, 3072, 24, 8, 8192, 128256, 4096, "llama"),
}


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-5)


def make_norm(width, style):
    return nn.LayerNorm(width) if style == "gpt2" else RMSNorm(width)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Block(nn.Module):
    def __init__(self, hidden, heads, kv_heads, ffn, style):
        super().__init__()
        self.style, self.heads, self.kv_heads, self.head_dim = style, heads, kv_heads, hidden // heads
        bias = style == "gpt2"
        self.norm1, self.norm2 = make_norm(hidden, style), make_norm(hidden, style)
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.head_dim, bias=bias)
        self.out = nn.Linear(hidden, hidden, bias=bias)
        self.up = nn.Linear(hidden, ffn if bias else 2 * ffn, bias=bias)  # Llama: gate and up
        self.down = nn.Linear(ffn, hidden, bias=bias)

    def forward(self, x, cos, sin):
        batch, seq, hidden = x.shape
        widths = [self.heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim]
        q, k, v = self.qkv(self.norm1(x)).split(widths, -1)
        q = q.view(batch, seq, self.heads, self.head_dim).transpose(1, 2)
        k = k.view(batch, seq, self.kv_heads, self.head_dim).transpose(1, 2)
        v = v.view(batch, seq, self.kv_heads, self.head_dim).transpose(1, 2)
        if self.style == "llama":
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv_heads != self.heads)
        x = x + self.out(y.transpose(1, 2).reshape(batch, seq, hidden))
        y = self.up(self.norm2(x))
        if self.style == "gpt2":
            return x + self.down(F.gelu(y, approximate="tanh"))
        gate, up = y.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class LanguageModel(nn.Module):
    def __init__(self, layers, hidden, heads, kv_heads, ffn, vocab, seq, style, block=Block):
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(seq, hidden) if style == "gpt2" else None
        self.blocks = nn.ModuleList(block(hidden, heads, kv_heads, ffn, style) for _ in range(layers))
        self.norm = make_norm(hidden, style)
        self.head = nn.Linear(hidden, vocab, bias=False)
        if style == "gpt2":
            self.head.weight = self.tokens.weight
        head_dim = hidden // heads
        angles = torch.outer(torch.arange(seq).float(), 500000.0 ** (-torch.arange(0, head_dim, 2).float() / head_dim))
        self.register_buffer("cos", angles.cos().bfloat16(), persistent=False)
        self.register_buffer("sin", angles.sin().bfloat16(), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, labels):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        x = x.bfloat16()
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, self.head.weight.shape[0]).float(), labels.reshape(-1))

    def product_parameters(self):
        """Parameters that are factors of matrix products: without the embeddings, unless the head is tied to one."""
        count = sum(p.numel() for p in self.parameters())
        if self.head.weight is not self.tokens.weight:
            count -= self.tokens.weight.numel()
        if self.positions is not None:
            count -= self.positions.weight.numel()
        return count


def measure(name, micro_batch, mode, steps, block):
    sizes = MODELS[name]
    layers, hidden, vocab, seq = sizes[0], sizes[1], sizes[5], sizes[6]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch._dynamo.reset()
    with torch.device("cuda"):
        model = LanguageModel(*sizes, block=block)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    function = torch.compile(model) if mode == "compile" else model
    data = torch.randint(0, vocab, (4, micro_batch, seq + 1), device="cuda")
    times, start_of_all = [], time.time()
    for i in range(steps):
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record()
        batch = data[i % 4]
        with torch.autocast("cuda", torch.bfloat16):
            loss = function(batch[:, :-1], batch[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    ms = sorted(times[WARMUP:])[(steps - WARMUP) // 2]
    rate = micro_batch * seq / ms * 1e3
    products, attention = 6 * model.product_parameters(), layers * hidden * seq
    return dict(model=name, mode=mode, mb=micro_batch, params=sum(p.numel() for p in model.parameters()),
                ms=round(ms, 2), tok_s=round(rate),
                mfu_palm=round(rate * (products + 12 * attention) / PEAK, 4),  # attention in full
                mfu_causal=round(rate * (products + 6 * attention) / PEAK, 4),
                peak_gb=round(torch.cuda.max_memory_allocated() / 1e9, 2), loss=round(loss.item(), 3),
                setup_s=round(time.time() - start_of_all, 1))


def main(block=Block):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="model:micro-batch:compile|eager")
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    for run in arguments.runs:
        name, micro_batch, mode = run.split(":")
        try:
            result = measure(name, int(micro_batch), mode, arguments.steps, block)
        except Exception as error:  # out of memory, most often: the other runs go on
            result = dict(model=name, mode=mode, mb=int(micro_batch), error=f"{type(error).__name__}: {error}"[:200])
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
