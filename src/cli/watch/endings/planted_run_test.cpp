// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/endings/planted_run_test.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "agent/exit_codes.h"
#include "analysis/made_run_test.h"
#include "base/error.h"
#include "base/text/json.h"
#include "cli/run/train_summary.h"
#include "cli/shell/report.h"
#include "obs/files/event_log.h"
#include "obs/files/table_file.h"
#include "train/record/step_lines.h"
#include "train/record/ending.h"

namespace trireme::cli {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

PlantedRun::PlantedRun(const std::filesystem::path& folder, int64_t total_steps)
    : folder_(folder), total_steps_(total_steps) {
  std::filesystem::create_directories(folder);
  const base::Json config = {{"job", {{"name", name()}}}, {"training", {{"steps", total_steps}}}};
  write(folder / "run.json", config.dump());
}

PlantedRun::~PlantedRun() { close(); }

void PlantedRun::close() {
  metrics_.reset();
  log_.reset();
  owner_.reset();
}

void PlantedRun::start(int64_t resumed_from) {
  owner_ = obs::RunOwner::hold(folder_);
  owner_->begin(run_);
  run_ = owner_->run();
  attempt_ = owner_->attempt();
  owner_->begun();
  metrics_ = std::make_unique<obs::JsonlSink>(folder_ / "metrics.jsonl", owner_->attempt());
  metrics_->begin({.name = name(), .program = {}, .resumed_from = resumed_from});
  log_ = std::make_unique<train::RunLog>(folder_, 0);
  log_->open(*owner_, {.name = name(), .group = "", .resumed_from = resumed_from});
  const int64_t saved = std::max<int64_t>(resumed_from, 0);
  summary_ = {.steps = saved, .saved_step = -1};
  summary_.resumed_from = saved;
  summary_.run_folder = folder_;
  step_ = saved;
}

void PlantedRun::steps(int64_t count, const std::function<PlantedStep(int64_t step)>& step) {
  for (int64_t i = 0; i < count; ++i) {
    const PlantedStep planted = step(++step_);
    engine::StepSignals signals;
    signals.index = summary_.attempt_steps++;
    signals.mean_loss = planted.loss;
    signals.grad_norm = 1;
    signals.was_skipped = planted.was_skipped || planted.scale_falls;
    signals.loss_scale = planted.scale_falls ? 2.0F : 0.0F;
    signals.next_loss_scale = planted.scale_falls ? 1.0F : 0.0F;
    signals.tokens = 16;
    metrics_->step("train", step_, train::signal_metrics(signals, 16 * step_));
    log_->add_step(step_, signals);
  }
  summary_.steps = step_;
}

void PlantedRun::ranks_report() {
  const auto records = static_cast<int>(step_ / 20);
  const analysis::RunRecord made = analysis::made_run({.records = records});
  obs::TableWriter ranks(folder_ / "ranks.bin");
  ranks.begin(made.ranks_shape);
  for (obs::TableRecord record : made.ranks) {
    record.attempt = owner_->attempt();
    ranks.add(record);
  }
}

void PlantedRun::save(const std::string& problem) {
  if (problem.empty()) {
    summary_.saved_step = step_;
    summary_.save_problem.clear();
    ++summary_.checkpoints.saves;
    log_->add({.kind = obs::EventKind::checkpoint,
               .step = step_,
               .text = fmt::format("the checkpoint of step {} is durable", step_)});
    return;
  }
  summary_.save_problem = problem;
  ++summary_.checkpoints.failed;
  log_->add({.kind = obs::EventKind::save_failed,
             .step = step_,
             .severity = obs::Severity::error,
             .text = fmt::format("the checkpoint of step {} was not saved: {}", step_, problem)});
}

void PlantedRun::exports(const std::string& problem) {
  summary_.export_problem = problem;
  const bool is_written = problem.empty();
  log_->add({.kind = is_written ? obs::EventKind::exported : obs::EventKind::export_failed,
             .step = step_,
             .severity = is_written ? obs::Severity::info : obs::Severity::error,
             .text = is_written ? "weights were written to weights/final"
                                : "the weights were not exported: " + problem});
}

void PlantedRun::stop() {
  summary_.was_stopped = true;
  log_->add({.kind = obs::EventKind::preempt,
             .step = step_,
             .text = fmt::format("a stop was requested; step {} is the last", step_)});
}

void PlantedRun::verdict(const std::string& text, int rank, const base::Json& data) {
  obs::EventLog(folder_).add({.time = 1,
                              .step = step_,
                              .attempt = attempt_,
                              .kind = obs::EventKind::verdict,
                              .severity = obs::Severity::error,
                              .rank = rank,
                              .text = text,
                              .data = data});
}

void PlantedRun::new_group() {
  step_ = std::max<int64_t>(summary_.saved_step, 0);
  log_->repeats_until(summary_.steps);
  log_->add({.kind = obs::EventKind::replan,
             .step = step_,
             .severity = obs::Severity::warning,
             .text = fmt::format("epoch 1 continues after step {}", step_),
             .data = {{"epoch", 1}, {"repeated_steps", summary_.steps - step_}}});
}

void PlantedRun::end() {
  summary_.divergence = log_->divergence(summary_.was_stopped);
  summary_.has_diverged = !summary_.divergence.empty();
  const train::Ending ending = train::ending_of(summary_);
  exit_code_ = exit_code_of(summary_);
  log_->ends(std::string(train::reason_of(ending)),
             ending.problem.empty() ? "ends" : ending.problem);
  close();
}

void PlantedRun::fail(const std::exception& error) {
  const bool has_diverged = dynamic_cast<const base::Diverged*>(&error) != nullptr;
  log_->fails(error.what(), has_diverged ? "diverged" : "failed");
  exit_code_ = exit_code_of(error);
  close();
}

void PlantedRun::kill() {
  exit_code_ = -1;
  close();
  forget_end();
}

void PlantedRun::lose_data() {
  verdict("data/kjv.bin became shorter while it was in use", 0,
          {{"signal", 7}, {"exit_code", agent::exit_failed}});
  exit_code_ = agent::exit_failed;
  close();
  forget_end();
}

// Leaves the folder as a process does that vanishes: without the end, and its holder is gone.
void PlantedRun::forget_end() {
  std::istringstream events(text_of(folder_ / "events.jsonl"));
  std::string kept, last, line;
  while (std::getline(events, line)) {
    if (!last.empty()) kept += last + "\n";
    last = line;
  }
  write(folder_ / "events.jsonl", kept);
  base::Json owner = base::Json::parse(text_of(folder_ / "owner.json"));
  owner["released"] = false;
  owner["process_start"] = 1;
  write(folder_ / "owner.json", owner.dump());
}

}  // namespace trireme::cli
