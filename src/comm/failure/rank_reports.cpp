// SPDX-License-Identifier: Apache-2.0
// Reports of ranks and verdicts in the store.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text/json_depth.h"
#include "comm/failure/verdict.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {
namespace {

constexpr std::array<const char*, 6> kind_names = {"died",   "stalled", "failed",
                                                   "fenced", "stopped", "unfit"};

// As verdict_text(), but may be empty.
std::string one_line(const std::string& text) { return text.empty() ? text : verdict_text(text); }

}  // namespace

std::string position_key(int rank) { return fmt::format("rank/{}/position", rank); }

std::vector<RankReport> read_reports(Store& store, int world) {
  std::vector<RankReport> reports(static_cast<size_t>(world));
  // In parts: a reply of the store has a maximum size, and other clients are served in between.
  constexpr int part_ranks = 512;
  for (int begin = 0; begin < world; begin += part_ranks) {
    const int end = std::min(world, begin + part_ranks);
    std::vector<std::string> keys;
    for (int rank = begin; rank < end; ++rank) {
      keys.push_back(position_key(rank));
      keys.push_back(Store::gone_key(std::to_string(rank)));
    }
    const auto values = store.read(keys);
    for (int rank = begin; rank < end; ++rank) {
      RankReport& report = reports[static_cast<size_t>(rank)];
      const size_t at = 2 * static_cast<size_t>(rank - begin);
      if (const auto& stored = values[at]) {
        report.position = position_from(stored->text, world);
        report.silent_s = stored->age_s;
      }
      if (const auto& gone = values[at + 1]) {
        report.ended = "exited without reporting an error";
        report.departure = integer_from(gone->text).value_or(0);
      }
    }
  }
  return reports;
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
