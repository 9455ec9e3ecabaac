// SPDX-License-Identifier: Apache-2.0
// RunOutput: the folder of a run with configuration, plan, metrics and weights. Only the first rank
// has one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/program_id.h"
#include "config/config.h"
#include "obs/files/table_file.h"
#include "obs/run_dir.h"
#include "obs/run_owner.h"
#include "obs/sinks/jsonl_sink.h"
#include "obs/sinks/metric_sink.h"
#include "spec/plan.h"
#include "train/checkpointing/checkpointer.h"
#include "train/checkpointing/saver.h"
#include "train/record/step_lines.h"

namespace trireme::train {

class RunOutput {
 public:
  // Opens the folder, which `owner` has begun to write, and writes configuration and plan; those of
  // an earlier attempt are kept as run-1.json, ... Configuration and metrics name the program, and
  // the step that the run was resumed from (-1: none). Throws IoError.
  // `tokenizer`: see Saver. `copy` receives all lines of metrics; may be empty.
  RunOutput(const config::Config&, obs::RunMode, const spec::Plan&,
            const std::vector<ckpt::NamedBytes>& tokenizer, const obs::RunOwner& owner,
            const base::ProgramId& program, int64_t resumed_from, obs::JsonlSink::Copy copy);

  ~RunOutput();  // writes the lines that wait
  RunOutput(const RunOutput&) = delete;
  RunOutput& operator=(const RunOutput&) = delete;

  // The layers whose norms add_step() writes to layers.bin. May be called again.
  void begin_layers(const std::vector<std::string>& names);

  const std::filesystem::path& folder() const { return folder_.path(); }
  const Saver& saver() const { return saver_; }
  // All of them throw Fenced if another process has taken the folder over, and nothing else:
  // metrics that cannot be written do not end a run.
  void add(std::string_view kind, int64_t step, std::span<const obs::Metric> metrics);
  // A step has ended. Its line is written soon, and its norms by layer with it. Returns the time of
  // the line.
  double add_step(int64_t step, const engine::StepSignals&, int64_t total_tokens);
  // The further metrics of a logged step, in the same line, and there only the hash of its samples
  // (StepReport::sample_hash).
  void add_logged_step(int64_t step, std::span<const obs::Metric> metrics, uint64_t samples);
  void write_steps(bool now);  // all lines that wait, if it is time to do so or `now` is true
  // Recorded at the step that was saved, which is before the current step.
  void add(const SavedGeneration&);
  void add(int64_t step, const SavedWeights&);
  // Records of ranks.bin, by the shape of this attempt; begin_ranks() comes first.
  void begin_ranks(const obs::TableShape&);
  void add_ranks(int64_t step, std::vector<float> values);
  // Records of numerics.bin, likewise.
  void begin_numerics(const obs::TableShape&);
  void add_numerics(int64_t step, std::vector<float> values);

 private:
  void write(const std::function<void()>& records);
  void begin_table(std::optional<obs::TableWriter>&, const obs::TableShape&);
  void add_record(std::optional<obs::TableWriter>&, int64_t step, std::vector<float> values);

  const obs::RunOwner& owner_;
  obs::RunDir folder_;
  Saver saver_;
  const int64_t attempt_;
  obs::JsonlSink metrics_;
  std::unique_ptr<obs::MetricSink> tensorboard_;  // null: none
  std::optional<obs::TableWriter> layers_, ranks_, numerics_;
  StepLines lines_;
  std::vector<obs::TableRecord> layer_norms_;  // of the steps in lines_
};

}  // namespace trireme::train
