// SPDX-License-Identifier: Apache-2.0
// Reports of ranks and verdicts in the store.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text/json_depth.h"
#include "comm/clock.h"
#include "comm/failure/verdict.h"

namespace trireme::comm {
namespace {

constexpr std::array<const char*, 7> kind_names = {"died",    "stalled", "failed",   "fenced",
                                                   "stopped", "unfit",   "no_memory"};

// As verdict_text(), but may be empty.
std::string one_line(const std::string& text) { return text.empty() ? text : verdict_text(text); }

}  // namespace

std::vector<RankReport> reports_of(std::span<const MemberFacts> ranks, double now) {
  std::vector<RankReport> reports;
  for (const MemberFacts& facts : ranks) {
    RankReport report;
    if (facts.state) {
      report.position = position_from(*facts.state, static_cast<int>(ranks.size()));
      report.silent_s = now - facts.seen_at;
    }
    if (facts.departure) {
      report.ended = "exited without reporting an error";
      report.departure = *facts.departure;
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

std::vector<RankReport> read_reports(Store& store, int world) {
  std::vector<std::string> names;
  for (int rank = 0; rank < world; ++rank) names.push_back(std::to_string(rank));
  const double now = seconds_of(Clock::now());
  return reports_of(membership_of(store)->members(names, now), now);
}

std::string verdict_text(const std::string& text) {
  std::string shown;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    shown += code < 0x20 || code == 0x7f ? ' ' : c;
  }
  return shown.find_first_not_of(' ') == std::string::npos ? "aborted" : shown;
}

const char* name_of(VerdictKind kind) { return kind_names.at(static_cast<size_t>(kind)); }

std::string stored_form(const Verdict& verdict) {
  const base::Json json = {{"kind", name_of(verdict.kind)},
                           {"ranks", verdict.ranks},
                           {"node", verdict.node},
                           {"cause", verdict.cause},
                           {"text", verdict.text}};
  return json.dump(-1, ' ', false, base::Json::error_handler_t::replace);
}

Verdict verdict_from(const std::string& stored) {
  const base::Json json = base::parse_shallow_json(stored);
  const auto text_at = [&](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (!json.is_object()) return {.text = verdict_text(stored)};
  const auto kind = std::find(kind_names.begin(), kind_names.end(), text_at("kind"));
  Verdict verdict{.node = one_line(text_at("node")),
                  .cause = one_line(text_at("cause")),
                  .text = verdict_text(text_at("text"))};
  if (kind != kind_names.end()) {
    verdict.kind = static_cast<VerdictKind>(kind - kind_names.begin());
  }
  if (const auto ranks = json.find("ranks"); ranks != json.end() && ranks->is_array()) {
    for (const base::Json& rank : *ranks) {
      constexpr int64_t max_rank = 1 << 30;
      if (!rank.is_number_integer()) continue;
      const auto number = rank.get<int64_t>();
      if (number >= 0 && number < max_rank) verdict.ranks.push_back(static_cast<int>(number));
    }
  }
  return verdict;
}

Verdict settle_verdict(Store& store, const Verdict& verdict) {
  return verdict_from(store.set_once(verdict_key, stored_form(verdict)));
}

std::optional<Verdict> stored_verdict(Store& store) {
  const auto stored = store.try_get(verdict_key);
  if (!stored) return std::nullopt;
  return verdict_from(*stored);
}

}  // namespace trireme::comm
