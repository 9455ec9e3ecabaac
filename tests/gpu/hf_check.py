#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trireme on the GPU against `transformers`: Llama, Qwen2, Qwen3 and GPT-2 with random weights.

For each model (4 layers, width 256, heads of 64, vocabulary 1024, 4 sequences of 128 tokens):
  logits   gpu_tests compares logits and losses in fp32 and bf16 with golden.safetensors, written here
  eval     `trireme eval --device cuda` in fp32 and bf16 against the model's mean loss
  train    three steps of AdamW by `trireme train` in fp32 against torch.optim.AdamW from the same weights, on one
           batch that is the whole data set, so that the order of samples does not matter
  export   the weights after those steps, loaded by transformers: every tensor, and the loss
  ckpt     `trireme ckpt import` and `ckpt export` in f32 and bf16: the loss that the export reports of its fixed
           tokens, computed layer by layer, against transformers' of the exported folder on the same tokens
torch computes on the CPU in fp32, without TF32. The exit code is 1 if any error exceeds its limit.

Needs torch, transformers and safetensors; no network.
  python3 tests/gpu/hf_check.py --trireme build/gpu/trireme --gpu-tests build/gpu/tests/gpu_tests
  python3 tests/gpu/hf_check.py --trireme build/cpu/trireme --only-ckpt    # without a GPU
