#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden losses, gradients and trained weights of five tiny models, computed by PyTorch.

Every model runs in float64 from float32 weights (the golden values), and 32 times more with a random error of
float32's size in every operation (rounding.py): their spread around the golden values is the yardstick for a program
that computes in float32. Each run is ten AdamW steps, every step on its own batch; the gradients are those of the
first step, before clipping, of the mean loss over valid tokens.

One file a model, tests/golden/<model>.safetensors:
  init.<name> F32, grad.<name> F64, final.<name> F64, tokens I32 [10, 26], labels I32 [10, 26] (-1: ignored)
  grad_spread.<name> F32, final_spread.<name> F32: the root mean square of the 32 differences, element by element
and in __metadata__, each as JSON text:
  config     the model
  training   optimizer settings, batch shape, and per step: loss sum, loss mean, valid tokens, gradient norm, and the
             spread of the loss mean
  pytorch    of PyTorch's own float32 run, its largest difference over the spread, and the root mean square of that
             quotient, for comparison: grad_largest, grad_rms, final_largest, final_rms, loss_largest

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

sys.dont_write_bytecode = True
from rounding import RandomRounding

STEPS, SEQUENCES, LENGTH = 10, 2, 13
ROUNDED_RUNS = 32
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


def loss_sum(c, w, tokens, labels, elementary):
    """The sum of the token losses over valid labels. tokens, labels [B * T]. `elementary`: without PyTorch's fused
    functions, so that rounding.py sees every operation."""
    h, g, k = c["heads"], c["kv_heads"], c["head_dim"]
    dtype = w["embedding.tokens"].dtype
    gpt2 = c["family"] == "gpt2"
    positions = torch.arange(LENGTH)

    def norm(x, name):
        if gpt2 and elementary:
            x = x - x.mean(-1, keepdim=True)
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + c["norm_eps"]) * w[name + ".weight"] + w[name + ".bias"]
        if gpt2:
            return F.layer_norm(x, (c["hidden"],), w[name + ".weight"], w[name + ".bias"], c["norm_eps"])
        return rms_norm(x, w[name + ".weight"], c["norm_eps"])

    def linear(x, name):
        if elementary and name + ".bias" in w:
            return x @ w[name + ".weight"].t() + w[name + ".bias"]
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    def softmax(x):
        if not elementary:
            return x.softmax(-1)
        e = (x - x.detach().amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    def gelu(x):
        if not elementary:
            return F.gelu(x, approximate="tanh")
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))

    def silu(x):
        return x * torch.sigmoid(x) if elementary else F.silu(x)

    def cross_entropy(x, labels):
        if not elementary:
            return F.cross_entropy(x, labels, ignore_index=-1, reduction="sum")
        x = x - x.detach().amax(-1, keepdim=True)
        losses = x.exp().sum(-1).log() - x.gather(-1, labels.clamp(min=0)[:, None])[:, 0]
        return (losses * (labels >= 0)).sum()

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
        attended = softmax(q @ key.transpose(-1, -2) * k ** -0.5 + mask) @ v
        x = x + linear(attended.transpose(1, 2).reshape(SEQUENCES, LENGTH, h * k), block + "out")
        y = norm(x, block + "norm2")
        if gpt2:
            y = gelu(linear(y, block + "up"))
        else:
            gate, up = linear(y, block + "gate_up").chunk(2, -1)
            y = silu(gate) * up
        x = x + linear(y, block + "down")

    head = w["embedding.tokens"] if c["tied_head"] else w["head.weight"]
    logits = F.linear(norm(x, "head.norm"), head)
    return cross_entropy(logits.view(-1, c["vocab"]), labels)


# ---- one run ---------------------------------------------------------------------------------------------------------


class AdamW:
    """torch.optim.AdamW in elementary operations."""

    def __init__(self, parameters):
        self.moments = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
        self.steps = 0

    def step(self):
        o = OPTIMIZER
        self.steps += 1
        for i, (p, m, v) in enumerate(self.moments):
            m = o["beta1"] * m + (1 - o["beta1"]) * p.grad
            v = o["beta2"] * v + (1 - o["beta2"]) * (p.grad * p.grad)
            self.moments[i] = p, m, v
            decayed = p * (1 - o["lr"] * o["weight_decay"]) if p.ndim >= 2 else p
            size = torch.sqrt(v / (1 - o["beta2"] ** self.steps)) + o["eps"]
            p.copy_(decayed - o["lr"] / (1 - o["beta1"] ** self.steps) * (m / size))


def torch_adamw(parameters):
    o = OPTIMIZER
    return torch.optim.AdamW(
        [dict(params=[p for p in parameters if p.ndim >= 2], weight_decay=o["weight_decay"]),
         dict(params=[p for p in parameters if p.ndim < 2], weight_decay=0.0)],
        lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])


def train(c, init, tokens, labels, dtype, elementary=False):
    """Returns (gradients of step 0, final weights, one record a step), arrays in `dtype`."""
    w = {name: torch.tensor(value).to(dtype).requires_grad_() for name, value in init.items()}
    optimizer = (AdamW if elementary else torch_adamw)(list(w.values()))
    first_gradients, records = None, []
    for step in range(STEPS):
        target = torch.tensor(labels[step], dtype=torch.int64)
        total = loss_sum(c, w, torch.tensor(tokens[step], dtype=torch.int64), target, elementary)
        valid = int((target >= 0).sum())
        for p in w.values():
            p.grad = None
        (total / valid).backward()
        if step == 0:
            first_gradients = {name: p.grad.numpy().copy() for name, p in w.items()}
        with torch.no_grad():
            norm = torch.sqrt(sum((p.grad * p.grad).sum() for p in w.values()))
            factor = min(1.0, OPTIMIZER["clip_norm"] / norm.item())
            for p in w.values():
                p.grad = p.grad * factor
            optimizer.step()
        records.append(dict(loss_sum=total.item(), loss_mean=total.item() / valid, valid_tokens=valid,
                            grad_norm=norm.item()))
    return first_gradients, {name: p.detach().numpy().copy() for name, p in w.items()}, records


