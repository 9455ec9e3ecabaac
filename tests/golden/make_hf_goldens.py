#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tiny models in Hugging Face form, with the logits and losses that `transformers` gives for them.

Writes tests/golden/hf/<model>/ for gpt2, llama (with llama3's RoPE scaling), qwen2, qwen3, mixtral, qwen3_moe (with
a dense first layer) and olmoe (with clip_qkv):
  config.json, model.safetensors   as the model's own save_pretrained() writes them
  golden.safetensors               input_ids   I32 [2, 13]
                                   logits      F32 [2, 13, V], the float32 run
                                   logits_f64  F64 [2, 13, V], the float64 run
                                   loss        F64 [2, 12], of the next token, from logits_f64
                                   mean_loss   F64 [1]
  with experts also                counts      F64 [L, E], how often the layers with experts chose each one
                                   grad.<name> F64, of the mean loss, from the float64 run, by our names and shapes
and tests/golden/hf/deepseek_moe/, which transformers has no name for: a Llama whose second layer has the module
DeepseekV3MoE (sigmoid scores, groups, bias, shared experts) in place of its feed-forward:
  golden.safetensors               the same, and weight.<name> F32 by our names and bias F32 [E], the router's; the
                                   metadata has our model file as JSON
The libraries compute norms, softmax and rotary angles in float32 whatever the model's type. In the float64 run every
such conversion is turned into one to float64 and the rotary frequencies are computed anew, so that it is float64
throughout. Weights are drawn by numpy from (model, tensor name), so they do not depend on the libraries' versions.

Needs torch and transformers (4.43 or later, or 5); no network, no GPU.
  python3 tests/golden/make_hf_goldens.py [MODEL ...]            writes the files, of all models or of these
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
    "mixtral": ("Mixtral", dict(vocab_size=53, hidden_size=20, intermediate_size=12, num_hidden_layers=2,
                                num_attention_heads=5, num_key_value_heads=1, max_position_embeddings=64,
                                rms_norm_eps=1e-5, tie_word_embeddings=False, num_local_experts=6,
                                num_experts_per_tok=2), (1000000.0, None)),
    "qwen3_moe": ("Qwen3Moe", dict(vocab_size=59, hidden_size=20, intermediate_size=28, num_hidden_layers=2,
                                   num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                                   max_position_embeddings=64, rms_norm_eps=1e-6, tie_word_embeddings=False,
                                   num_experts=8, num_experts_per_tok=3, moe_intermediate_size=10,
                                   norm_topk_prob=True, mlp_only_layers=[0]), (1000000.0, None)),
    "olmoe": ("Olmoe", dict(vocab_size=47, hidden_size=24, intermediate_size=8, num_hidden_layers=2,
                            num_attention_heads=3, num_key_value_heads=3, max_position_embeddings=64,
                            rms_norm_eps=1e-5, tie_word_embeddings=False, num_experts=6, num_experts_per_tok=2,
                            norm_topk_prob=False, clip_qkv=1.1, pad_token_id=None), (10000.0, None)),
}
# The Llama around DeepSeek-V3's module. The bias is not negative: transformers masks other groups with 0.
DEEPSEEK = "deepseek_moe"
DEEPSEEK_LLAMA = dict(vocab_size=43, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=3,
                      num_key_value_heads=1, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False)
DEEPSEEK_MOE = dict(hidden_size=24, moe_intermediate_size=8, n_routed_experts=8, n_shared_experts=2,
                    num_experts_per_tok=3, n_group=4, topk_group=2, routed_scaling_factor=2.5, norm_topk_prob=True)
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
    config = plain(config_class(**sizes, **COMMON, **rope_arguments(rope)))
    model = model_class(config).float().eval()
    draw(name, model)
    check_frequencies(name, model)
    return model


def plain(config):
    """The straightforward forms of attention and experts, which every element type has."""
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return config


def draw(name, model):
    with torch.no_grad():
        for tensor, parameter in model.named_parameters():
            random = np.random.RandomState(zlib.crc32(f"{name}/{tensor}".encode()))
            noise = random.standard_normal(tuple(parameter.shape))
            is_norm = parameter.ndim == 1 and tensor.endswith(".weight")
            # Logits of routers are far apart, so that roundings choose no other expert.
            size = 0.6 if tensor.endswith(".gate.weight") else 0.15
            parameter.copy_(torch.from_numpy((1 + 0.1 * noise if is_norm else size * noise).astype(np.float32)))
    parameters = sum(p.numel() for p in model.parameters())
    if parameters > MAX_PARAMETERS:
        sys.exit(f"{name}: {parameters} parameters; at most {MAX_PARAMETERS} are wanted")


