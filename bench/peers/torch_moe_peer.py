#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch 2.x on one GPU, mixtures of experts: bf16, fp32 master weights, torch.compile, fused AdamW, no dropped tokens.

The products of the experts go through torch._grouped_mm. The first five steps are warm-up, the time is the median of
the others. Prints one JSON line a run; TFLOP/s count the active parameters, and attention under its mask.

  python3 bench/peers/torch_moe_peer.py --accumulate 8 olmoe-8l:4:compile      model:micro-batch:compile|eager
"""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WARMUP = 5
BF16 = torch.bfloat16
MODELS = {  # layers, hidden, heads, kv_heads, head_dim, experts, chosen, ffn of an expert, vocab, seq
    "olmoe-8l": (8, 2048, 16, 16, 128, 64, 8, 1024, 50304, 4096),  # half the depth of OLMoE-1B-7B
    "qwen3-30b-a3b-6l": (6, 2048, 32, 4, 128, 128, 8, 768, 151936, 4096),  # six layers of Qwen3-30B-A3B
    "mixtral-2l": (2, 4096, 32, 8, 128, 8, 2, 14336, 32000, 4096),  # two layers of Mixtral-8x7B
}


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Experts(nn.Module):
    def __init__(self, hidden, experts, chosen, ffn):
        super().__init__()
        self.experts, self.chosen = experts, chosen
        self.router = nn.Parameter(torch.randn(experts, hidden) * 0.02)
        self.gate_up = nn.Parameter(torch.randn(experts, hidden, 2 * ffn) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, ffn, hidden) * 0.02)

    def forward(self, x):  # [T, D]; returns the result and the loss that balances the experts
        tokens, hidden = x.shape
        copies = tokens * self.chosen
        probabilities = (x.float() @ self.router.t()).softmax(-1)
        weights, chosen = probabilities.topk(self.chosen, -1)
        flat = chosen.reshape(-1)
        order = flat.argsort(stable=True)
        token, expert = order // self.chosen, flat[order]
        counts = torch.zeros(self.experts, dtype=torch.int64, device=x.device)
        counts = counts.scatter_add(0, flat, torch.ones_like(flat))
        # Rows of an expert begin at multiples of eight, as _grouped_mm wants it.
        padded = (counts + 7) // 8 * 8
        ends = padded.cumsum(0)
        place = (ends - padded)[expert] + torch.arange(copies, device=x.device) - (counts.cumsum(0) - counts)[expert]
        rows = torch.zeros(copies + 8 * self.experts, hidden, dtype=BF16, device=x.device)
        rows = rows.index_copy(0, place, x[token])
        offsets = ends.to(torch.int32)
        gate, up = torch._grouped_mm(rows, self.gate_up.to(BF16), offs=offsets).chunk(2, -1)
        out = torch._grouped_mm(F.silu(gate) * up, self.down.to(BF16), offs=offsets)[place]
        out = out * weights.reshape(-1)[order].to(BF16)[:, None]
        balance = self.experts * (counts.float() / copies * probabilities.mean(0)).sum()
        total = torch.zeros(tokens, hidden, dtype=torch.float32, device=x.device)
        return total.index_add(0, token, out.float()).to(BF16), balance


class Block(nn.Module):
    def __init__(self, hidden, heads, kv_heads, head_dim, experts, chosen, ffn):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.norm1, self.norm2 = nn.Parameter(torch.ones(hidden)), nn.Parameter(torch.ones(hidden))
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * head_dim, bias=False)
        self.out = nn.Linear(heads * head_dim, hidden, bias=False)
        self.experts = Experts(hidden, experts, chosen, ffn)

    def forward(self, x, cos, sin):
        batch, seq, hidden = x.shape
        widths = [self.heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim]
        q, k, v = self.qkv(F.rms_norm(x, (hidden,), self.norm1.to(BF16), 1e-5)).split(widths, -1)
        q = rotate(q.view(batch, seq, self.heads, self.head_dim).transpose(1, 2), cos, sin)
        k = rotate(k.view(batch, seq, self.kv_heads, self.head_dim).transpose(1, 2), cos, sin)
        v = v.view(batch, seq, self.kv_heads, self.head_dim).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv_heads != self.heads)
        x = x + self.out(y.transpose(1, 2).reshape(batch, seq, -1))
        normed = F.rms_norm(x, (hidden,), self.norm2.to(BF16), 1e-5).reshape(batch * seq, hidden)
        y, balance = self.experts(normed)
        return x + y.view(batch, seq, hidden), balance


class LanguageModel(nn.Module):
    def __init__(self, layers, hidden, heads, kv_heads, head_dim, experts, chosen, ffn, vocab, seq):
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, kv_heads, head_dim, experts, chosen, ffn)
                                    for _ in range(layers))
        self.norm = nn.Parameter(torch.ones(hidden))
        self.head = nn.Linear(hidden, vocab, bias=False)
        angles = torch.outer(torch.arange(seq).float(), 10000.0 ** (-torch.arange(0, head_dim, 2).float() / head_dim))
        self.register_buffer("cos", angles.cos().to(BF16), persistent=False)
        self.register_buffer("sin", angles.sin().to(BF16), persistent=False)
        for p in (self.tokens.weight, self.head.weight):
            nn.init.normal_(p, std=0.02)

    def forward(self, tokens, labels):
        x, balance = self.tokens(tokens).to(BF16), 0.0
        for block in self.blocks:
            x, more = block(x, self.cos, self.sin)
            balance = balance + more
        logits = self.head(F.rms_norm(x, (x.shape[-1],), self.norm.to(BF16), 1e-5))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.reshape(-1)) + 0.01 * balance


def measure(name, micro_batch, mode, steps, accumulate):
    layers, hidden, heads, _, head_dim, experts, chosen, ffn, vocab, seq = MODELS[name]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch._dynamo.reset()
    with torch.device("cuda"):
        model = LanguageModel(*MODELS[name])
    parameters = sum(p.numel() for p in model.parameters())
    active = parameters - vocab * hidden - layers * 3 * hidden * ffn * (experts - chosen)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    function = torch.compile(model) if mode == "compile" else model
    data = torch.randint(0, vocab, (4, micro_batch, seq + 1), device="cuda")
    times, start_of_all = [], time.time()
    for i in range(steps):
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record()
        for j in range(accumulate):
            batch = data[(i + j) % 4]
            with torch.autocast("cuda", BF16):
                loss = function(batch[:, :-1], batch[:, 1:]) / accumulate
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    ms = sorted(times[WARMUP:])[(steps - WARMUP) // 2]
    rate = micro_batch * seq * accumulate / ms * 1e3
    flops = 6 * active + 6 * layers * heads * head_dim * seq
    return dict(model=name, mode=mode, mb=micro_batch, accumulate=accumulate, params=parameters, active=active,
                ms=round(ms, 2), tok_s=round(rate), tflops=round(rate * flops / 1e12),
                peak_gb=round(torch.cuda.max_memory_allocated() / 1e9, 2), loss=round(loss.item(), 3),
                setup_s=round(time.time() - start_of_all, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="model:micro-batch:compile|eager")
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches a step")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    for run in arguments.runs:
        name, micro_batch, mode = run.split(":")
        try:
            result = measure(name, int(micro_batch), mode, arguments.steps, arguments.accumulate)
        except Exception as error:  # out of memory, most often: the other runs go on
            result = dict(model=name, mode=mode, mb=int(micro_batch), error=f"{type(error).__name__}: {error}"[:300])
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
