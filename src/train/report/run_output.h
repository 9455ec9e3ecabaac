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
#include "obs/sinks/metric_sink.h"
#include "spec/plan.h"
#include "train/checkpointing/checkpointer.h"
#include "train/checkpointing/saver.h"

namespace trireme::train {

class RunOutput {
 public:
  // Opens the folder, which `owner` has begun to write, and writes configuration and plan; those of
  // an earlier attempt are kept as run-1.json, ... Configuration and metrics name the program, and
  // the step that the run was resumed from (-1: none). Throws IoError.
  // `tokenizer`: see Saver.
  RunOutput(const config::Config&, obs::RunMode, const spec::Plan&,
            const std::vector<ckpt::NamedBytes>& tokenizer, const obs::RunOwner& owner,
            const base::ProgramId& program, int64_t resumed_from);

  const std::filesystem::path& folder() const { return folder_.path(); }
  const Saver& saver() const { return saver_; }
  // All throw Fenced if another process has taken the folder over, and nothing else: metrics
  // that cannot be written do not end a run.
  void add(std::string_view kind, int64_t step, std::span<const obs::Metric> metrics);
  // Recorded at the step that was saved, which is before the current step.
  void add(const SavedGeneration&);
  void add(int64_t step, const SavedWeights&);
  // Records of ranks.bin, by the shape of this attempt; begin_ranks() comes first.
  void begin_ranks(const obs::TableShape&);
  void add_ranks(int64_t step, std::vector<float> values);

 private:
  void write(const std::function<void(obs::MetricSink&)>& record);
  void guarded(const std::function<void()>& work);

  const obs::RunOwner& owner_;
  obs::RunDir folder_;
  Saver saver_;
  std::vector<std::unique_ptr<obs::MetricSink>> sinks_;
  std::optional<obs::TableWriter> ranks_;  // from begin_ranks() on
};

}  // namespace trireme::train
