#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tiny models in Hugging Face form, with the logits and losses that `transformers` gives for them.

Writes tests/golden/hf/<model>/ for gpt2, llama (with llama3's RoPE scaling), qwen2 and qwen3:
  config.json, model.safetensors   as the model's own save_pretrained() writes them
  golden.safetensors               input_ids   I32 [2, 13]
                                   logits      F32 [2, 13, V], the float32 run
                                   logits_f64  F64 [2, 13, V], the float64 run
                                   loss        F64 [2, 12], of the next token, from logits_f64
                                   mean_loss   F64 [1]
The libraries compute norms, softmax and rotary angles in float32 whatever the model's type. In the float64 run every
such conversion is turned into one to float64 and the rotary frequencies are computed anew, so that it is float64
throughout. Weights are drawn by numpy from (model, tensor name), so they do not depend on the libraries' versions.

Needs torch and transformers (4.43 or later, or 5); no network, no GPU.
  python3 tests/golden/make_hf_goldens.py                        writes the files
  python3 tests/golden/make_hf_goldens.py --check-export DIR     loads DIR, or DIR/<model> for every model that is
      there, with transformers, and compares the logits with the golden ones. --against MODEL names the golden where
      DIR is not called like a model; --tolerance is the largest allowed difference (for bf16 exports: 0.2).
"""
import argparse
import inspect
import json
import math
import os
import pathlib
import sys
import zlib

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

try:
    import numpy as np
    import torch
    import transformers
    from torch.overrides import TorchFunctionMode
except ImportError as error:
    sys.exit(f"make_hf_goldens: {error}. Install torch and transformers.")

sys.dont_write_bytecode = True
from make_goldens import read, write

SEQUENCES, LENGTH = 2, 13
VERSION = int(transformers.__version__.split(".")[0])

# Llama-3 scaling: of the four frequencies one is kept, one blended, two are stretched.
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=256)
COMMON = dict(bos_token_id=0, eos_token_id=0, use_cache=False)
MODELS = {
    "gpt2": ("GPT2", dict(vocab_size=61, n_positions=19, n_embd=20, n_layer=2, n_head=5, n_inner=56,
                          activation_function="gelu_new", tie_word_embeddings=True), None),
    "llama": ("Llama", dict(vocab_size=67, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
                            num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=2048,
                            rms_norm_eps=1e-5, tie_word_embeddings=False), (500000.0, LLAMA3)),
    "qwen2": ("Qwen2", dict(vocab_size=71, hidden_size=24, intermediate_size=44, num_hidden_layers=2,
                            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                            rms_norm_eps=1e-6, tie_word_embeddings=True), (1000000.0, None)),
    "qwen3": ("Qwen3", dict(vocab_size=73, hidden_size=20, intermediate_size=52, num_hidden_layers=2,
                            num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64,
                            rms_norm_eps=1e-6, tie_word_embeddings=True), (1000000.0, None)),
}
MAX_PARAMETERS = 15000


# ---- models ----------------------------------------------------------------------------------------------------------


def rope_arguments(rope):
    """Version 5 keeps all that concerns RoPE in one dictionary; version 4 has the base apart."""
    if rope is None:
        return {}
    theta, scaling = rope
    kind = dict(rope_type="llama3", **scaling) if scaling else dict(rope_type="default")
    if VERSION >= 5:
        return dict(rope_parameters=dict(kind, rope_theta=theta))
    return dict(rope_theta=theta, **(dict(rope_scaling=kind) if scaling else {}))


def build(name):
    family, sizes, rope = MODELS[name]
    config_class = getattr(transformers, family + "Config")
    model_class = getattr(transformers, family + ("LMHeadModel" if family == "GPT2" else "ForCausalLM"))
    config = config_class(**sizes, **COMMON, **rope_arguments(rope))
    config._attn_implementation = "eager"
    model = model_class(config).float().eval()
    with torch.no_grad():
        for tensor, parameter in model.named_parameters():
            random = np.random.RandomState(zlib.crc32(f"{name}/{tensor}".encode()))
            noise = random.standard_normal(tuple(parameter.shape))
            is_norm = parameter.ndim == 1 and tensor.endswith(".weight")
            parameter.copy_(torch.from_numpy((1 + 0.1 * noise if is_norm else 0.15 * noise).astype(np.float32)))
    parameters = sum(p.numel() for p in model.parameters())
    if parameters > MAX_PARAMETERS:
        sys.exit(f"{name}: {parameters} parameters; at most {MAX_PARAMETERS} are wanted")
    check_frequencies(name, model)
    return model


def frequencies(name):
    """Rotary frequencies in float64, or None where the model has none."""
    sizes, rope = MODELS[name][1:]
    if rope is None:
        return None
    theta, s = rope
    k = sizes.get("head_dim", sizes["hidden_size"] // sizes["num_attention_heads"])
    f = theta ** (-torch.arange(0, k, 2, dtype=torch.float64) / k)
    if s is None:
        return f
    turns = s["original_max_position_embeddings"] * f / (2 * math.pi)
    blend = ((turns - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])).clamp(0, 1)
    return (1 - blend) * f / s["factor"] + blend * f


def rotary_modules(model):
    return [m for m in model.modules() if isinstance(getattr(m, "inv_freq", None), torch.Tensor)]


def check_frequencies(name, model):
    """Ends the run if the library did not understand the RoPE arguments as they are meant."""
    wanted = frequencies(name)
    found = rotary_modules(model)
    if (wanted is None) != (not found):
        sys.exit(f"{name}: {len(found)} rotary modules in the model")
    for module in found:
        if not torch.allclose(module.inv_freq.double(), wanted, rtol=1e-5, atol=0):
            sys.exit(f"{name}: rotary frequencies {module.inv_freq.tolist()}, wanted {wanted.tolist()}")


# ---- runs ------------------------------------------------------------------------------------------------------------


class AllInDouble(TorchFunctionMode):
    """Turns every conversion to float32 into one to float64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def widened(value):
            return torch.float64 if value is torch.float32 else value

        if getattr(function, "__name__", "") == "float" and len(args) == 1 and isinstance(args[0], torch.Tensor):
            return args[0].double() if args[0].dtype != torch.float64 else args[0]
        return function(*(widened(a) for a in args), **{k: widened(v) for k, v in (kwargs or {}).items()})


def logits_of(model, ids):
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False, return_dict=True).logits


