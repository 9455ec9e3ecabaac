// SPDX-License-Identifier: Apache-2.0
#include "obs/files/phase_log.h"

#include <numeric>
#include <string_view>

#include "base/system/regular_file.h"
#include "base/text/json.h"
#include "base/text/json_depth.h"
#include "obs/line_file.h"

namespace trireme::obs {
namespace {

struct TokenField {
  const char* name;
  int64_t TokenCounts::*field;
};
constexpr TokenField token_fields[] = {{"trained", &TokenCounts::trained},
                                       {"masked", &TokenCounts::masked},
                                       {"padding", &TokenCounts::padding},
                                       {"skipped", &TokenCounts::skipped},
                                       {"repeated", &TokenCounts::repeated}};

int64_t integer_at(const base::Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

PhaseSeconds seconds_from(const base::Json& json) {
  PhaseSeconds seconds{};
  for (const auto& [name, value] : json.items()) {
    if (!value.is_number()) continue;
    const Phase phase = phase_from(name).value_or(Phase::unknown);
    seconds[static_cast<size_t>(phase)] += value.get<double>();
  }
  return seconds;
}

}  // namespace

TokenCounts& TokenCounts::operator+=(const TokenCounts& more) {
  for (const TokenField& field : token_fields) this->*field.field += more.*field.field;
  return *this;
}

base::Json to_json(const TokenCounts& tokens) {
  base::Json json = base::Json::object();
  for (const TokenField& field : token_fields) json[field.name] = tokens.*field.field;
  return json;
}

base::Json to_json(const PhaseSeconds& seconds) {
  base::Json json = base::Json::object();
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (seconds[i] != 0) json[std::string(name_of(static_cast<Phase>(i)))] = seconds[i];
  }
  return json;
}

double PhaseRecord::sum() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

std::string line_of(const PhaseRecord& record) {
  base::Json json = {{"attempt", record.attempt}, {"begin", record.begin}, {"end", record.end}};
  if (record.last_step > 0) {
    json["first_step"] = record.first_step;
    json["last_step"] = record.last_step;
  }
  json["seconds"] = to_json(record.seconds);
  if (record.tokens != TokenCounts{}) json["tokens"] = to_json(record.tokens);
  if (record.skipped_steps > 0) json["skipped_steps"] = record.skipped_steps;
  json["current"] = name_of(record.current);
  if (record.is_of_next) json["by_next_attempt"] = true;
  return json.dump() + "\n";
}

std::optional<PhaseRecord> phase_record_from(const base::Json& json) {
  if (!json.is_object()) return {};
  if (!json.contains("attempt") || !json["attempt"].is_number_integer()) return {};
  for (const char* name : {"begin", "end"}) {
    if (!json.contains(name) || !json[name].is_number()) return {};
  }
  if (!json.contains("seconds") || !json["seconds"].is_object()) return {};
  PhaseRecord record{.attempt = json["attempt"].get<int64_t>(),
                     .begin = json["begin"].get<double>(),
                     .end = json["end"].get<double>(),
                     .first_step = integer_at(json, "first_step"),
                     .last_step = integer_at(json, "last_step"),
                     .seconds = seconds_from(json["seconds"]),
                     .tokens = {},
                     .skipped_steps = integer_at(json, "skipped_steps")};
  if (json.contains("tokens") && json["tokens"].is_object()) {
    for (const TokenField& field : token_fields) {
      record.tokens.*field.field = integer_at(json["tokens"], field.name);
    }
  }
  if (json.contains("current") && json["current"].is_string()) {
    record.current = phase_from(json["current"].get<std::string>()).value_or(Phase::unknown);
  }
  record.is_of_next = json.contains("by_next_attempt");
  return record;
}

PhaseLog::PhaseLog(const std::filesystem::path& folder)
    : file_(cut_partial_line(folder / file_name), OutputFile::Mode::append) {}

void PhaseLog::add(const PhaseRecord& record) { file_.add(line_of(record)); }

int64_t read_phases(const std::filesystem::path& folder,
                    const std::function<void(const PhaseRecord&)>& record) {
  int64_t damaged = 0;
  const base::LinesRead read =
      base::read_lines(folder / PhaseLog::file_name, {}, [&](std::string_view line) {
        if (const auto span = phase_record_from(base::parse_shallow_json(line))) {
          record(*span);
        } else {
          ++damaged;
        }
      });
  return damaged + read.too_long;
}

}  // namespace trireme::obs
