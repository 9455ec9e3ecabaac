// SPDX-License-Identifier: Apache-2.0
#include "train/report/run_output.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "obs/sinks/tensorboard_sink.h"
#include "train/setup/absolute_paths.h"

namespace trireme::train {

RunOutput::RunOutput(const config::Config& c, obs::RunMode mode, const spec::Plan& plan,
                     const std::vector<ckpt::NamedBytes>& tokenizer, const obs::RunOwner& owner,
                     const base::ProgramId& program, int64_t resumed_from,
                     obs::JsonlSink::Copy copy)
    : owner_(owner),
      folder_(obs::RunDir::open(c.job.dump_folder, mode)),
      saver_(folder_.path() / c.checkpoint.export_folder, c, tokenizer,
             [this] { owner_.guarded([] {}); }),
      attempt_(owner.attempt()),
      metrics_(folder_.metrics(), owner.attempt(), obs::wall_seconds, std::move(copy)) {
  obs::keep_numbered(folder_.config());
  // `train run.json` continues or repeats the run from any folder.
  base::Json configuration = config::to_json(with_absolute_paths(c));
  configuration["program"] = {{"version", program.version}, {"commit", program.commit}};
  obs::write_file(folder_.config(), configuration.dump(2) + "\n");
  obs::write_file(folder_.path() / "plan.json", spec::to_json(plan).dump(2) + "\n");
  if (c.metrics.enable_tensorboard) {
    tensorboard_ =
        std::make_unique<obs::TensorboardSink>(folder_.path() / c.metrics.save_tb_folder);
  }
  const obs::AttemptStart start{
      .name = c.job.name, .program = program, .resumed_from = resumed_from};
  write([&] {
    metrics_.begin(start);
    if (tensorboard_) tensorboard_->begin(start);
  });
}

RunOutput::~RunOutput() {
  try {
    write_steps(true);
  } catch (const std::exception&) {  // fenced: the folder belongs to another process
  }
}

void RunOutput::begin_table(std::optional<obs::TableWriter>& table, const obs::TableShape& shape) {
  write([&] {
    if (!table) table.emplace(folder_.path() / (shape.table + ".bin"));
    table->begin(shape);
  });
}

void RunOutput::add_record(std::optional<obs::TableWriter>& table, int64_t step,
                           std::vector<float> values) {
  if (!table) return;
  write([&] {
    table->add({.step = step,
                .attempt = attempt_,
                .time = obs::wall_seconds(),
                .values = std::move(values)});
  });
}

void RunOutput::begin_ranks(const obs::TableShape& shape) { begin_table(ranks_, shape); }

void RunOutput::add_ranks(int64_t step, std::vector<float> values) {
  add_record(ranks_, step, std::move(values));
}

void RunOutput::begin_numerics(const obs::TableShape& shape) { begin_table(numerics_, shape); }

void RunOutput::add_numerics(int64_t step, std::vector<float> values) {
  add_record(numerics_, step, std::move(values));
}

void RunOutput::begin_layers(const std::vector<std::string>& names) {
  write([&] {
    if (!layers_) layers_.emplace(folder_.path() / "layers.bin");
    layers_->begin({.table = "layers", .rows = names, .columns = {"grad_norm"}, .about = "{}"});
  });
}

void RunOutput::write(const std::function<void()>& records) {
  try {
    owner_.guarded(records);
  } catch (const base::IoError& error) {  // the folder is not reachable at the moment
    base::log_warning("metrics of a step were not written: {}", error.what());
  }
}

void RunOutput::add(std::string_view kind, int64_t step, std::span<const obs::Metric> metrics) {
  write([&] {
    metrics_.step(kind, step, metrics);
    if (tensorboard_) tensorboard_->step(kind, step, metrics);
  });
}

double RunOutput::add_step(int64_t step, const engine::StepSignals& signals, int64_t total_tokens) {
  const double time = lines_.add(step, signals, total_tokens);
  if (!layers_ || signals.layer_grad_norms.empty()) return time;
  layer_norms_.push_back({.step = step,
                          .attempt = attempt_,
                          .time = obs::wall_seconds(),
                          .values = signals.layer_grad_norms});
  return time;
}

void RunOutput::add_logged_step(int64_t step, std::span<const obs::Metric> metrics,
                                uint64_t samples) {
  const std::span<const obs::Metric> all = lines_.extend(step, metrics);
  if (tensorboard_) {
    write([&] { tensorboard_->step("train", step, all); });
  }
  // A number has so many bits exactly.
  constexpr int exact_bits = 53;
  const auto low_bits = static_cast<double>(samples & ((uint64_t{1} << exact_bits) - 1));
  lines_.extend(step, std::array{obs::Metric{"samples", low_bits}});
  write_steps(true);
}

void RunOutput::write_steps(bool now) {
  if (lines_.is_empty() || !(now || lines_.is_due())) return;
  write([&] {
    metrics_.steps("train", lines_.lines());
    for (const obs::TableRecord& norms : layer_norms_) layers_->add(norms);
  });
  lines_.clear();
  layer_norms_.clear();
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