def build_deepseek():
    """A Llama whose second layer has DeepSeek-V3's mixture of experts."""
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE

    config = plain(transformers.LlamaConfig(**DEEPSEEK_LLAMA, **COMMON, **rope_arguments((10000.0, None))))
    model = transformers.LlamaForCausalLM(config).float().eval()
    moe = plain(transformers.DeepseekV3Config(**DEEPSEEK_MOE))
    model.model.layers[1].mlp = DeepseekV3MoE(moe).float().eval()
    draw(DEEPSEEK, model)
    bias = model.model.layers[1].mlp.gate.e_score_correction_bias
    random = np.random.RandomState(zlib.crc32(b"bias"))
    bias.copy_(torch.from_numpy(random.uniform(0, 0.5, bias.shape).astype(np.float32)))
    return model


def frequencies(name):
    """Rotary frequencies in float64, or None where the model has none."""
    sizes, rope = (DEEPSEEK_LLAMA, (10000.0, None)) if name == DEEPSEEK else MODELS[name][1:]
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


def our_tensors(tensors):
    """Renames and fuses tensors by the library's names to ours: q|k|v, gate|up, all experts of a layer."""
    rest, ours = dict(tensors), {}

    def take(*names):
        return np.concatenate([rest.pop(name) for name in names])

    def take_experts(prefix, names):
        """[E, rows, columns], from one tensor in version 5 and from one tensor for each expert before it."""
        fused = prefix + ("gate_up_proj" if len(names) == 2 else "down_proj")
        if fused in rest:
            return rest.pop(fused)
        experts = []
        while f"{prefix}{len(experts)}.{names[0]}.weight" in rest:
            experts.append(take(*(f"{prefix}{len(experts)}.{name}.weight" for name in names)))
        return np.stack(experts)

    ours["embedding.tokens"] = take("model.embed_tokens.weight")
    for layer in range(sum(name.endswith("input_layernorm.weight") for name in tensors)):
        hf, block = f"model.layers.{layer}.", f"blocks.{layer}."
        attention = hf + "self_attn."
        ours[block + "norm1.weight"] = take(hf + "input_layernorm.weight")
        ours[block + "qkv.weight"] = take(*(f"{attention}{part}_proj.weight" for part in "qkv"))
        ours[block + "out.weight"] = take(attention + "o_proj.weight")
        ours[block + "norm2.weight"] = take(hf + "post_attention_layernorm.weight")
        for part in "qk":
            if f"{attention}{part}_norm.weight" in rest:
                ours[f"{block}{part}_norm.weight"] = take(f"{attention}{part}_norm.weight")
        for mlp in (hf + "mlp.", hf + "block_sparse_moe."):
            if mlp + "gate.weight" in rest:
                is_old_mixtral = mlp + "experts.0.w1.weight" in rest
                up, down = (["w1", "w3"], ["w2"]) if is_old_mixtral else (["gate_proj", "up_proj"], ["down_proj"])
                ours[block + "router.weight"] = take(mlp + "gate.weight")
                ours[block + "experts.gate_up.weight"] = take_experts(mlp + "experts.", up)
                ours[block + "experts.down.weight"] = take_experts(mlp + "experts.", down)
                if mlp + "shared_experts.up_proj.weight" in rest:
                    shared = mlp + "shared_experts."
                    ours[block + "shared.gate_up.weight"] = take(shared + "gate_proj.weight",
                                                                 shared + "up_proj.weight")
                    ours[block + "shared.down.weight"] = take(shared + "down_proj.weight")
            elif mlp + "gate_proj.weight" in rest:
                ours[block + "gate_up.weight"] = take(mlp + "gate_proj.weight", mlp + "up_proj.weight")
                ours[block + "down.weight"] = take(mlp + "down_proj.weight")
    ours["head.norm.weight"] = take("model.norm.weight")
    ours["head.weight"] = take("lm_head.weight")
    if rest:
        sys.exit(f"tensors without one of our names: {', '.join(rest)}")
    return ours


class Choices:
    """Counts how often every router chooses each expert."""

    def __init__(self, model, experts):
        self.counts, self.experts = {}, experts
        for layer, block in enumerate(model.model.layers):
            mlp = getattr(block, "mlp", None) or getattr(block, "block_sparse_moe")
            if hasattr(mlp, "experts"):
                mlp.experts.register_forward_pre_hook(self.hook(layer), with_kwargs=True)

    def hook(self, layer):
        def count(_, arguments, named):
            tensors = [a for a in (*arguments, *named.values()) if isinstance(a, torch.Tensor)]
            chosen = next(a for a in tensors if not a.is_floating_point())
            self.counts[layer] = np.bincount(chosen.numpy().ravel(), minlength=self.experts).astype(np.float64)

        return count

    def table(self):
        return np.stack([self.counts[layer] for layer in sorted(self.counts)])


