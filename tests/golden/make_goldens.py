#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden losses, gradients and trained weights of five tiny models, computed by PyTorch.

Every model runs twice from the same float32 weights: in float64 (the golden values) and in float32 (whose distance
from float64 is the yardstick for ours). Each run is ten AdamW steps, every step on its own batch; the gradients are
those of the first step, before clipping, of the mean loss over valid tokens.

One file a model, tests/golden/<model>.safetensors:
  init.<name> F32, grad.<name> F64, final.<name> F64, tokens I32 [10, 26], labels I32 [10, 26] (-1: ignored)
and in __metadata__, each as JSON text:
  config     the model
  training   optimizer settings, batch shape, and per step: loss sum, loss mean, valid tokens, gradient norm
  distances  per parameter, of PyTorch's float32 run from its float64 run: grad_relative, grad_max, final_relative,
             final_max. relative is ||fp32 - fp64|| / ||fp64||, max is the largest absolute difference. A fused
             qkv.bias also has the entries `<name>[q]`, `[k]`, `[v]`. `zero_in_theory` marks a gradient that is zero
             but for rounding, where only grad_max and final_max mean anything.

Usage (Debian: apt-get install python3-torch):
  /usr/bin/python3 tests/golden/make_goldens.py           writes the files
  /usr/bin/python3 tests/golden/make_goldens.py --check   compares them with a fresh run