def spread_of(c, init, tokens, labels, golden):
    """The root mean square differences of runs with random rounding from `golden`: (gradients, finals, losses)."""
    squares = [{name: 0.0 for name in init}, {name: 0.0 for name in init}, np.zeros(STEPS)]
    for seed in range(ROUNDED_RUNS):
        with RandomRounding(seed):
            run = train(c, init, tokens, labels, torch.float64, elementary=True)
        for kind in (0, 1):
            for name in init:
                squares[kind][name] = squares[kind][name] + (run[kind][name] - golden[kind][name]) ** 2 / ROUNDED_RUNS
        squares[2] += (losses_of(run) - losses_of(golden)) ** 2 / ROUNDED_RUNS
    gradients, finals = ({name: np.sqrt(value) for name, value in kind.items()} for kind in squares[:2])
    return gradients, finals, np.sqrt(squares[2])


def losses_of(run):
    return np.array([record["loss_mean"] for record in run[2]])


def quotients(run, golden, spread):
    """Differences of a float32 run from `golden` in units of the spread: the largest, and the root mean square."""
    result = {}
    for kind, label in enumerate(("grad", "final")):
        q = np.concatenate([(np.abs(run[kind][name] - golden[kind][name]) /
                             np.maximum(spread[kind][name], np.finfo(np.float32).tiny)).ravel() for name in golden[kind]])
        result.update({label + "_largest": float(q.max()), label + "_rms": float(np.sqrt((q * q).mean()))})
    result["loss_largest"] = float((np.abs(losses_of(run) - losses_of(golden)) / spread[2]).max())
    return result


def check_elementary(model, run, golden):
    """Ends the script if the elementary operations are not the functions of PyTorch that they stand for."""
    for kind in (0, 1):
        for name in golden[kind]:
            # The gradient of a key bias is rounding noise (softmax does not see it), of which Adam makes steps.
            rows = slice(None)
            if name.endswith("qkv.bias"):
                c = MODELS[model]
                rows = slice(0, c["heads"] * c["head_dim"])
            error = distance(run[kind][name][rows], golden[kind][name][rows])
            if error > 1e-11:
                sys.exit(f"{model}: {name}: elementary operations differ from PyTorch's functions by {error:.3g}")


def distance(found, golden):
    """||found - golden|| / ||golden||"""
    size = np.linalg.norm(golden)
    return float(np.linalg.norm(found - golden) / size) if size > 0 else float(np.linalg.norm(found))


def make(model):
    """Returns (tensors: name -> array, metadata: name -> text)."""
    c = MODELS[model]
    random = np.random.RandomState(1000 + list(MODELS).index(model))
    init = draw_weights(c, random)
    tokens, labels = draw_batches(c, random)
    golden = train(c, init, tokens, labels, torch.float64)
    check_elementary(model, train(c, init, tokens, labels, torch.float64, elementary=True), golden)
    spread = spread_of(c, init, tokens, labels, golden)
    pytorch = quotients(train(c, init, tokens, labels, torch.float32), golden, spread)
    tensors = {"tokens": tokens, "labels": labels}
    for name in init:
        tensors["init." + name] = init[name]
        tensors["grad." + name] = golden[0][name]
        tensors["final." + name] = golden[1][name]
        tensors["grad_spread." + name] = spread[0][name].astype(np.float32)
        tensors["final_spread." + name] = spread[1][name].astype(np.float32)
    records = [dict(record, loss_mean_spread=s) for record, s in zip(golden[2], spread[2].tolist())]
    training = dict(OPTIMIZER, steps=STEPS, sequences=SEQUENCES, length=LENGTH, decayed="parameters of ndim >= 2",
                    golden=records)
    return tensors, {"format": "pt", "config": json.dumps(c), "training": json.dumps(training),
                     "pytorch": json.dumps(pytorch)}


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
    float64 tensors and golden losses may differ by 1e-9 of their norm; spreads, which are float64's differences of
    float32's size, by 1e-3. Of PyTorch's float32 run only the keys are compared."""
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
        elif made.dtype != np.float64 and "_spread." not in name:
            if not np.array_equal(found[name], made):
                problems.append(f"{name}: values differ")
        else:
            allowed = 1e-3 if "_spread." in name else 1e-9
            if distance(found[name], made) > allowed:
                problems.append(f"{name}: relative distance {distance(found[name], made):.3g}, allowed {allowed:g}")
    for key in ("config", "training", "pytorch"):
        left, right = json.loads(found_metadata[key]), json.loads(metadata[key])
        if keys_of(left) != keys_of(right) or (key == "config" and left != right):
            problems.append(f"metadata {key} differs")
        elif key == "training":
            for step, (a, b) in enumerate(zip(left["golden"], right["golden"])):
                if any(abs(a[field] - b[field]) > (1e-3 if "spread" in field else 1e-9) * abs(b[field]) for field in b):
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
