#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights of the size of Qwen3-4B (4.0 G parameters) in Hugging Face form, for measuring imports and exports.

Values are bf16 of random sign between 2^-7 and 2^-5, norms are one. `--layers` makes a smaller model of the same width.
Needs nothing but Python.
  python3 bench/make_hf_weights.py runs/qwen3-4b-made
"""
import argparse
import json
import pathlib
import random
import struct

WIDTH, FFN, HEADS, KV_HEADS, HEAD_SIZE, VOCAB = 2560, 9728, 32, 8, 128, 151936


def tensors(layers):
    yield "model.embed_tokens.weight", [VOCAB, WIDTH]
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", [WIDTH]
        yield prefix + "self_attn.q_proj.weight", [HEADS * HEAD_SIZE, WIDTH]
        yield prefix + "self_attn.k_proj.weight", [KV_HEADS * HEAD_SIZE, WIDTH]
        yield prefix + "self_attn.v_proj.weight", [KV_HEADS * HEAD_SIZE, WIDTH]
        yield prefix + "self_attn.q_norm.weight", [HEAD_SIZE]
        yield prefix + "self_attn.k_norm.weight", [HEAD_SIZE]
        yield prefix + "self_attn.o_proj.weight", [WIDTH, HEADS * HEAD_SIZE]
        yield prefix + "post_attention_layernorm.weight", [WIDTH]
        yield prefix + "mlp.gate_proj.weight", [FFN, WIDTH]
        yield prefix + "mlp.up_proj.weight", [FFN, WIDTH]
        yield prefix + "mlp.down_proj.weight", [WIDTH, FFN]
    yield "model.norm.weight", [WIDTH]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=36)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True)
    config = dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_act="silu", attention_bias=False,
                  vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=FFN, num_hidden_layers=arguments.layers,
                  num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_SIZE,
                  max_position_embeddings=40960, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True,
                  torch_dtype="bfloat16")
    (arguments.folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors(arguments.layers):
        size = 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[name] = dict(dtype="BF16", shape=shape, data_offsets=[end, end + size])
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    draw = random.Random(1)
    # A prime number of values, so that no two rows are alike.
    values = struct.pack("<2000003H", *(0x3C00 + draw.getrandbits(8) + (draw.getrandbits(1) << 15)
                                        for _ in range(2000003)))
    ones = struct.pack("<H", 0x3F80)
    with open(arguments.folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors(arguments.layers):
            if len(shape) == 1:
                file.write(ones * shape[0])
                continue
            left, at = 2 * shape[0] * shape[1], 2 * draw.randrange(2000003)
            while left > 0:
                part = values[at:at + left]
                file.write(part)
                left, at = left - len(part), 0
    print(f"{arguments.folder}: {end // 2:,} parameters")


if __name__ == "__main__":
    main()
