// SPDX-License-Identifier: Apache-2.0
#include "train/report/run_output.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "obs/clock.h"
#include "obs/sinks/jsonl_sink.h"
#include "obs/sinks/tensorboard_sink.h"

namespace trireme::train {

RunOutput::RunOutput(const config::Config& c, obs::RunMode mode, const spec::Plan& plan,
                     const std::vector<ckpt::NamedBytes>& tokenizer, const obs::RunOwner& owner,
                     const base::ProgramId& program, int64_t resumed_from)
    : owner_(owner),
      folder_(obs::RunDir::open(c.job.dump_folder, mode)),
      saver_(folder_.path() / c.checkpoint.export_folder, c, tokenizer,
             [this] { owner_.guarded([] {}); }) {
  obs::keep_numbered(folder_.config());
  base::Json configuration = config::to_json(c);
  configuration["program"] = {{"version", program.version}, {"commit", program.commit}};
  obs::write_file(folder_.config(), configuration.dump(2) + "\n");
  obs::write_file(folder_.path() / "plan.json", spec::to_json(plan).dump(2) + "\n");
  sinks_.push_back(std::make_unique<obs::JsonlSink>(folder_.metrics(), owner.attempt()));
  if (c.metrics.enable_tensorboard) {
    sinks_.push_back(
        std::make_unique<obs::TensorboardSink>(folder_.path() / c.metrics.save_tb_folder));
  }
  const obs::AttemptStart start{
      .name = c.job.name, .program = program, .resumed_from = resumed_from};
  write([&start](obs::MetricSink& sink) { sink.begin(start); });
}

void RunOutput::begin_ranks(const obs::TableShape& shape) {
  guarded([&] {
    ranks_.emplace(folder_.path() / "ranks.bin");
    ranks_->begin(shape);
  });
}

void RunOutput::add_ranks(int64_t step, std::vector<float> values) {
  if (!ranks_) return;
  guarded([&] {
    ranks_->add({.step = step,
                 .attempt = owner_.attempt(),
                 .time = obs::wall_seconds(),
                 .values = std::move(values)});
  });
}

void RunOutput::write(const std::function<void(obs::MetricSink&)>& record) {
  guarded([&] {
    for (const auto& sink : sinks_) record(*sink);
  });
}

void RunOutput::guarded(const std::function<void()>& work) {
  try {
    owner_.guarded(work);
  } catch (const base::IoError& error) {  // the folder is not reachable at the moment
    base::log_warning("metrics of one step were not written: {}", error.what());
  }
}

void RunOutput::add(std::string_view kind, int64_t step, std::span<const obs::Metric> metrics) {
  write([&](obs::MetricSink& sink) { sink.step(kind, step, metrics); });
}

void RunOutput::add(const SavedGeneration& saved) {
  const std::array<obs::Metric, 4> metrics = {
      {{"checkpoint/stall_seconds", saved.stall_seconds},
       {"checkpoint/durable_seconds", saved.durable_seconds},
       {"checkpoint/bytes", static_cast<double>(saved.bytes)},
       {"checkpoint/bytes_per_second", static_cast<double>(saved.bytes) / saved.durable_seconds}}};
  add("checkpoint", saved.step, metrics);
}

void RunOutput::add(int64_t step, const SavedWeights& saved) {
  const std::array<obs::Metric, 2> metrics = {
      {{"export/seconds", saved.seconds}, {"export/bytes", static_cast<double>(saved.bytes)}}};
  add("export", step, metrics);
}

}  // namespace trireme::train
