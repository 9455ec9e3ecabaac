// SPDX-License-Identifier: Apache-2.0
// From a configuration to the things that run: device, plan, engine options.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>

#include "config/config.h"
#include "device/accelerator.h"
#include "device/device.h"
#include "engine/engine.h"
#include "optim/lr_schedule.h"
#include "spec/plan.h"

namespace trireme::train {

// Threads to use: `asked`, or for 0 as many as the cores that this process may use
// (device/host_cores.h).
int thread_count(int64_t asked);

// Does system.device take a GPU of a machine with this status? Throws ConfigError for `auto` where
// a GPU could be used but for a library that is missing: a run that was meant for it must not take
// the CPU unnoticed.
bool takes_gpu(const config::System&, const device::GpuStatus&);
// takes_gpu() on this machine.
bool runs_on_gpu(const config::System&);
// The configuration with training.dtype as this machine's device has it (config::settle_dtype).
config::Config settled(const config::Config&);

// A device and what the planner must know of its kernels.
struct Platform {
  std::unique_ptr<device::Device> device;
  spec::Backend backend;
  std::string hardware;      // "NVIDIA H200", or "CPU, 8 threads"
  int64_t memory_bytes = 0;  // of the whole GPU; 0: not known
  // What the host has left for all ranks on it; not limited on a GPU.
  int64_t host_available_bytes = std::numeric_limits<int64_t>::max();

  bool is_gpu() const { return backend.name == "cuda"; }
};

// "auto" takes a GPU where one can be used, and the CPU otherwise. `default_cache` serves where
// system.cache_folder is empty. Throws ConfigError for a device that this build or machine does not
// have, with the reason.
Platform make_platform(const config::System&, const std::filesystem::path& default_cache = {});

// What the platform promises about repeated runs, and at what price, in words.
std::string determinism_text(const Platform&);

// REQUIRES: training.dtype is settled.
spec::Plan make_plan(const config::Config&, const spec::ModelSpec&, const spec::Backend&);
engine::EngineOptions make_engine_options(const config::Config&);
optim::LrSchedule make_lr_schedule(const config::Config&);

}  // namespace trireme::train
