// SPDX-License-Identifier: Apache-2.0
#include "plan/convert/convert_torchtitan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "plan/convert/titan_origins.h"
#include "plan/import/from_torchtitan.h"
#include "plan/import/titan_keys.h"

namespace trireme::plan {
namespace {

// The number of ranks that a file leaves open, and the one to read it with.
struct Ranks {
  int64_t gpus = 0;
  bool is_open = false;
};

Ranks ranks_of(TitanKeys& keys, int64_t gpus) {
  if (gpus != 0 || keys.degree("data_parallel_shard_degree", -1) > 0) return {gpus, false};
  int64_t rest = 1;
  for (const char* key : {"tensor_parallel_degree", "context_parallel_degree",
                          "pipeline_parallel_degree", "data_parallel_replicate_degree"}) {
    rest = std::min(rest * keys.degree(key), max_described_gpus);
  }
  return {rest, true};
}

void convert_rate(TitanKeys& keys, Conversion& conversion) {
  config::LrScheduler& s = conversion.config.lr_scheduler;
  const auto older_warmup = keys.whole("training.warmup_steps", 0);
  s.warmup_steps = keys.whole("lr_scheduler.warmup_steps", 0).value_or(older_warmup.value_or(200));
  s.total_steps = keys.whole("lr_scheduler.total_steps").value_or(-1);
  const std::string type =
      keys.text("lr_scheduler.decay_type", "linear", {"linear", "sqrt", "cosine"});
  const auto older_min = keys.number("lr_scheduler.lr_min");
  s.min_lr_factor = keys.number("lr_scheduler.min_lr_factor").value_or(older_min.value_or(0));
  const auto ratio = keys.number("lr_scheduler.decay_ratio");
  s.decay_type = type == "cosine" ? "cosine" : "linear";
  if (ratio) {
    s.decay_type = "wsd";
    s.decay_ratio = *ratio;
  }
  if (type == "sqrt" || (ratio && type == "cosine")) {
    conversion.changed.push_back(
        fmt::format("a linear decay instead of lr_scheduler.decay_type = {}{}", type,
                    ratio ? " with decay_ratio" : ""));
  }
}

void convert_optimizer(TitanKeys& keys, Conversion& conversion) {
  config::Optimizer& o = conversion.config.optimizer;
  const std::string name = keys.text("optimizer.name", "AdamW");
  if (name != "AdamW" && name != "Adam") {
    keys.problem("optimizer.name",
                 fmt::format("found \"{}\"; AdamW can be converted. Trireme's other optimizer is "
                             "Muon: set optimizer.name after the conversion",
                             name));
  }
  o.lr = keys.number("optimizer.lr").value_or(8e-4);
  o.beta1 = keys.number("optimizer.beta1").value_or(0.9);
  o.beta2 = keys.number("optimizer.beta2").value_or(0.95);
  o.eps = keys.number("optimizer.eps").value_or(1e-8);
  o.weight_decay = keys.number("optimizer.weight_decay").value_or(0.1);
  if (name == "Adam" && o.weight_decay > 0) {
    conversion.changed.emplace_back("the decoupled weight decay of AdamW instead of Adam's");
  }
  conversion.config.training.max_norm = keys.number("training.max_norm").value_or(1);
}

void convert_checkpoints(TitanKeys& keys, Conversion& conversion) {
  config::Checkpoint& c = conversion.config.checkpoint;
  for (const char* key : {"checkpoint.enable_checkpoint", "checkpoint.enable"}) {
    c.enable = keys.boolean(key, c.enable);
  }
  const bool is_given = keys.has("checkpoint.enable") || keys.has("checkpoint.enable_checkpoint");
  if (!is_given) {
    conversion.changed.emplace_back(
        "checkpoints are written, although TorchTitan's default is none; checkpoint.enable "
        "switches them off");
  }
  const auto interval = keys.whole("checkpoint.interval");
  if (interval || is_given) c.interval = interval.value_or(500);
  c.folder = keys.text("checkpoint.folder", c.folder);
  const auto kept = keys.whole("checkpoint.keep_latest_k", 0);
  if (kept || is_given) c.keep_latest_k = kept.value_or(10);
  const std::string dtype =
      keys.text("checkpoint.export_dtype", "float32", {"float32", "bfloat16", "float16"});
  if (dtype == "bfloat16") c.export_dtype = "bf16";
  if (dtype == "float16") {
    conversion.changed.emplace_back("exports in f32 instead of checkpoint.export_dtype = float16");
  }
  const std::string weights = keys.text("checkpoint.initial_load_path", "");
  if (weights.empty()) return;
  if (keys.boolean("checkpoint.initial_load_in_hf", false)) {
    conversion.config.training.init_from = weights;
    return;
  }
  keys.problem("checkpoint.initial_load_path",
               "a checkpoint of PyTorch cannot be read; export it to Hugging Face form and set "
               "checkpoint.initial_load_in_hf, or remove the key");
}

void convert_rest(TitanKeys& keys, Conversion& conversion) {
  config::Config& c = conversion.config;
  c.job.dump_folder = keys.text("job.dump_folder", "");
  c.job.description = keys.text("job.description", "");
  c.training.steps = keys.whole("training.steps").value_or(10'000);
  const auto older_seed = keys.whole("training.seed", 0);
  c.debug.seed = keys.whole("debug.seed", 0).value_or(older_seed.value_or(0));
  c.metrics.log_freq = keys.whole("metrics.log_freq").value_or(10);
  if (keys.has("metrics.enable_tensorboard")) {
    c.metrics.enable_tensorboard = keys.boolean("metrics.enable_tensorboard", false);
  }
  c.metrics.save_tb_folder = keys.text("metrics.save_tb_folder", c.metrics.save_tb_folder);
  for (const char* key : {"validation.enabled", "validation.enable"}) {
    c.validation.enable = keys.boolean(key, c.validation.enable);
  }
  if (c.validation.enable) {
    c.validation.freq = keys.whole("validation.freq").value_or(10);
    c.validation.steps = keys.whole("validation.steps", -1).value_or(-1);
  }
}

// TorchTitan's choice of keeping parameters is that of ZeRO-3.
void convert_sharding(TitanKeys& keys, const Layout& layout, Conversion& conversion) {
  config::Parallelism& p = conversion.config.parallelism;
  const bool is_sharded = p.data_parallel_shard_degree != 1 || layout.cp > 1;
  p.zero_stage = is_sharded ? 3 : 0;
  p.fsdp_reshard_after_forward =
      is_sharded ? keys.text("parallelism.fsdp_reshard_after_forward", "default") : "default";
  if (keys.text("training.mixed_precision_reduce", "float32") == "bfloat16") {
    p.reduce_dtype = "bf16";
  }
}

void convert_batch(TitanKeys& keys, const Layout& layout, Conversion& conversion) {
  const bool has_global = keys.whole("training.global_batch_size", -1).value_or(-1) > 0;
  const int64_t local_batch = conversion.config.training.global_batch_size / layout.data_ranks();
  if (has_global) return;
  if (local_batch != layout.micro_batch) {
    keys.problem("parallelism.data_parallel_shard_degree",
                 "-1 leaves the global batch open, because a local batch has several micro-batches "
                 "of the pipeline: give training.global_batch_size, or convert with `trireme "
                 "convert-config --gpus N`");
    return;
  }
  conversion.config.training.global_batch_size = -1;
}

}  // namespace

Conversion convert_torchtitan(const std::string& text, const std::string& file,
                              const ConvertOptions& options, const FindStack& find) {
  TitanKeys keys(text, file);
  const Ranks ranks = ranks_of(keys, options.gpus);
  keys.throw_if_any();
  const Described described = from_torchtitan(text, file, ranks.gpus, find);
  Conversion conversion{.source = "TorchTitan's " + file};
  take_job(described, false, conversion);
  if (ranks.is_open) {
    convert_batch(keys, *described.layout, conversion);
    conversion.config.parallelism.data_parallel_shard_degree = -1;
  }
  convert_sharding(keys, *described.layout, conversion);
  convert_optimizer(keys, conversion);
  convert_rate(keys, conversion);
  convert_checkpoints(keys, conversion);
  convert_rest(keys, conversion);
  keys.throw_if_any();
  conversion.config.training.dataset_path = options.data;
  set_origins(
      titan_origins(), "TorchTitan", [&keys](std::string_view path) { return keys.has(path); },
      conversion);
  drop_others(keys.given(), titan_origins(), titan_drop_reasons(), conversion);
  return conversion;
}

}  // namespace trireme::plan
