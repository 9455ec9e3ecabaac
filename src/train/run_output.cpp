// SPDX-License-Identifier: Apache-2.0
#include "train/run_output.h"

#include <array>

#include "base/json.h"
#include "obs/jsonl_sink.h"
#include "obs/tensorboard_sink.h"

namespace trireme::train {

RunOutput::RunOutput(const config::Config& c, obs::RunMode mode, const spec::Plan& plan)
    : folder_(obs::RunDir::open(c.job.dump_folder, mode)),
      saver_(folder_.path() / c.checkpoint.export_folder, c) {
  obs::write_file(folder_.config(), config::to_json(c).dump(2) + "\n");
  obs::write_file(folder_.path() / "plan.json", spec::to_json(plan).dump(2) + "\n");
  sinks_.push_back(std::make_unique<obs::JsonlSink>(folder_.metrics()));
  if (c.metrics.enable_tensorboard) {
    sinks_.push_back(
        std::make_unique<obs::TensorboardSink>(folder_.path() / c.metrics.save_tb_folder));
  }
}

void RunOutput::add(int64_t step, std::span<const obs::Metric> metrics) {
  for (const auto& sink : sinks_) sink->step(step, metrics);
}

void RunOutput::add(const SavedGeneration& saved) {
  const std::array<obs::Metric, 3> metrics = {
      {{"checkpoint/stall_seconds", saved.stall_seconds},
       {"checkpoint/durable_seconds", saved.durable_seconds},
       {"checkpoint/bytes_per_second", static_cast<double>(saved.bytes) / saved.durable_seconds}}};
  add(saved.step, metrics);
}

}  // namespace trireme::train
