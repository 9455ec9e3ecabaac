// SPDX-License-Identifier: Apache-2.0
#include "train/record/run_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "analysis/read/metric_lines.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "ckpt/marks/marks.h"
#include "obs/clock.h"
#include "obs/run_dir.h"
#include "obs/terminal/number_text.h"

namespace trireme::train {
namespace {

using obs::Phase;

// A record is written after a hundredth of the attempt's time, within these limits: a killed
// process loses the record of this time at most, and a run of weeks has some 10^5 records.
constexpr double min_interval_seconds = 0.1, max_interval_seconds = 10, interval_share = 0.01;
constexpr double ledger_interval_seconds = 30;
// Further skipped steps in a row have no event.
constexpr int64_t max_skip_events_in_a_row = 10;

// Seconds since 1970 that never go back: the wall clock at the start, and steady time since then.
obs::Clock attempt_clock() {
  return [wall = obs::wall_seconds(), steady = obs::steady_seconds()] {
    return wall + (obs::steady_seconds() - steady);
  };
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

std::string text_of(const analysis::DivergenceFound& found) {
  return fmt::format("diverged since step {}: {}", obs::grouped(found.first_step), found.text);
}

// Removes the first `overlap` seconds of a span, which another attempt has recorded.
void cut_begin(obs::PhaseRecord& record, double overlap) {
  record.begin += overlap;
  for (double& seconds : record.seconds) {
    const double cut = std::min(seconds, overlap);
    seconds -= cut;
    overlap -= cut;
  }
}

}  // namespace

RunLog::RunLog(const std::filesystem::path& folder, double started)
    : folder_(folder),
      alive_until_(folder.empty() ? 0 : last_lease(folder)),
      started_(started > 0 ? started : obs::wall_seconds()),
      phases_(Phase::startup, started_, attempt_clock()) {}

RunLog::~RunLog() {
  if (!is_open()) return;
  base::Json data = {{"reason", end_reason_}};
  if (onset_ >= 0) data["onset"] = onset_;
  try {
    phases_.change(Phase::closing);
    const bool is_bad = end_reason_ == "failed" || end_reason_ == "diverged";
    const obs::Event end = filled({.kind = obs::EventKind::end,
                                   .step = last_recorded_step_,
                                   .severity = is_bad ? obs::Severity::error : obs::Severity::info,
                                   .text = end_text_,
                                   .data = std::move(data)});
    if (listeners_ != nullptr) {
      listeners_->pass_on(obs::line_of(end));
      listeners_->finish();
      if (const int64_t dropped = listeners_->dropped(); dropped > 0) {
        add_alert(-1, Alert{"metrics_command",
                            fmt::format("metrics.command did not read {} lines", dropped)});
      }
    }
    ledger_.add(end);
    guarded([&] {
      events_->add(end);
      write_span();
      write_ledger();
    });
  } catch (const std::exception&) {  // fenced: the folder belongs to another process
  }
}

bool RunLog::guarded(const std::function<void()>& write) {
  try {
    owner_->guarded(write);
    return true;
  } catch (const base::IoError& error) {  // the folder is not reachable at the moment
    base::log_warning("a record of the run was not written: {}", error.what());
    return false;
  }
}

void RunLog::open(const obs::RunOwner& owner, const Start& start) {
  owner_ = &owner;
  run_ = owner.run();
  name_ = start.name;
  group_ = start.group;
  node_ = host_name();
  if (start.rules) rules_.emplace(*start.rules);
  listeners_ = start.listeners;
  EarlierAttempts earlier = read_earlier_attempts(folder_, alive_until_);
  spans_.emplace(folder_);
  events_.emplace(folder_);
  for (const obs::PhaseRecord& record : records_between(earlier, owner.attempt(), started_)) {
    spans_->add(record);
    earlier.ledger.add(record);
  }
  if (start.resumed_from > 0) {
    divergence_ = analysis::Divergence(analysis::first_loss(folder_ / obs::RunDir::metrics_name));
    if (earlier.end_reason == "diverged") {
      earlier_divergence_ = fmt::format("attempt {} diverged", earlier.attempt);
    }
  }
  // Two clocks, or a process that took over from one that was alive.
  overlap_ = earlier.attempt == 0 ? 0 : std::max(0.0, earlier.end - started_);
  repeated_until_ = earlier.last_step;
  ledger_ = std::move(earlier.ledger);
  flushed_at_ = ledger_at_ = started_;
  base::Json data = {{"ranks", start.ranks}, {"devices", start.devices}};
  if (start.price_per_hour) data["price_per_hour"] = *start.price_per_hour;
  if (start.resumed_from >= 0) data["resumed_from"] = start.resumed_from;
  write_span();  // so that an attempt that is killed soon is known to the next one
  const int64_t first = std::max<int64_t>(start.resumed_from, 0);
  add({.kind = obs::EventKind::start,
       .step = first,
       .text = fmt::format("attempt {} of {} starts on {} rank{}", owner.attempt(), name_,
                           start.ranks, start.ranks == 1 ? "" : "s"),
       .data = data});
  if (start.resumed_from < 0) return;
  const int64_t discarded = std::max<int64_t>(0, repeated_until_ - first);
  add({.kind = obs::EventKind::resume,
       .step = first,
       .text = fmt::format("resumed from the checkpoint of step {}", first),
       .data = {{"step", first}, {"discarded_steps", discarded}}});
}

obs::Phase RunLog::phase_of(int64_t step) const {
  return step <= repeated_until_ ? Phase::repeated : Phase::useful;
}

void RunLog::repeats_until(int64_t step) { repeated_until_ = std::max(repeated_until_, step); }

obs::Event RunLog::filled(Note note) const {
  obs::Event event;
  event.kind = note.kind;
  event.step = note.step;
  event.severity = note.severity;
  event.text = std::move(note.text);
  event.data = std::move(note.data);
  event.time = obs::wall_seconds();
  event.attempt = owner_->attempt();
  event.epoch = owner_->epoch();
  event.node = node_;
  return event;
}

std::string RunLog::add(Note note) {
  if (!is_open()) return "";
  const obs::Event event = filled(std::move(note));
  const std::string line = obs::line_of(event);
  if (const std::optional<StepAlarm> alarm = alarm_of(event)) alarm_ = alarm;
  ledger_.add(event);
  guarded([&] { events_->add(event); });
  if (listeners_ != nullptr) listeners_->pass_on(line);
  return line;
}

void RunLog::add_alert(int64_t step, const std::optional<Alert>& alert) {
  if (!alert) return;
  const std::string line = add({.kind = obs::EventKind::alert,
                                .step = step,
                                .severity = obs::Severity::warning,
                                .text = alert->text,
                                .data = {{"rule", alert->rule}}});
  base::log_warning("{}", alert->text);
  if (listeners_ != nullptr) listeners_->send_alert(line);
}

void RunLog::add_log(int64_t step, double step_seconds) {
  if (rules_) add_alert(step, rules_->add_log(step, step_seconds));
}

void RunLog::saved() {
  if (rules_) rules_->saved(obs::wall_seconds());
}

void RunLog::waited_for_data(double seconds) { move_useful(Phase::data_wait, seconds); }

void RunLog::waited_for_ranks(double seconds) { move_useful(Phase::straggler, seconds); }

// The time of repeated steps and of the first one stays in their classes.
void RunLog::move_useful(Phase to, double seconds) {
  if (phases_.current() != Phase::useful || !(seconds > 0)) return;
  phases_.change(Phase::useful);
  phases_.move(Phase::useful, to, seconds);
}

void RunLog::add_step(int64_t step, const engine::StepSignals& signals) {
  if (!is_open()) return;
  if (first_step_ == 0) first_step_ = step;
  last_step_ = last_recorded_step_ = step;
  last_step_at_ = obs::wall_seconds();
  if (rules_) add_alert(step, rules_->add_step(step, signals.was_skipped));
  watch_divergence(step, signals);
  const int64_t all = signals.tokens + signals.masked + signals.padding;
  if (step <= repeated_until_) {
    tokens_.repeated += all;
  } else {
    ++useful_steps_;
    if (signals.was_skipped) {
      ++useful_skipped_;
      tokens_.skipped += all;
    } else {
      tokens_ += {.trained = signals.tokens, .masked = signals.masked, .padding = signals.padding};
    }
  }
  skipped_in_a_row_ = signals.was_skipped ? skipped_in_a_row_ + 1 : 0;
  if (signals.was_skipped && skipped_in_a_row_ <= max_skip_events_in_a_row) add_skip(step, signals);
  if (signals.next_loss_scale < signals.loss_scale) add_scale(step, signals);
}

void RunLog::watch_divergence(int64_t step, const engine::StepSignals& signals) {
  const bool is_expected = signals.next_loss_scale < signals.loss_scale;
  const bool was_skipped = signals.was_skipped && !is_expected;
  divergence_.add(step, signals.mean_loss, was_skipped);
  const std::optional<analysis::DivergenceFound> found = divergence_.judge(true);
  if (was_skipped) {
    alarm_ = StepAlarm{"skip", fmt::format("skipped, its gradient norm is {:.4g}",
                                           static_cast<double>(signals.grad_norm))};
  }
  if (found) alarm_ = StepAlarm{ckpt::divergence_detector, text_of(*found)};
  const bool is_new = found && !has_diverged_;
  has_diverged_ = found.has_value();
  if (!is_new) return;
  add_alert(step, Alert{"diverged", text_of(*found) +
                                        "; the run is not stopped: lower optimizer.lr, or check "
                                        "the data"});
}

std::optional<StepAlarm> RunLog::take_alarm() { return std::exchange(alarm_, std::nullopt); }

std::string RunLog::divergence(bool goes_on) const {
  if (!is_open()) return "";
  if (last_recorded_step_ < 0) return earlier_divergence_;
  const std::optional<analysis::DivergenceFound> found = divergence_.judge(goes_on);
  return found ? text_of(*found) : "";
}

void RunLog::add_scale(int64_t step, const engine::StepSignals& signals) {
  add({.kind = obs::EventKind::loss_scale,
       .step = step,
       .severity = obs::Severity::info,
       .text = fmt::format(
           "the loss scale fell from {:.10g} to {:.10g}: the gradient of step {} is not "
           "finite",
           signals.loss_scale, signals.next_loss_scale, step),
       .data = {{"from", signals.loss_scale}, {"to", signals.next_loss_scale}}});
}

void RunLog::add_skip(int64_t step, const engine::StepSignals& signals) {
  const double norm = static_cast<double>(signals.grad_norm);
  base::Json data = base::Json::object();
  if (std::isfinite(norm)) {
    data["grad_norm"] = norm;
  } else {
    data["grad_norm"] = std::isnan(norm) ? "NaN" : "Infinity";
  }
  add({.kind = obs::EventKind::skip,
       .step = step,
       .severity = obs::Severity::warning,
       .text = fmt::format("step {} was skipped: its gradient norm is {:.4g}", step, norm),
       .data = data});
}

void RunLog::flush(bool now) {
  if (!is_open()) return;
  const double time = obs::wall_seconds();
  const double interval =
      std::clamp((time - started_) * interval_share, min_interval_seconds, max_interval_seconds);
  if (rules_) add_alert(last_recorded_step_, rules_->look(time));
  if (!now && time - flushed_at_ < interval) return;
  flushed_at_ = time;
  if (listeners_ != nullptr) {
    if (const std::optional<std::string> news = listeners_->news()) {
      add_alert(last_recorded_step_, Alert{"metrics_command", *news});
    }
  }
  guarded([this] { write_span(); });
  if (time - ledger_at_ < ledger_interval_seconds) return;
  ledger_at_ = time;
  guarded([this] { write_ledger(); });
}

void RunLog::write_span() {
  const obs::PhaseClock::Span span = phases_.take();
  obs::PhaseRecord record;
  record.attempt = owner_->attempt();
  record.begin = span.begin;
  record.end = span.end;
  record.first_step = first_step_;
  record.last_step = last_step_;
  record.seconds = span.seconds;
  if (useful_skipped_ > 0) {  // skipped steps take as long as others
    const double skipped = record.at(Phase::useful) * static_cast<double>(useful_skipped_) /
                           static_cast<double>(useful_steps_);
    record.at(Phase::useful) -= skipped;
    record.at(Phase::skipped) += skipped;
  }
  record.tokens = std::exchange(tokens_, {});
  record.skipped_steps = std::exchange(useful_skipped_, 0);
  record.current = phases_.current();
  if (overlap_ > 0) {
    const double cut = std::min(overlap_, record.end - record.begin);
    cut_begin(record, cut);
    overlap_ -= cut;
  }
  first_step_ = last_step_ = useful_steps_ = 0;
  ledger_.add(record);
  spans_->add(record);
}

void RunLog::write_ledger() {
  analysis::Ledger ledger = ledger_.ledger(true);
  ledger.run = run_;
  ledger.name = name_;
  ledger.group = group_;
  try {
    obs::write_file(folder_ / "ledger.json", analysis::to_json(ledger).dump(2) + "\n");
  } catch (const base::IoError& error) {
    base::log_warning("{}", error.what());
  }
}

void RunLog::ends(std::string reason, std::string text) {
  end_reason_ = std::move(reason);
  end_text_ = std::move(text);
}

void RunLog::fails(std::string text, std::string reason) {
  // Since then the ranks waited for the one that failed, or computed a step that is lost.
  if (last_step_at_ > 0) move_useful(Phase::detect, obs::wall_seconds() - last_step_at_);
  end_reason_ = std::move(reason);
  end_text_ = std::move(text);
}

}  // namespace trireme::train
