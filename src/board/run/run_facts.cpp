// SPDX-License-Identifier: Apache-2.0
#include "board/run/run_facts.h"

#include <fmt/format.h>

#include <exception>

#include "analysis/read/run_state.h"
#include "base/error.h"
#include "board/run/json_file.h"
#include "board/run/secrets.h"
#include "obs/clock.h"
#include "obs/files/table_file.h"
#include "obs/run_owner.h"

namespace trireme::board {
namespace {

namespace fs = std::filesystem;

// Files that the analysis opens. A named pipe among them would make it wait.
constexpr const char* read_files[] = {
    "run.json",     "plan.json",    "prediction.json", "owner.json", "metrics.jsonl",
    "events.jsonl", "phases.jsonl", "ranks.bin",       "layers.bin", "numerics.bin"};

base::Json masked_file(const fs::path& path) {
  const base::Result<base::Json> file = read_json(path);
  return file ? masked(file.value()) : base::Json(nullptr);
}

// Returns an element of an array of the header of ranks.bin, or null.
base::Json at_rank(const base::Json& about, const char* key, size_t rank) {
  if (!about.is_object() || !about.contains(key) || !about[key].is_array()) return nullptr;
  return rank < about[key].size() ? about[key][rank] : base::Json(nullptr);
}

void add_ranks(const analysis::RunRecord& record, RunFacts& facts) {
  const obs::TableShape& shape = record.ranks_shape;
  const base::Json about = parse_json(shape.about).value_or(base::Json::object());
  facts.rank_columns = shape.columns;
  for (size_t rank = 0; rank < shape.rows.size(); ++rank) {
    facts.ranks.push_back({{"rank", rank},
                           {"node", at_rank(about, "nodes", rank)},
                           {"device", at_rank(about, "devices", rank)},
                           {"coord", at_rank(about, "coords", rank)}});
  }
  if (record.ranks.empty()) return;
  const obs::TableRecord& last = record.ranks.back();
  if (last.values.size() != shape.rows.size() * shape.columns.size()) return;
  facts.last_ranks_step = last.step;
  facts.last_ranks_time = last.time;
  for (size_t column = 0; column < shape.columns.size(); ++column) {
    std::vector<double>& values = facts.last_ranks[shape.columns[column]];
    for (size_t rank = 0; rank < shape.rows.size(); ++rank) {
      values.push_back(last.values[rank * shape.columns.size() + column]);
    }
  }
}

// Returns the rows of the last record of a table file.
std::vector<std::string> rows_of(const fs::path& file) {
  std::vector<std::string> rows;
  obs::TableReader(file).poll([&](const obs::TableShape& shape, const obs::TableRecord&) {
    if (rows != shape.rows) rows = shape.rows;
  });
  return rows;
}

void analyse(const fs::path& folder, double now, RunFacts& facts) {
  const analysis::RunRecord record = analysis::read_run(folder, now);
  facts.name = record.name;
  facts.group = record.group;
  facts.state = record.state;
  facts.total_steps = record.total_steps;
  facts.begin_time = record.begin_time;
  facts.last_time = record.last_time;
  facts.problems = record.problems;
  for (const obs::Event& event : record.events) {
    ++facts.events[std::string(obs::name_of(event.kind))];
  }
  add_ranks(record, facts);
  if (const auto owner = obs::read_owner(folder)) facts.epoch = owner->epoch;
  facts.diagnosis = analysis::diagnose(record);
  facts.ledger = analysis::read_ledger(folder);
}

}  // namespace

std::string name_of_folder(const fs::path& folder) {
  return fs::absolute(folder).lexically_normal().filename().string();
}

RunFacts first_facts_of(const fs::path& folder) {
  RunFacts facts;
  facts.name = name_of_folder(folder);
  facts.config = masked_file(folder / "run.json");
  const auto text_at = [&](const char* key) -> std::string {
    const base::Json& config = facts.config;
    if (!config.is_object() || !config.contains("job") || !config["job"].is_object()) return "";
    const base::Json value = config["job"].value(key, base::Json());
    return value.is_string() ? value.get<std::string>() : "";
  };
  if (const std::string name = text_at("name"); !name.empty()) facts.name = name;
  facts.group = text_at("group");
  if (facts.config.is_object() && facts.config.contains("training") &&
      facts.config["training"].is_object()) {
    const base::Json steps = facts.config["training"].value("steps", base::Json());
    if (steps.is_number()) facts.total_steps = steps.get<int64_t>();
  }
  if (is_plain_or_absent(folder / "owner.json") &&
      analysis::is_running(folder, obs::wall_seconds())) {
    facts.state = analysis::RunState::running;
  }
  return facts;
}

RunFacts read_facts(const fs::path& folder, double now) {
  RunFacts facts;
  facts.name = name_of_folder(folder);
  for (const char* name : read_files) {
    if (!is_plain_or_absent(folder / name)) {
      facts.failure = fmt::format("{}: is no regular file", name);
    }
  }
  facts.config = masked_file(folder / "run.json");
  facts.plan = masked_file(folder / "plan.json");
  facts.prediction = masked_file(folder / "prediction.json");
  if (facts.config.is_object() && facts.config.contains("program")) {
    facts.program = facts.config["program"];
  }
  try {
    if (facts.failure.empty()) {
      analyse(folder, now, facts);
      facts.layers = rows_of(folder / "layers.bin");
      facts.numerics = rows_of(folder / "numerics.bin");
      facts.checkpoints = read_checkpoints(folder, facts.config);
    }
  } catch (const std::exception& error) {
    // A damaged file must not end the board.
    facts.failure = error.what();
  }
  if (!facts.failure.empty()) facts.problems.push_back("not analysed: " + facts.failure);
  if (facts.prediction.is_object() && facts.prediction.contains("price_per_hour") &&
      facts.prediction["price_per_hour"].is_number()) {
    facts.price_per_hour = facts.prediction["price_per_hour"].get<double>();
  }
  return facts;
}

}  // namespace trireme::board