def double_logits(name, model, ids):
    model = model.double()
    for module in rotary_modules(model):
        module.inv_freq = frequencies(name)
        if hasattr(module, "original_inv_freq"):
            module.original_inv_freq = module.inv_freq
    try:
        with AllInDouble():
            logits = logits_of(model, ids)
    except Exception as error:  # of a library that does not bear the mode: close to float64 is better than nothing
        print(f"{name}: WARNING: parts of the float64 run are in float32: {type(error).__name__}: {error}")
        logits = logits_of(model, ids).double()
    if logits.dtype != torch.float64:
        sys.exit(f"{name}: the float64 run gave {logits.dtype}")
    return logits.numpy()


def token_losses(logits, ids):
    """Of the next token, in float64. logits [B, T, V], ids [B, T]; returns [B, T - 1]."""
    log_p = torch.log_softmax(torch.from_numpy(np.asarray(logits, dtype=np.float64)), -1)[:, :-1]
    return -log_p.gather(-1, torch.from_numpy(ids[:, 1:].astype(np.int64))[..., None])[..., 0].numpy()


def save(model, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    accepts = inspect.signature(model.save_pretrained).parameters
    model.save_pretrained(str(folder), **(dict(safe_serialization=True) if "safe_serialization" in accepts else {}))
    for written in folder.iterdir():
        if written.name not in ("config.json", "model.safetensors"):
            written.unlink()
    for wanted in ("config.json", "model.safetensors"):
        if not (folder / wanted).exists():
            sys.exit(f"{folder}: save_pretrained wrote no {wanted}")


def make(name, folder):
    model = build(name)
    save(model, folder)
    random = np.random.RandomState(zlib.crc32(name.encode()))
    ids = random.randint(0, MODELS[name][1]["vocab_size"], (SEQUENCES, LENGTH)).astype(np.int32)
    wide_ids = torch.from_numpy(ids.astype(np.int64))
    logits = logits_of(model, wide_ids).float().numpy()
    logits_f64 = double_logits(name, model, wide_ids)
    error = float(np.abs(logits - logits_f64).max())
    if not error < 1e-4:
        sys.exit(f"{name}: the float32 and float64 runs differ by {error:.3g}")
    loss = token_losses(logits_f64, ids)
    tensors = {"input_ids": ids, "logits": logits, "logits_f64": logits_f64, "loss": loss,
               "mean_loss": np.array([loss.mean()])}
    metadata = {"format": "pt", "made_by": json.dumps(dict(torch=torch.__version__.split("+")[0],
                                                           transformers=transformers.__version__))}
    write(folder / "golden.safetensors", tensors, metadata)
    parameters = sum(p.numel() for p in model.parameters())
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {parameters} parameters, {size} bytes, mean loss {loss.mean():.6f}, "
          f"float32 is within {error:.3g} of float64")