"""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

gpu_environment = dict(os.environ)  # for the programs under test; torch uses no GPU
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

try:
    import torch
    import transformers
    from safetensors.torch import save_file
except ImportError as error:
    sys.exit(f"hf_check: {error}. Install torch, transformers and safetensors.")

LAYERS, WIDTH, HEADS, FFN, VOCAB, SEQUENCES, LENGTH = 4, 256, 4, 704, 1024, 4, 128
DEVICE = "cuda"
STEPS, RATE, EPS, DECAY, BETAS = 3, 1e-3, 1e-5, 0.1, (0.9, 0.95)
LLAMA_LIKE = dict(vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=FFN, num_hidden_layers=LAYERS,
                  num_attention_heads=HEADS, num_key_value_heads=2, max_position_embeddings=512)
COMMON = dict(bos_token_id=0, eos_token_id=0, use_cache=False)
MODELS = {
    "llama": ("Llama", dict(LLAMA_LIKE, rms_norm_eps=1e-5, tie_word_embeddings=False)),
    "qwen2": ("Qwen2", dict(LLAMA_LIKE, rms_norm_eps=1e-6, tie_word_embeddings=True)),
    "qwen3": ("Qwen3", dict(LLAMA_LIKE, rms_norm_eps=1e-6, tie_word_embeddings=True, head_dim=64)),
    "gpt2": ("GPT2", dict(vocab_size=VOCAB, n_positions=512, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
                          n_inner=4 * WIDTH, activation_function="gelu_new", tie_word_embeddings=True,
                          resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)),
}
VERSION = int(transformers.__version__.split(".")[0])
problems = []


def check(what, error, allowed):
    good = error <= allowed  # false for NaN
    print(f"{'good' if good else 'BAD '}  {what}: {error:.3g} (allowed {allowed:g})", flush=True)
    if not good:
        problems.append(what)


def build(name):
    family, sizes = MODELS[name]
    rope = {} if family == "GPT2" else dict(rope_theta=10000.0)
    if rope and VERSION >= 5:
        rope = dict(rope_parameters=dict(rope_type="default", **rope))
    config = getattr(transformers, family + "Config")(**sizes, **COMMON, **rope)
    config._attn_implementation = "eager"
    model = getattr(transformers, family + ("LMHeadModel" if family == "GPT2" else "ForCausalLM"))(config).float()
    torch.manual_seed(len(name) * 1000 + ord(name[-1]))
    with torch.no_grad():
        for tensor, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            is_norm = parameter.ndim == 1 and tensor.endswith(".weight")
            parameter.copy_(1 + 0.1 * noise if is_norm else 0.04 * noise)
    return model


def mean_loss(model, inputs, labels):
    logits = model(input_ids=inputs, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB).float(), labels.reshape(-1))


def write_llmc(path, tokens):
    header = [20240520, 1, len(tokens)] + [0] * 253
    path.write_bytes(struct.pack("<256i", *header) + struct.pack(f"<{len(tokens)}H", *tokens))


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=gpu_environment)
    if done.returncode != 0:
        print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")
        raise RuntimeError(f"exit code {done.returncode}: {' '.join(map(str, command))}")
    return done.stdout


def run_json(command):
    return json.loads(run(list(command) + ["--json"]).strip().splitlines()[-1])


CONFIG = """[job]
dump_folder = "{folder}/run"
[optimizer]
lr = {rate}
beta1 = {beta1}
beta2 = {beta2}
eps = {eps}
weight_decay = {decay}
[lr_scheduler]
decay_type = "constant"
warmup_steps = 0
[training]
dataset_path = "{folder}/tokens.bin"
dataset_format = "llmc"
local_batch_size = {sequences}
seq_len = {length}
steps = {steps}
dtype = "fp32"
clip = "none"
skip_norm_multiple = 0
init_from = "{folder}/start"
[metrics]
log_freq = 1
enable_tensorboard = false
[system]
device = "{device}"
"""


def three_steps(model, inputs, labels):
    """Returns torch.optim.AdamW with our rule: matrices decay, norms and biases do not."""
    parameters = list(model.parameters())
    groups = [dict(params=[p for p in parameters if p.ndim >= 2], weight_decay=DECAY),
              dict(params=[p for p in parameters if p.ndim < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPS)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = mean_loss(model, inputs, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_ckpt(name, folder, trireme):
    """Checks the loss that `ckpt export` reports. `folder`/start contains the weights."""
    run([trireme, "ckpt", "import", folder / "start", "--into", folder / "imported"])
    for dtype in ("f32", "bf16"):
        out = folder / f"exported-{dtype}"
        found = run_json([trireme, "ckpt", "export", folder / "imported", "--out", out, "--dtype", dtype])["loss"]
        exported = transformers.AutoModelForCausalLM.from_pretrained(out, local_files_only=True,
                                                                     attn_implementation="eager").float().eval()
        tokens = torch.tensor(found["tokens"]).reshape(1, -1)
        with torch.no_grad():
            expected = mean_loss(exported, tokens[:, :-1], tokens[:, 1:]).item()
        for whose in ("checkpoint", "exported"):
            check(f"{name}: relative error of the loss of ckpt export {dtype}, {whose}, {tokens.numel() - 1} tokens",
                  abs(found[whose] - expected) / expected, 1e-5)


def check_model(name, folder, trireme, only_ckpt):
    model = build(name).eval()
    start = {key: value.clone() for key, value in model.state_dict().items()}
    model.save_pretrained(folder / "start")
    check_ckpt(name, folder, trireme)
    if only_ckpt:
        return
    tokens = torch.randint(0, VOCAB, (SEQUENCES * LENGTH + 1,)).tolist()
    write_llmc(folder / "tokens.bin", tokens)
    inputs = torch.tensor(tokens[:-1]).reshape(SEQUENCES, LENGTH)
    labels = torch.tensor(tokens[1:]).reshape(SEQUENCES, LENGTH)
    with torch.no_grad():
        logits = model(input_ids=inputs, use_cache=False).logits.float().contiguous()
        expected = mean_loss(model, inputs, labels).item()
    save_file({"input_ids": inputs.to(torch.int32), "logits": logits}, folder / "start" / "golden.safetensors")

    for dtype, allowed in (("fp32", 1e-5), ("bf16", 1e-2)):
        found = run_json([trireme, "eval", "--weights", folder / "start", "--data", folder / "tokens.bin",
                          "--seq", LENGTH, "--batch", SEQUENCES, "--dtype", dtype, "--device", DEVICE])
        if found["tokens"] != SEQUENCES * LENGTH:
            problems.append(f"{name}: eval counts {found['tokens']} tokens")
        check(f"{name}: relative error of the loss, eval {dtype}", abs(found["loss"] - expected) / expected, allowed)

    (folder / "run.toml").write_text(CONFIG.format(folder=folder, rate=RATE, beta1=BETAS[0], beta2=BETAS[1], eps=EPS,
                                                   decay=DECAY, sequences=SEQUENCES, length=LENGTH, steps=STEPS,
                                                   device=DEVICE))
    summary = run_json([trireme, "train", folder / "run.toml"])
    losses = three_steps(model, inputs, labels)
    check(f"{name}: relative error of the last step's loss", abs(summary["loss"] - losses[-1]) / losses[-1], 1e-4)

    exported, loading = transformers.AutoModelForCausalLM.from_pretrained(
        summary["weights"], local_files_only=True, output_loading_info=True, attn_implementation="eager")
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        # A tied head has no separate tensor; some versions count it as missing.
        rest = [key for key in loading.get(kind) or [] if not (
            kind == "missing_keys" and key == "lm_head.weight" and MODELS[name][1]["tie_word_embeddings"])]
        if rest:
            problems.append(f"{name}: the export: {kind}: {rest}")
    ours, theirs = exported.float().eval().state_dict(), model.state_dict()
    worst, where = 0.0, ""
    for key, value in theirs.items():
        if not value.is_floating_point():
            continue
        moved = (value - start[key]).norm().item()
        error = (ours[key] - value).norm().item() / max(moved, 1e-12)
        # The key part of GPT-2's bias has a gradient of zero except for rounding, which Adam would amplify without
        # EPS; the remaining error there is small beside the rest of the tensor.
        if not error <= worst:
            worst, where = error, key
    check(f"{name}: error of three AdamW steps over their length, largest at {where}", worst, 1e-2)
    with torch.no_grad():
        after, of_export = (mean_loss(m, inputs, labels).item() for m in (model, exported))
    check(f"{name}: relative error of the exported model's loss", abs(of_export - after) / after, 1e-5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--trireme", type=pathlib.Path, default=root / "build/gpu/trireme")
    parser.add_argument("--gpu-tests", type=pathlib.Path, default=root / "build/gpu/tests/gpu_tests")
    parser.add_argument("--only-ckpt", action="store_true", help="only `ckpt`, which needs no GPU")
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)} (default: all)")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.models if name not in MODELS]
    if unknown:
        sys.exit(f"hf_check: {', '.join(unknown)}: not among {', '.join(MODELS)}")
    torch.set_num_threads(min(8, os.cpu_count() or 1))
    print(f"torch {torch.__version__}, transformers {transformers.__version__}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        goldens = pathlib.Path(scratch) / "goldens"
        goldens.mkdir()
        for name in arguments.models or MODELS:
            folder = pathlib.Path(scratch) / name
            folder.mkdir()
            try:
                check_model(name, folder, arguments.trireme.resolve(), arguments.only_ckpt)
            except Exception as error:  # the other models are still worth checking
                problems.append(f"{name}: {type(error).__name__}: {error}")
                print("BAD ", problems[-1], flush=True)
            if (folder / "start" / "golden.safetensors").exists():
                (goldens / name).symlink_to(folder / "start")
        if not arguments.only_ckpt:
            gpu_environment["TRIREME_HF_GOLDENS"] = str(goldens)
            try:
                print(run([arguments.gpu_tests.resolve(), "--gtest_filter=HfLogitsTest.*", "--gtest_brief=1"]))
            except RuntimeError as error:
                problems.append(str(error))
    print("hf_check: " + ("all good" if not problems else "; ".join(problems)))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