"""
import argparse
import json
import math
import pathlib
import struct
import sys

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit(f"make_goldens: {error}. Install PyTorch (Debian: apt-get install python3-torch) and run with "
             f"/usr/bin/python3.")

STEPS, SEQUENCES, LENGTH = 10, 2, 13
OPTIMIZER = dict(lr=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip_norm=1.0)


def config(family, **changes):
    values = dict(family=family, layers=2, hidden=24, heads=4, kv_heads=2, head_dim=6, ffn=56, vocab=61, max_seq=16,
                  norm_eps=1e-5, qk_norm_eps=0.0, tied_head=True, qkv_bias=False, qk_norm=False, rope_theta=10000.0,
                  rope_scaling=None)
    values.update(changes)
    return values


# Llama-3 scaling with original_max_position 256 puts one of the four frequencies in each of the kept and the blended
# band and two in the stretched band.
MODELS = {
    "gpt2": config("gpt2", heads=3, kv_heads=3, head_dim=8, qkv_bias=True, rope_theta=0.0),
    "llama_tied": config("llama"),
    "llama_untied": config("llama", heads=3, kv_heads=1, head_dim=8, tied_head=False, rope_theta=500000.0,
                           rope_scaling=dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                             original_max_position=256)),
    "qwen2": config("qwen2", norm_eps=1e-6, qkv_bias=True, rope_theta=1000000.0),
    "qwen3": config("qwen3", head_dim=8, norm_eps=1e-6, qk_norm_eps=1e-6, qk_norm=True, rope_theta=1000000.0),
}


# ---- the model -------------------------------------------------------------------------------------------------------


def parameter_shapes(c):
    """Name -> shape, in the order in which the random weights are drawn."""
    d, f, h, g, k = c["hidden"], c["ffn"], c["heads"], c["kv_heads"], c["head_dim"]
    gpt2 = c["family"] == "gpt2"
    shapes = {"embedding.tokens": (c["vocab"], d)}
    if gpt2:
        shapes["embedding.positions"] = (c["max_seq"], d)

    def norm(name):
        shapes[name + ".weight"] = (d,)
        if gpt2:
            shapes[name + ".bias"] = (d,)

    def linear(name, rows, columns, bias):
        shapes[name + ".weight"] = (rows, columns)
        if bias:
            shapes[name + ".bias"] = (rows,)

    for i in range(c["layers"]):
        block = f"blocks.{i}."
        norm(block + "norm1")
        linear(block + "qkv", (h + 2 * g) * k, d, c["qkv_bias"])
        if c["qk_norm"]:
            shapes[block + "q_norm.weight"] = (k,)
            shapes[block + "k_norm.weight"] = (k,)
        linear(block + "out", d, h * k, gpt2)
        norm(block + "norm2")
        linear(block + ("up" if gpt2 else "gate_up"), f if gpt2 else 2 * f, d, gpt2)
        linear(block + "down", d, f, gpt2)
    norm("head.norm")
    if not c["tied_head"]:
        shapes["head.weight"] = (c["vocab"], d)
    return shapes


def is_norm_weight(name):
    return "norm" in name.split(".")[-2] and name.endswith(".weight")


def draw_weights(c, random):
    weights = {}
    for name, shape in parameter_shapes(c).items():
        noise = random.standard_normal(shape)
        weights[name] = (1 + 0.1 * noise if is_norm_weight(name) else 0.15 * noise).astype(np.float32)
    return weights


def draw_batches(c, random):
    """Tokens and next-token labels [STEPS, SEQUENCES * LENGTH]; about one label in seven is -1, and at step 3 all
    labels of the second sequence are."""
    text = random.randint(0, c["vocab"], (STEPS, SEQUENCES, LENGTH + 1))
    labels = np.where(random.random_sample((STEPS, SEQUENCES, LENGTH)) < 1 / 7, -1, text[:, :, 1:])
    labels[3, 1] = -1
    tokens = text[:, :, :-1]
    return (tokens.reshape(STEPS, -1).astype(np.int32), labels.reshape(STEPS, -1).astype(np.int32))


def rope_frequencies(c, dtype):
    k = c["head_dim"]
    frequencies = 1.0 / (c["rope_theta"] ** (torch.arange(0, k, 2).to(dtype) / k))
    s = c["rope_scaling"]
    if s is None:
        return frequencies
    periods = s["original_max_position"] / (2 * math.pi / frequencies)  # turns within the original context
    blend = ((periods - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])).clamp(0, 1)
    return (1 - blend) * frequencies / s["factor"] + blend * frequencies


def rotate(x, cos, sin):  # x [B, H, T, K]; halves (x1, x2) turn as complex numbers x1 + i x2
    x1, x2 = x.chunk(2, -1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), -1)


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def loss_sum(c, w, tokens, labels):
    """The sum of the token losses over valid labels. tokens, labels [B * T]."""
    h, g, k = c["heads"], c["kv_heads"], c["head_dim"]
    dtype = w["embedding.tokens"].dtype
    gpt2 = c["family"] == "gpt2"
    positions = torch.arange(LENGTH)

    def norm(x, name):
        if gpt2:
            return F.layer_norm(x, (c["hidden"],), w[name + ".weight"], w[name + ".bias"], c["norm_eps"])
        return rms_norm(x, w[name + ".weight"], c["norm_eps"])

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    x = w["embedding.tokens"][tokens.view(SEQUENCES, LENGTH)]  # [B, T, D]
    if gpt2:
        x = x + w["embedding.positions"][positions]
    else:
        angles = torch.outer(positions.to(dtype), rope_frequencies(c, dtype))
        cos, sin = angles.cos(), angles.sin()
    mask = torch.full((LENGTH, LENGTH), float("-inf"), dtype=dtype).triu(1)

    for i in range(c["layers"]):
        block = f"blocks.{i}."
        fused = linear(norm(x, block + "norm1"), block + "qkv")
        q, key, v = (t.reshape(SEQUENCES, LENGTH, -1, k).transpose(1, 2)
                     for t in fused.split([h * k, g * k, g * k], -1))  # [B, H or G, T, K]
        if c["qk_norm"]:
            q = rms_norm(q, w[block + "q_norm.weight"], c["qk_norm_eps"])
            key = rms_norm(key, w[block + "k_norm.weight"], c["qk_norm_eps"])
        if not gpt2:
            q, key = rotate(q, cos, sin), rotate(key, cos, sin)
        key, v = (t.repeat_interleave(h // g, 1) for t in (key, v))
        attended = (q @ key.transpose(-1, -2) * k ** -0.5 + mask).softmax(-1) @ v
        x = x + linear(attended.transpose(1, 2).reshape(SEQUENCES, LENGTH, h * k), block + "out")
        y = norm(x, block + "norm2")
        if gpt2:
            y = F.gelu(linear(y, block + "up"), approximate="tanh")
        else:
            gate, up = linear(y, block + "gate_up").chunk(2, -1)
            y = F.silu(gate) * up
        x = x + linear(y, block + "down")

    head = w["embedding.tokens"] if c["tied_head"] else w["head.weight"]
    logits = F.linear(norm(x, "head.norm"), head)
    return F.cross_entropy(logits.view(-1, c["vocab"]), labels, ignore_index=-1, reduction="sum")


# ---- one run ---------------------------------------------------------------------------------------------------------


def train(c, init, tokens, labels, dtype):
    """Returns (gradients of step 0, final weights, one record a step), arrays in `dtype`."""
    w = {name: torch.tensor(value).to(dtype).requires_grad_() for name, value in init.items()}
    o = OPTIMIZER
    optimizer = torch.optim.AdamW(
        [dict(params=[p for p in w.values() if p.ndim >= 2], weight_decay=o["weight_decay"]),
         dict(params=[p for p in w.values() if p.ndim < 2], weight_decay=0.0)],
        lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    first_gradients, records = None, []
    for step in range(STEPS):
        target = torch.tensor(labels[step], dtype=torch.int64)
        total = loss_sum(c, w, torch.tensor(tokens[step], dtype=torch.int64), target)
        valid = int((target >= 0).sum())
        optimizer.zero_grad()
        (total / valid).backward()
        if step == 0:
            first_gradients = {name: p.grad.numpy().copy() for name, p in w.items()}
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in w.values()))
        factor = min(1.0, o["clip_norm"] / norm.item())
        for p in w.values():
            p.grad *= factor
        optimizer.step()
        records.append(dict(loss_sum=total.item(), loss_mean=total.item() / valid, valid_tokens=valid,
                            grad_norm=norm.item()))
    return first_gradients, {name: p.detach().numpy().copy() for name, p in w.items()}, records


def distance(single, golden):
    difference = single.astype(np.float64) - golden
    size = np.linalg.norm(golden)
    return (float(np.linalg.norm(difference) / size) if size > 0 else 0.0, float(np.abs(difference).max()))


def distances(c, single, golden):
    """single, golden: (gradients, finals) of the two runs."""
    result = {}

    def add(key, name, rows, zero_in_theory):
        grad = distance(single[0][name][rows], golden[0][name][rows])
        final = distance(single[1][name][rows], golden[1][name][rows])
        result[key] = dict(grad_relative=grad[0], grad_max=grad[1], final_relative=final[0], final_max=final[1])
        if zero_in_theory:
            result[key]["zero_in_theory"] = True

    h, g, k = c["heads"], c["kv_heads"], c["head_dim"]
    for name in golden[0]:
        add(name, name, slice(None), False)
        if name.endswith("qkv.bias"):
            add(name + "[q]", name, slice(0, h * k), False)
            # Without RoPE a key bias adds the same number to all scores of a query, which softmax does not see.
            add(name + "[k]", name, slice(h * k, (h + g) * k), c["family"] == "gpt2")
            add(name + "[v]", name, slice((h + g) * k, None), False)
    return result


def make(model):
    """Returns (tensors: name -> array, metadata: name -> text)."""
    c = MODELS[model]
    random = np.random.RandomState(1000 + list(MODELS).index(model))
    init = draw_weights(c, random)
    tokens, labels = draw_batches(c, random)
    *golden, records = train(c, init, tokens, labels, torch.float64)
    *single, single_records = train(c, init, tokens, labels, torch.float32)
    tensors = {"tokens": tokens, "labels": labels}
    for name in init:
        tensors["init." + name] = init[name]
        tensors["grad." + name] = golden[0][name]
        tensors["final." + name] = golden[1][name]
    training = dict(OPTIMIZER, steps=STEPS, sequences=SEQUENCES, length=LENGTH, decayed="parameters of ndim >= 2",
                    golden=records, pytorch_fp32=single_records)
    return tensors, {"format": "pt", "config": json.dumps(c), "training": json.dumps(training),
                     "distances": json.dumps(distances(c, single, golden))}


# ---- safetensors -----------------------------------------------------------------------------------------------------

DTYPES = {"I32": np.dtype("<i4"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8")}  # in writing order, backwards


def write(path, tensors, metadata):
    rank = {dtype: i for i, dtype in enumerate(DTYPES.values())}
    name_of = {dtype: name for name, dtype in DTYPES.items()}
    header, chunks, offset = {"__metadata__": dict(sorted(metadata.items()))}, [], 0
    for name in sorted(tensors, key=lambda n: (-rank[tensors[n].dtype], n)):
        data = np.ascontiguousarray(tensors[name]).tobytes()
        header[name] = dict(dtype=name_of[tensors[name].dtype], shape=list(tensors[name].shape),
                            data_offsets=[offset, offset + len(data)])
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def read(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    metadata = header.pop("__metadata__")
    data = raw[8 + size:]
    return {name: np.frombuffer(data[slice(*entry["data_offsets"])], DTYPES[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items()}, metadata


def keys_of(value):
    """The nested keys of a JSON value, without its leaves."""
    if isinstance(value, dict):
        return {key: keys_of(inner) for key, inner in value.items()}
    return [keys_of(inner) for inner in value] if isinstance(value, list) else None


def differences(path, tensors, metadata):
    """What in the file at `path` is not what this run made, in words. Weights, tokens and the config must be equal;
    float64 tensors may differ by 1e-9 of their norm; of losses and distances only the keys are compared exactly,
    the golden losses to 1e-9."""
    if not path.exists():
        return ["the file does not exist"]
    found, found_metadata = read(path)
    if set(found) != set(tensors):
        return [f"tensors differ: {sorted(set(found) ^ set(tensors))}"]
    if set(found_metadata) != set(metadata):
        return [f"metadata keys differ: {sorted(set(found_metadata) ^ set(metadata))}"]
    problems = []
    for name, made in tensors.items():
        if (found[name].dtype, found[name].shape) != (made.dtype, made.shape):
            problems.append(f"{name}: {found[name].dtype}{found[name].shape}, not {made.dtype}{made.shape}")
        elif made.dtype != np.float64:
            if not np.array_equal(found[name], made):
                problems.append(f"{name}: values differ")
        elif np.linalg.norm(found[name] - made) > 1e-9 * np.linalg.norm(made):
            problems.append(f"{name}: relative distance {distance(found[name], made)[0]:.3g}, allowed 1e-9")
    for key in ("config", "training", "distances"):
        left, right = json.loads(found_metadata[key]), json.loads(metadata[key])
        if keys_of(left) != keys_of(right) or (key == "config" and left != right):
            problems.append(f"metadata {key} differs")
        elif key == "training":
            for step, (a, b) in enumerate(zip(left["golden"], right["golden"])):
                if any(abs(a[field] - b[field]) > 1e-9 * abs(b[field]) for field in b):
                    problems.append(f"step {step}: {a}, not {b}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare the stored files with a fresh run")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    failed = False
    for model in MODELS:
        path = arguments.folder / f"{model}.safetensors"
        tensors, metadata = make(model)
        parameters = sum(a.size for name, a in tensors.items() if name.startswith("init."))
        if arguments.check:
            problems = differences(path, tensors, metadata)
            failed = failed or bool(problems)
            print(f"{path.name}: {'; '.join(problems) or 'same'}")
        else:
            write(path, tensors, metadata)
            print(f"{path.name}: {parameters} parameters, {path.stat().st_size} bytes")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