def gradients(name, model, ids, experts):
    """Gradients of the mean loss and the counts of choices. REQUIRES: the model is in float64, as double_logits()
    leaves it."""
    choices = Choices(model, experts)
    with AllInDouble():
        logits = model(input_ids=ids, use_cache=False, return_dict=True).logits
        log_p = torch.log_softmax(logits, -1)[:, :-1]
        loss = -log_p.gather(-1, ids[:, 1:, None]).mean()
        loss.backward()
    if loss.dtype != torch.float64:
        sys.exit(f"{name}: the float64 loss is {loss.dtype}")
    found = {tensor: parameter.grad.numpy() for tensor, parameter in model.named_parameters()}
    return {f"grad.{ours}": value for ours, value in our_tensors(found).items()}, choices.table()


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
    sizes = MODELS[name][1]
    make_golden(name, model, folder, sizes["vocab_size"], sizes.get("num_experts", sizes.get("num_local_experts")))


def make_deepseek(folder):
    folder.mkdir(parents=True, exist_ok=True)
    model = build_deepseek()
    weights = our_tensors({tensor: p.detach().numpy().copy() for tensor, p in model.named_parameters()})
    extra = {f"weight.{ours}": value for ours, value in weights.items()}
    extra["bias"] = model.model.layers[1].mlp.gate.e_score_correction_bias.numpy().copy()
    llama, moe = DEEPSEEK_LLAMA, DEEPSEEK_MOE
    file = dict(family="llama", layers=llama["num_hidden_layers"], hidden=llama["hidden_size"],
                heads=llama["num_attention_heads"], kv_heads=llama["num_key_value_heads"],
                ffn=llama["intermediate_size"], vocab=llama["vocab_size"],
                max_seq=llama["max_position_embeddings"], norm_eps=llama["rms_norm_eps"], tied_head=False,
                rope_theta=10000.0,
                moe=dict(experts=moe["n_routed_experts"], experts_per_token=moe["num_experts_per_tok"],
                         expert_ffn=moe["moe_intermediate_size"],
                         shared_ffn=moe["moe_intermediate_size"] * moe["n_shared_experts"], score="sigmoid",
                         renormalize=True, expert_groups=moe["n_group"], chosen_groups=moe["topk_group"],
                         routed_scale=moe["routed_scaling_factor"], router_bias=True, dense_layers=1))
    make_golden(DEEPSEEK, model, folder, llama["vocab_size"], moe["n_routed_experts"], extra,
                {"model": json.dumps(file)})


def make_golden(name, model, folder, vocab, experts, extra=None, metadata=None):
    random = np.random.RandomState(zlib.crc32(name.encode()))
    ids = random.randint(0, vocab, (SEQUENCES, LENGTH)).astype(np.int32)
    wide_ids = torch.from_numpy(ids.astype(np.int64))
    logits = logits_of(model, wide_ids).float().numpy()
    logits_f64 = double_logits(name, model, wide_ids)
    error = float(np.abs(logits - logits_f64).max())
    if not error < 1e-4:
        sys.exit(f"{name}: the float32 and float64 runs differ by {error:.3g}")
    loss = token_losses(logits_f64, ids)
    tensors = {"input_ids": ids, "logits": logits, "logits_f64": logits_f64, "loss": loss,
               "mean_loss": np.array([loss.mean()]), **(extra or {})}
    if experts:
        grads, tensors["counts"] = gradients(name, model, wide_ids, experts)
        tensors.update(grads)
    made_by = json.dumps(dict(torch=torch.__version__.split("+")[0], transformers=transformers.__version__))
    write(folder / "golden.safetensors", tensors, {"format": "pt", "made_by": made_by, **(metadata or {})})
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
    plain(model.config)
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
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of which to write the files (default: all)")
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
    names = arguments.models or [*MODELS, DEEPSEEK]
    for name in names:
        if name not in (*MODELS, DEEPSEEK):
            sys.exit(f"{name}: the models are {', '.join((*MODELS, DEEPSEEK))}")
        make_deepseek(arguments.folder / name) if name == DEEPSEEK else make(name, arguments.folder / name)
    # What was written is what the library reads.
    arguments.check_export = arguments.folder
    return check(arguments)


if __name__ == "__main__":
    sys.exit(main())
