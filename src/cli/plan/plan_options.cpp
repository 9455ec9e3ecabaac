// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_job.h"

namespace trireme::cli {
namespace {

constexpr const char* layouts_help =
    "Layout to price, as \"tp=8 sp pp=4 interleaved=3 zero=1 micro=2 full\"";

}  // namespace

std::vector<Option> plan_question_options() {
  return {
      {.name = "config",
       .help = "Configuration of a run (TOML) whose model, batch and layout are planned"},
      {.name = "--model", .help = "Model: a name in configs/models, a TOML file or a config.json"},
      {.name = "--machine", .help = "Machine: a name in machines/, or a machine file"},
      {.name = "--gpus", .kind = Kind::integer, .help = "Number of GPUs of the job"},
      {.name = "--batch", .kind = Kind::integer, .help = "Global batch size in sequences"},
      {.name = "--batch-tokens",
       .kind = Kind::number,
       .help = "Global batch size in tokens, instead of --batch"},
      {.name = "--seq-len", .kind = Kind::integer, .help = "Sequence length in tokens"},
      {.name = "--tokens",
       .kind = Kind::number,
       .help = "Tokens of the whole run, as 2e12; adds its duration and its cost"},
      {.name = "--price",
       .kind = Kind::number,
       .help = "Dollars per GPU-hour; default: the price in the machine's file"},
      {.name = "--critical-batch",
       .kind = Kind::number,
       .help = "Critical batch size in tokens: the one at which progress per token has halved"},
      {.name = "--layout", .help = layouts_help},
      {.name = "--from-megatron",
       .help = "Flags of a Megatron-LM job to plan, as one text, or a file with them"},
      {.name = "--from-torchtitan", .help = "TOML file of a TorchTitan job to plan"},
      {.name = "--from-hf",
       .help = "Hugging Face config.json, or its folder, of the model to plan"},
      {.name = "--stack",
       .help =
           "Training program whose costs are used: a name in stacks/, or a stack file; default: "
           "trireme"},
      {.name = "--grad-dtype",
       .help = "Dtype of gradients; default: the configuration's, or f32",
       .choices = {"f32", "bf16"}},
      {.name = "--master-dtype",
       .help =
           "Master weights of bf16 layouts: f32, or u16 (the low 16 bits of fp32; the bf16 weight "
           "has the high ones); default: the configuration's, or f32",
       .choices = {"f32", "u16"}},
      {.name = "--determinism",
       .help =
           "Determinism: l1 (sums in a fixed order, which costs time and memory) or fast; default: "
           "the configuration's, or l1",
       .choices = {"l1", "fast"}},
      {.name = "--memory-fraction",
       .kind = Kind::number,
       .fallback = "0.95",
       .help = "Part of a GPU's memory that a layout may use"},
      {.name = "--tp", .help = "Allowed degrees of tensor parallelism, as 1,2,8"},
      {.name = "--pp", .help = "Allowed degrees of pipeline parallelism, as 1,2,8"},
      {.name = "--cp",
       .help = "Allowed degrees of context parallelism, as 1,4; default: 1, and powers of two for "
               "sequences of at least 16,384 tokens"},
      {.name = "--cp-kind",
       .help = "Allowed kinds of context parallelism: ulysses, gather, ring, ulysses_gather, "
               "ulysses_ring; default: ulysses,gather,ulysses_gather"},
      {.name = "--ep", .help = "Allowed degrees of expert parallelism, as 1,2,8"},
      {.name = "--etp",
       .help = "Allowed numbers of ranks that share each expert, as 1,2; default: 1"},
      {.name = "--row-budget",
       .kind = Kind::number,
       .help = "Rows of experts that a rank has memory for, relative to equally busy experts; "
               "default: the configuration's, or 1.5"},
      {.name = "--expert-imbalance",
       .kind = Kind::number,
       .help = "Rows of the busiest rank along ep, relative to the mean; default: 1 (balanced)"},
      {.name = "--zero", .help = "Allowed ZeRO stages, as 1,3"},
      {.name = "--shard", .help = "Allowed numbers of ranks that shard one copy of the state"},
      {.name = "--chunks", .help = "Allowed numbers of pipeline stages per rank"},
      {.name = "--micro-batch", .help = "Allowed micro-batch sizes, in sequences"},
      {.name = "--schedule", .help = "Allowed pipeline schedules, by name"},
      {.name = "--recompute", .help = "Allowed recompute policies: none, selective, full"},
      {.name = "--precision",
       .help =
           "Allowed recipes of number formats, as bf16,fp8-tensor,fp8-block; default: bf16, and "
           "the one of the configuration"},
      {.name = "--unaudited",
       .kind = Kind::flag,
       .help = "Also price layouts that the engine cannot run (fp4)"},
  };
}

}  // namespace trireme::cli
