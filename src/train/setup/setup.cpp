// SPDX-License-Identifier: Apache-2.0
#include "train/setup/setup.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/text/count_text.h"
#include "config/layout.h"
#include "device/accelerator.h"
#include "device/cpu/cpu_device.h"
#include "device/host_cores.h"
#include "device/host_memory.h"
#include "kernels/table.h"

namespace trireme::train {
namespace {

Platform cpu_platform(const config::System& system) {
  const int threads = thread_count(system.threads);
  Platform platform;
  platform.device = std::make_unique<device::CpuDevice>(
      kernels::cpu_kernels(), device::CpuDevice::Options{.threads = threads});
  platform.backend = spec::cpu_backend();
  platform.host_available_bytes = device::host_memory_available();
  platform.hardware = "CPU, " + base::count_text(threads, "thread");
  return platform;
}

Platform gpu_platform(const config::System& system, const device::GpuStatus& status,
                      const std::filesystem::path& default_cache) {
  const bool is_deterministic = system.determinism != "fast";
  Platform platform;
  platform.device = device::make_gpu(
      kernels::cuda_kernels(),
      {.index = static_cast<int>(system.gpu),
       .deterministic = is_deterministic,
       .cache_folder = system.cache_folder.empty() ? default_cache
                                                   : std::filesystem::path(system.cache_folder)});
  platform.warm_up = std::make_unique<kernels::WarmUp>(static_cast<int>(system.gpu));
  platform.backend = spec::cuda_backend(is_deterministic);
  const device::GpuInfo& gpu = status.gpus.at(static_cast<size_t>(system.gpu));
  platform.hardware = gpu.name;
  platform.memory_bytes = gpu.total_bytes;
  return platform;
}

}  // namespace

int thread_count(int64_t asked) {
  constexpr int64_t max_threads = 4096;  // as system.threads
  if (asked < 0 || asked > max_threads) {
    throw base::ConfigError(
        fmt::format("{} threads: from 1 to {}, or 0 for one per core", asked, max_threads));
  }
  if (asked > 0) return static_cast<int>(asked);
  return device::host_cores().count();
}

bool takes_gpu(const config::System& system, const device::GpuStatus& status) {
  if (system.device != "auto") return system.device == "cuda";
  if (status.lacks_library) {
    throw base::ConfigError(fmt::format(
        "device 'auto': {}; or choose the CPU with system.device = \"cpu\" (--device cpu)",
        status.problem));
  }
  return status.problem.empty();
}

bool runs_on_gpu(const config::System& system) {
  if (system.device != "auto") return system.device == "cuda";
  return takes_gpu(system, device::gpu_status());
}

config::Config settled(const config::Config& c) {
  if (c.precision.recipe != "auto") return c;
  return config::settle_dtype(c, runs_on_gpu(c.system));
}

Platform make_platform(const config::System& system, const std::filesystem::path& default_cache) {
  const std::string& name = system.device;
  if (name != "auto" && name != "cuda" && name != "cpu") {
    throw base::ConfigError(fmt::format("device '{}': must be one of auto, cuda, cpu", name));
  }
  if (system.determinism != "l1" && system.determinism != "fast") {
    throw base::ConfigError(
        fmt::format("determinism '{}': must be one of l1, fast", system.determinism));
  }
  if (name == "cpu") return cpu_platform(system);
  // Queried before the device is made, because the query touches every GPU.
  const device::GpuStatus status = device::gpu_status();
  if (!takes_gpu(system, status)) return cpu_platform(system);
  return gpu_platform(system, status, default_cache);
}

std::string determinism_text(const Platform& platform) {
  if (!platform.is_gpu())
    return "deterministic: repeated runs give the same bits, on any number of threads";
  if (platform.backend.deterministic) {
    return "deterministic (l1): repeated runs give the same bits; attention's backward sums dQ in "
           "a fixed order, which may take time and scratch that `fast` saves";
  }
  return "not deterministic (fast): repeated runs may differ in the last bits: cuDNN's standard "
         "attention backward sums dQ in varying order; GEMM algorithms are chosen by speed alone";
}

spec::Plan make_plan(const config::Config& c, const spec::ModelSpec& model,
                     const spec::Backend& backend) {
  TRIREME_CHECK(c.precision.recipe != "auto", "precision.recipe is not settled");
  return spec::solve_or_throw(model, config::workload_of(c), config::layout_of(c), backend);
}

engine::EngineOptions make_engine_options(const config::Config& c) {
  engine::EngineOptions o;
  o.seed = static_cast<uint64_t>(c.debug.seed);
  o.capture_ranks = c.comm.capture;
  o.adamw = {.beta1 = static_cast<float>(c.optimizer.beta1),
             .beta2 = static_cast<float>(c.optimizer.beta2),
             .eps = static_cast<float>(c.optimizer.eps),
             .weight_decay = static_cast<float>(c.optimizer.weight_decay)};
  o.muon = {.momentum = static_cast<float>(c.optimizer.momentum),
            .nesterov = c.optimizer.nesterov,
            .ns_steps = static_cast<int>(c.optimizer.ns_steps)};
  o.clip.kind = c.training.clip == "none"       ? kernels::ClipKind::none
                : c.training.clip == "adaptive" ? kernels::ClipKind::adaptive
                                                : kernels::ClipKind::fixed;
  o.clip.norm = static_cast<float>(c.training.max_norm);
  o.clip.guard_multiple = static_cast<float>(c.training.skip_norm_multiple);
  o.clip.skip_row = c.training.skip_row;
  o.loss_scale = {.fixed = static_cast<float>(c.precision.loss_scale),
                  .initial = static_cast<float>(c.precision.loss_scale_initial),
                  .min = static_cast<float>(c.precision.loss_scale_min),
                  .growth_interval = c.precision.loss_scale_growth_interval,
                  .hysteresis = static_cast<int32_t>(c.precision.loss_scale_hysteresis)};
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
