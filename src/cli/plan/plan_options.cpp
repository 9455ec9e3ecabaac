// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_job.h"

namespace trireme::cli {
namespace {

constexpr const char* layouts_help =
    "A layout in words, as \"tp=8 sp pp=4 interleaved=3 zero=1 micro=2 full\"";

}  // namespace

std::vector<Option> plan_question_options() {
  return {
      {.name = "config", .help = "TOML file of a run: its model, batch and layout"},
      {.name = "--model", .help = "A model of configs/models, a TOML file or a config.json"},
      {.name = "--machine", .help = "A machine of machines/, or a file like them"},
      {.name = "--gpus", .kind = Kind::integer, .help = "GPUs of the job"},
      {.name = "--batch", .kind = Kind::integer, .help = "Sequences of a step"},
      {.name = "--batch-tokens", .kind = Kind::number, .help = "Tokens of a step, in their place"},
      {.name = "--seq-len", .kind = Kind::integer, .help = "Tokens of a sequence"},
      {.name = "--tokens",
       .kind = Kind::number,
       .help = "Tokens of the whole run, as 2e12: says how long it takes and what it costs"},
      {.name = "--price",
       .kind = Kind::number,
       .help = "Dollars for one GPU and hour; else what the machine's file states"},
      {.name = "--critical-batch",
       .kind = Kind::number,
       .help = "Tokens of a step at which progress by token has fallen to half"},
      {.name = "--layout", .help = layouts_help},
      {.name = "--from-megatron", .help = "Flags of Megatron-LM, as one text"},
      {.name = "--from-torchtitan", .help = "TOML file of TorchTitan"},
      {.name = "--from-hf", .help = "config.json of Hugging Face, or its folder"},
      {.name = "--stack",
       .help = "Price as this program would run it: a name in stacks/, or a file like them; else "
               "Trireme"},
      {.name = "--grad-dtype",
       .help = "In which gradients are kept; else the configuration's, or f32",
       .choices = {"f32", "bf16"}},
      {.name = "--master-dtype",
       .help = "Master weights of bf16 layouts: f32, or u16 (the 16 bits that bf16 lacks of fp32); "
               "else the configuration's, or f32",
       .choices = {"f32", "u16"}},
      {.name = "--determinism",
       .help = "l1: sums in a fixed order, which costs time and memory; fast: in any; else the "
               "configuration's, or l1",
       .choices = {"l1", "fast"}},
      {.name = "--memory-fraction",
       .kind = Kind::number,
       .fallback = "0.95",
       .help = "Part of a GPU's memory that a layout may take"},
      {.name = "--tp", .help = "Only these degrees of tensor parallelism, as 1,2,8"},
      {.name = "--pp", .help = "Only these degrees of pipeline parallelism"},
      {.name = "--cp", .help = "Only these degrees of context parallelism; 1 unless given"},
      {.name = "--ep", .help = "Only these degrees of expert parallelism"},
      {.name = "--zero", .help = "Only these stages of ZeRO"},
      {.name = "--shard", .help = "Only so many ranks that share a copy of the state"},
      {.name = "--chunks", .help = "Only so many stages of a rank"},
      {.name = "--micro-batch", .help = "Only these sizes, in sequences"},
      {.name = "--schedule", .help = "Only these schedules, by name"},
      {.name = "--recompute", .help = "Only these: none, selective, full"},
      {.name = "--precision", .help = "fp32, bf16, fp8, fp4; bf16 unless given"},
      {.name = "--unaudited",
       .kind = Kind::flag,
       .help = "Also layouts that the engine cannot run yet (cp, ep, fp8)"},
  };
}

}  // namespace trireme::cli
