// SPDX-License-Identifier: Apache-2.0
// From a configuration to the things that run: device, plan, engine options.
#pragma once

#include <memory>

#include "config/config.h"
#include "device/device.h"
#include "engine/engine.h"
#include "optim/lr_schedule.h"
#include "spec/plan.h"

namespace trireme::train {

// Threads to use: `asked`, or all cores of this machine for 0.
int thread_count(int64_t asked);

// Throws ConfigError for a device that this build or machine does not have.
std::unique_ptr<device::Device> make_device(const config::System&);

spec::Plan make_plan(const config::Config&, const spec::ModelSpec&);
engine::EngineOptions make_engine_options(const config::Config&);
optim::LrSchedule make_lr_schedule(const config::Config&);

}  // namespace trireme::train
