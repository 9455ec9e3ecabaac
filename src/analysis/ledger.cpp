// SPDX-License-Identifier: Apache-2.0
#include "analysis/ledger.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "base/error.h"
#include "base/system/regular_file.h"
#include "base/text/json.h"
#include "base/text/json_depth.h"
#include "obs/files/event_log.h"
#include "obs/run_dir.h"
#include "obs/run_owner.h"

namespace trireme::analysis {
namespace {

using obs::Phase;

double at(const obs::PhaseSeconds& seconds, Phase phase) {
  return seconds[static_cast<size_t>(phase)];
}
double sum(const obs::PhaseSeconds& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

std::string text_at(const base::Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

bool has_failed(const LedgerAttempt& attempt) {
  return attempt.end_reason == "failed" || attempt.end_reason == "diverged" ||
         attempt.end_reason == "died";
}

// `next`: the attempt after it; null if there is none. The work that a failure destroyed is known
// when it has been repeated.
LedgerFailure failure_of(const LedgerAttempt& failed, const LedgerAttempt* next) {
  LedgerFailure failure;
  failure.attempt = failed.attempt;
  failure.time = failed.end;
  failure.step = failed.last_step;
  failure.reason = failed.end_text;
  failure.lost_seconds = at(failed.unflushed, Phase::repeated);
  failure.detect_seconds = failed.own_detect_seconds;
  if (next != nullptr) {
    failure.lost_seconds +=
        at(next->seconds, Phase::repeated) - at(next->unflushed, Phase::repeated);
    failure.lost_tokens = next->tokens.repeated;
    failure.detect_seconds += at(next->seconds, Phase::detect) - next->own_detect_seconds;
    for (const Phase phase : {Phase::abort, Phase::reform, Phase::queue, Phase::startup,
                              Phase::restore, Phase::warmup}) {
      failure.restart_seconds += at(next->seconds, phase);
    }
  }
  const LedgerAttempt& priced = next != nullptr ? *next : failed;
  if (priced.price_per_hour) {
    failure.lost_dollars =
        priced.dollars_per_second() *
        (failure.lost_seconds + failure.detect_seconds + failure.restart_seconds);
  }
  return failure;
}

void add_sums(Ledger& ledger, const LedgerAttempt& attempt) {
  for (size_t i = 0; i < ledger.seconds.size(); ++i) {
    ledger.seconds[i] += attempt.seconds[i];
    ledger.device_hours[i] += attempt.seconds[i] * static_cast<double>(attempt.devices) / 3600;
    ledger.dollars[i] += attempt.seconds[i] * attempt.dollars_per_second();
  }
  ledger.tokens += attempt.tokens;
  ledger.has_dollars = ledger.has_dollars && attempt.price_per_hour.has_value();
}

}  // namespace

double LedgerAttempt::sum_error_seconds() const { return end - begin - sum(seconds); }

double LedgerAttempt::dollars_per_second() const {
  return price_per_hour.value_or(0) * static_cast<double>(devices) / 3600;
}

double Ledger::useful_share() const {
  const double all = sum(seconds);
  return all > 0 ? at(seconds, Phase::useful) / all : 0;
}

double Ledger::unknown_share() const {
  const double all = sum(seconds);
  return all > 0 ? at(seconds, Phase::unknown) / all : 0;
}

void LedgerBuilder::add(const obs::PhaseRecord& record) {
  const auto [found, is_new] = attempts_.try_emplace(record.attempt);
  LedgerAttempt& attempt = found->second;
  if (is_new || attempt.end == 0) attempt.begin = record.begin;
  attempt.attempt = record.attempt;
  attempt.end = record.end;
  for (size_t i = 0; i < record.seconds.size(); ++i) {
    attempt.seconds[i] += record.seconds[i];
    if (record.is_of_next) attempt.unflushed[i] += record.seconds[i];
  }
  attempt.tokens += record.tokens;
  if (record.last_step > 0) {
    attempt.steps += record.last_step - record.first_step + 1;
    attempt.last_step = record.last_step;
  }
  if (attempt.steps > 0) attempt.own_detect_seconds += record.at(Phase::detect);
}

void LedgerBuilder::add(const obs::Event& event) {
  if (event.kind == obs::EventKind::verdict) verdicts_[event.attempt] = event.text;
  if (event.kind != obs::EventKind::start && event.kind != obs::EventKind::end) return;
  LedgerAttempt& attempt = attempts_[event.attempt];
  attempt.attempt = event.attempt;
  if (event.kind == obs::EventKind::end) {
    attempt.end_reason = text_at(event.data, "reason");
    attempt.end_text = event.text;
    return;
  }
  const auto devices = event.data.find("devices"), price = event.data.find("price_per_hour");
  if (devices != event.data.end() && devices->is_number_integer()) {
    attempt.devices = std::max<int64_t>(1, devices->get<int64_t>());
  }
  if (price != event.data.end() && price->is_number())
    attempt.price_per_hour = price->get<double>();
}

Ledger LedgerBuilder::ledger(bool is_running) const {
  Ledger ledger;
  ledger.has_dollars = !attempts_.empty();
  for (auto it = attempts_.begin(); it != attempts_.end(); ++it) {
    LedgerAttempt attempt = it->second;
    if (attempt.end == 0) continue;  // it has no spans
    const bool is_last = std::next(it) == attempts_.end();
    if (attempt.end_reason.empty()) attempt.end_reason = is_last && is_running ? "running" : "died";
    const auto verdict = verdicts_.find(attempt.attempt);
    if (has_failed(attempt) && verdict != verdicts_.end()) attempt.end_text = verdict->second;
    if (attempt.end_reason == "died" && attempt.end_text.empty()) {
      attempt.end_text = "its process ended without a record: killed, or its host was lost";
    }
    add_sums(ledger, attempt);
    ledger.attempts.push_back(std::move(attempt));
  }
  for (size_t i = 0; i < ledger.attempts.size(); ++i) {
    if (!has_failed(ledger.attempts[i])) continue;
    const LedgerAttempt* next = i + 1 < ledger.attempts.size() ? &ledger.attempts[i + 1] : nullptr;
    ledger.failures.push_back(failure_of(ledger.attempts[i], next));
  }
  return ledger;
}

Ledger read_ledger(const std::filesystem::path& folder) {
  LedgerBuilder builder;
  (void)obs::read_phases(folder, [&](const obs::PhaseRecord& record) { builder.add(record); });
  for (const obs::Event& event : obs::read_events(folder)) builder.add(event);
  std::string run;
  bool is_running = false;
  try {
    if (const auto owner = obs::read_owner(folder)) run = owner->run;
    is_running = !obs::RunOwner::refusal(folder, false).empty();
  } catch (const base::IoError&) {  // a damaged owner.json says nothing about the ledger
  }
  Ledger ledger = builder.ledger(is_running);
  ledger.run = run;
  constexpr int64_t max_config_bytes = int64_t{64} << 20;
  const base::Result<std::string> text =
      base::read_regular_file(folder / obs::RunDir::config_name, max_config_bytes);
  const base::Json config = text ? base::parse_shallow_json(text.value()) : base::Json();
  if (config.is_object() && config.contains("job") && config["job"].is_object()) {
    ledger.name = text_at(config["job"], "name");
    ledger.group = text_at(config["job"], "group");
  }
  return ledger;
}

Ledger sum_of(const std::vector<Ledger>& runs) {
  Ledger all;
  all.has_dollars = !runs.empty();
  for (const Ledger& run : runs) {
    all.group = run.group;
    all.has_dollars = all.has_dollars && run.has_dollars;
    for (size_t i = 0; i < all.seconds.size(); ++i) {
      all.seconds[i] += run.seconds[i];
      all.device_hours[i] += run.device_hours[i];
      all.dollars[i] += run.dollars[i];
    }
    all.tokens += run.tokens;
    all.attempts.insert(all.attempts.end(), run.attempts.begin(), run.attempts.end());
    all.failures.insert(all.failures.end(), run.failures.begin(), run.failures.end());
  }
  return all;
}

base::Json to_json(const Ledger& ledger) {
  base::Json attempts = base::Json::array(), failures = base::Json::array();
  for (const LedgerAttempt& attempt : ledger.attempts) {
    attempts.push_back({{"attempt", attempt.attempt},
                        {"begin", attempt.begin},
                        {"end", attempt.end},
                        {"end_reason", attempt.end_reason},
                        {"steps", attempt.steps},
                        {"devices", attempt.devices},
                        {"seconds", obs::to_json(attempt.seconds)},
                        {"sum_error_seconds", attempt.sum_error_seconds()}});
  }
  for (const LedgerFailure& failure : ledger.failures) {
    failures.push_back({{"attempt", failure.attempt},
                        {"time", failure.time},
                        {"step", failure.step},
                        {"reason", failure.reason},
                        {"lost_seconds", failure.lost_seconds},
                        {"lost_tokens", failure.lost_tokens},
                        {"lost_dollars", nullptr},
                        {"detect_seconds", failure.detect_seconds},
                        {"restart_seconds", failure.restart_seconds}});
    if (failure.lost_dollars) failures.back()["lost_dollars"] = *failure.lost_dollars;
  }
  base::Json json = {{"run", ledger.run}, {"name", ledger.name}, {"group", ledger.group}};
  const LedgerAttempt last = ledger.attempts.empty() ? LedgerAttempt{} : ledger.attempts.back();
  json["devices"] = last.devices;
  json["price_per_hour"] = nullptr;
  if (last.price_per_hour) json["price_per_hour"] = *last.price_per_hour;
  json["attempts"] = std::move(attempts);
  json["seconds"] = obs::to_json(ledger.seconds);
  json["device_hours"] = obs::to_json(ledger.device_hours);
  json["dollars"] = nullptr;
  if (ledger.has_dollars) json["dollars"] = obs::to_json(ledger.dollars);
  json["tokens"] = obs::to_json(ledger.tokens);
  json["useful_share"] = ledger.useful_share();
  json["unknown_share"] = ledger.unknown_share();
  json["failures"] = std::move(failures);
  return json;
}

}  // namespace trireme::analysis
