// SPDX-License-Identifier: Apache-2.0
#include "train/setup.h"

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "kernels/table.h"

namespace trireme::train {

int thread_count(int64_t asked) {
  constexpr int64_t most = 4096;  // as system.threads
  if (asked < 0 || asked > most) {
    throw base::ConfigError(
        fmt::format("{} threads: from 1 to {}, or 0 for one per core", asked, most));
  }
  if (asked > 0) return static_cast<int>(asked);
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

std::unique_ptr<device::Device> make_device(const config::System& system) {
  if (system.device != "cpu" && system.device != "auto") {
    throw base::ConfigError(
        fmt::format("device '{}': this build has cpu; auto chooses it", system.device));
  }
  return std::make_unique<device::CpuDevice>(
      kernels::cpu_kernels(), device::CpuDevice::Options{.threads = thread_count(system.threads)});
}

spec::Plan make_plan(const config::Config& c, const spec::ModelSpec& model) {
  spec::Recipe recipe = spec::recipe_from_name(c.training.dtype);
  recipe.grad = base::dtype_from_name(c.training.grad_dtype);
  const std::string& mode = c.activation_checkpoint.mode;
  const spec::Recompute recompute = mode == "full"        ? spec::Recompute::full
                                    : mode == "selective" ? spec::Recompute::selective
                                                          : spec::Recompute::none;
  return spec::one_rank_plan(
      model,
      {.microbatch_sequences = c.training.local_batch_size,
       .seq_len = c.training.seq_len,
       .microbatches = static_cast<int>(c.training.global_batch_size / c.training.local_batch_size),
       .recipe = recipe,
       .recompute = recompute},
      {});
}

engine::EngineOptions make_engine_options(const config::Config& c) {
  engine::EngineOptions o;
  o.seed = static_cast<uint64_t>(c.debug.seed);
  o.adamw = {.beta1 = static_cast<float>(c.optimizer.beta1),
             .beta2 = static_cast<float>(c.optimizer.beta2),
             .eps = static_cast<float>(c.optimizer.eps),
             .weight_decay = static_cast<float>(c.optimizer.weight_decay)};
  o.clip.kind = c.training.clip == "none"       ? kernels::ClipKind::none
                : c.training.clip == "adaptive" ? kernels::ClipKind::adaptive
                                                : kernels::ClipKind::fixed;
  o.clip.norm = static_cast<float>(c.training.max_norm);
  o.clip.guard_multiple = static_cast<float>(c.training.skip_norm_multiple);
  return o;
}

optim::LrSchedule make_lr_schedule(const config::Config& c) {
  const std::string& type = c.lr_scheduler.decay_type;
  const optim::LrSchedule schedule{.decay = type == "linear"   ? optim::Decay::linear
                                            : type == "cosine" ? optim::Decay::cosine
                                            : type == "wsd"    ? optim::Decay::wsd
                                                               : optim::Decay::constant,
                                   .peak = c.optimizer.lr,
                                   .warmup_steps = c.lr_scheduler.warmup_steps,
                                   .total_steps = c.lr_scheduler.total_steps,
                                   .min_factor = c.lr_scheduler.min_lr_factor,
                                   .decay_ratio = c.lr_scheduler.decay_ratio};
  optim::check(schedule);
  return schedule;
}

}  // namespace trireme::train
