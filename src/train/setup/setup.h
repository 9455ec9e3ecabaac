// SPDX-License-Identifier: Apache-2.0
// Makes device, plan and engine options from a configuration.
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
#include "kernels/warm_up.h"
#include "optim/lr_schedule.h"
#include "spec/plan.h"

namespace trireme::train {

// Returns `asked`, or for 0 the number of cores that this process may use (device/host_cores.h).
int thread_count(int64_t asked);

// Returns whether system.device selects a GPU of a machine with this status. Throws ConfigError for
// `auto` if only a missing library prevents the use of a GPU: such a run must not fall back to the
// CPU unnoticed.
bool takes_gpu(const config::System&, const device::GpuStatus&);
// takes_gpu() on this machine.
bool runs_on_gpu(const config::System&);
// Returns the configuration with precision.recipe resolved for this machine's device
// (config::settle_dtype).
config::Config settled(const config::Config&);

// A device and the planner's description of its kernels.
struct Platform {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<kernels::WarmUp> warm_up;  // null on a CPU
  spec::Backend backend;
  std::string hardware;      // "NVIDIA H200", or "CPU, 8 threads"
  int64_t memory_bytes = 0;  // of the whole GPU; 0: not known
  // Memory of the host for all ranks on it; not limited on a GPU.
  int64_t host_available_bytes = std::numeric_limits<int64_t>::max();

  bool is_gpu() const { return backend.name == "cuda"; }
};

// "auto" selects a GPU if one can be used, otherwise the CPU. `default_cache` is used if
// system.cache_folder is empty. Throws ConfigError with the reason for a device that this build or
// machine does not have.
Platform make_platform(const config::System&, const std::filesystem::path& default_cache = {});

// Describes how deterministic the platform is, and at what cost.
std::string determinism_text(const Platform&);

// REQUIRES: precision.recipe is settled.
spec::Plan make_plan(const config::Config&, const spec::ModelSpec&, const spec::Backend&);
engine::EngineOptions make_engine_options(const config::Config&);
optim::LrSchedule make_lr_schedule(const config::Config&);

}  // namespace trireme::train