def check_export(folder, name, goldens, tolerance):
    """True if transformers loads `folder` whole and its logits are the golden ones of `name`."""
    golden, _ = read(goldens / name / "golden.safetensors")
    try:
        model, loading = transformers.AutoModelForCausalLM.from_pretrained(
            str(folder), local_files_only=True, output_loading_info=True, attn_implementation="eager")
    except Exception as error:  # whatever the library raises, the export could not be read
        print(f"{name}: {folder} was not loaded: {type(error).__name__}: {error}")
        return False
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        # A tied head has no separate tensor; some versions count it as missing.
        rest = [key for key in loading.get(kind) or [] if not (
            kind == "missing_keys" and key == "lm_head.weight" and MODELS[name][1]["tie_word_embeddings"])]
        if rest:
            print(f"{name}: {folder}: {kind}: {rest}")
            return False
    model = model.float().eval()
    ids = golden["input_ids"]
    logits = logits_of(model, torch.from_numpy(ids.astype(np.int64))).numpy()
    if logits.shape != golden["logits"].shape:
        print(f"{name}: {folder}: logits {logits.shape}, golden {golden['logits'].shape}")
        return False
    error = float(np.abs(logits - golden["logits_f64"]).max())
    loss_error = abs(float(token_losses(logits, ids).mean() - golden["mean_loss"][0]))
    good = error <= tolerance
    print(f"{name}: max error of logits {error:.3g} (allowed {tolerance:g}), of the mean loss {loss_error:.3g}: "
          f"{'good' if good else 'BAD'}")
    return good


def check(arguments):
    folder = arguments.check_export
    if (folder / "config.json").exists():
        name = arguments.against or folder.resolve().name
        if name not in MODELS:
            sys.exit(f"{folder}: is not called like a model; add --against with one of {', '.join(MODELS)}")
        pairs = [(folder, name)]
    else:
        pairs = [(folder / name, name) for name in MODELS if (folder / name / "config.json").exists()]
    if not pairs:
        sys.exit(f"{folder}: has no config.json, nor a folder of one of {', '.join(MODELS)} that has one")
    results = [check_export(where, name, arguments.folder, arguments.tolerance) for where, name in pairs]
    return 0 if all(results) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent / "hf",
                        help="of the goldens (default: hf beside this script)")
    parser.add_argument("--check-export", type=pathlib.Path, metavar="DIR",
                        help="compare exported weights with the goldens instead of making them")
    parser.add_argument("--against", choices=list(MODELS), help="the model that DIR is an export of")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="largest difference of logits (default 1e-4)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.check_export:
        return check(arguments)
    for name in MODELS:
        make(name, arguments.folder / name)
    # What was written is what the library reads.
    arguments.check_export = arguments.folder
    return check(arguments)


if __name__ == "__main__":
    sys.exit(main())
