#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the CPU, fp32: training steps of the small models that bench/compare_torch_cpu.sh compares.

Written for PyTorch 1.13 (Debian's python3-torch), so attention is written out. Every model trains eight steps on one
random batch; the first two are warm-up, the time is the median of the others. Prints one JSON line a model.

  /usr/bin/python3 bench/peers/torch_cpu_peer.py 2 gpt2-10m llama-15m      threads, models (default: all)
"""
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS, WARMUP = 8, 2
MODELS = {  # layers, hidden, heads, kv_heads, ffn, vocab, seq, batch, style
    "gpt2-10m": (6, 384, 6, 6, 1536, 256, 256, 8, "gpt2"),
    "llama-15m": (6, 384, 6, 2, 1024, 4096, 256, 8, "llama"),
    "gpt2-124m": (12, 768, 12, 12, 3072, 50304, 256, 2, "gpt2"),
}


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def make_norm(width, style):
    return nn.LayerNorm(width) if style == "gpt2" else RMSNorm(width)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Block(nn.Module):
    def __init__(self, hidden, heads, kv_heads, ffn, seq, style):
        super().__init__()
        self.style, self.heads, self.kv_heads, self.head_dim = style, heads, kv_heads, hidden // heads
        bias = style == "gpt2"
        self.norm1, self.norm2 = make_norm(hidden, style), make_norm(hidden, style)
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.head_dim, bias=bias)
        self.out = nn.Linear(hidden, hidden, bias=bias)
        self.up = nn.Linear(hidden, ffn if bias else 2 * ffn, bias=bias)  # Llama: gate and up
        self.down = nn.Linear(ffn, hidden, bias=bias)
        self.register_buffer("mask", torch.full((seq, seq), float("-inf")).triu(1), persistent=False)

    def forward(self, x, cos, sin):
        batch, seq, hidden = x.shape
        widths = [self.heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim]
        q, k, v = (t.view(batch, seq, -1, self.head_dim).transpose(1, 2)
                   for t in self.qkv(self.norm1(x)).split(widths, -1))
        if self.style == "llama":
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            group = self.heads // self.kv_heads
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = ((q @ k.transpose(-1, -2)) * self.head_dim ** -0.5 + self.mask[:seq, :seq]).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(batch, seq, hidden))
        y = self.up(self.norm2(x))
        if self.style == "gpt2":
            return x + self.down(F.gelu(y))
        gate, up = y.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class LanguageModel(nn.Module):
    def __init__(self, layers, hidden, heads, kv_heads, ffn, vocab, seq, style):
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(seq, hidden) if style == "gpt2" else None
        self.blocks = nn.ModuleList(Block(hidden, heads, kv_heads, ffn, seq, style) for _ in range(layers))
        self.norm = make_norm(hidden, style)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.tokens.weight
        head_dim = hidden // heads
        angles = torch.outer(torch.arange(seq).float(), 10000.0 ** (-torch.arange(0, head_dim, 2).float() / head_dim))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, labels):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.reshape(-1))


def measure(name):
    *sizes, batch, style = MODELS[name]
    layers, hidden, vocab, seq = sizes[0], sizes[1], sizes[5], sizes[6]
    model = LanguageModel(*sizes, style)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, foreach=True)
    data = torch.randint(0, vocab, (batch, seq + 1))
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        loss = model(data[:, :-1], data[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
    seconds = sorted(times[WARMUP:])[(STEPS - WARMUP) // 2]
    parameters = sum(p.numel() for p in model.parameters())
    flops = (6 * parameters + 12 * layers * hidden * seq) * batch * seq
    return dict(model=name, threads=torch.get_num_threads(), params=parameters, tok_s=round(batch * seq / seconds),
                s_step=round(seconds, 3), gflops=round(flops / seconds / 1e9, 1), loss=round(loss.item(), 3))


def main():
    threads, names = (sys.argv[1] if len(sys.argv) > 1 else "2"), sys.argv[2:] or list(MODELS)
    unknown = [name for name in names if name not in MODELS]
    if not threads.isdigit() or unknown:
        sys.exit(f"usage: torch_cpu_peer.py [threads [model ...]]; models are {', '.join(MODELS)}")
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    for name in names:
        print(json.dumps(measure(name)), flush=True)


if __name__ == "__main__":
    main()
