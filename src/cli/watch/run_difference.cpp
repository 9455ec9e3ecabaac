// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/run_difference.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/text/json.h"
#include "base/text/printable.h"
#include "board/run/flat_config.h"
#include "board/run/json_file.h"
#include "board/run/secrets.h"
#include "obs/terminal/table.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct Difference {
  std::string key;
  std::optional<std::string> first, second;  // none: the run has no such key
};

std::map<std::string, std::string> config_of(const std::string& folder) {
  const fs::path path = fs::path(folder) / "run.json";
  const base::Result<base::Json> file = board::read_json(path);
  if (!file) throw base::IoError(fmt::format("{}: {}", path.string(), file.reason()));
  return board::flat_config(board::masked(file.value()));
}

std::vector<Difference> differences_of(const std::map<std::string, std::string>& first,
                                       const std::map<std::string, std::string>& second) {
  std::map<std::string, Difference> all;
  for (const auto& [key, text] : first) all[key].first = text;
  for (const auto& [key, text] : second) all[key].second = text;
  std::vector<Difference> found;
  for (auto& [key, one] : all) {
    if (one.first == one.second) continue;
    one.key = key;
    found.push_back(std::move(one));
  }
  return found;
}

base::Json json_of(const std::optional<std::string>& text) {
  return text ? base::Json(*text) : base::Json(nullptr);
}

}  // namespace

int print_difference(const Args& args, const std::vector<std::string>& folders) {
  if (folders.size() != 2) {
    throw base::ConfigError(fmt::format(
        "--diff: compares two runs; {} given, as in trireme runs --diff runs/kjv runs/bf16",
        folders.size() == 1 ? "one folder is" : fmt::format("{} folders are", folders.size())));
  }
  for (const char* option : {"--filter", "--sort", "--reverse", "--group"}) {
    if (args.is_given(option)) {
      throw base::ConfigError(
          fmt::format("--diff: does not list runs, so {} means nothing", option));
    }
  }
  const std::vector<Difference> found =
      differences_of(config_of(folders[0]), config_of(folders[1]));
  if (args.wants_json()) {
    base::Json list = base::Json::array();
    for (const Difference& one : found) {
      list.push_back({{"key", one.key}, {"values", {json_of(one.first), json_of(one.second)}}});
    }
    const base::Json out = {{"ok", true}, {"folders", folders}, {"differences", std::move(list)}};
    fmt::print("{}\n", out.dump(-1, ' ', false, base::Json::error_handler_t::replace));
    return 0;
  }
  if (found.empty()) {
    fmt::print("the configurations are equal\n");
    return 0;
  }
  std::vector<std::vector<std::string>> rows;
  for (const Difference& one : found) {
    rows.push_back({base::printable(one.key), base::printable(one.first.value_or("(none)")),
                    base::printable(one.second.value_or("(none)"))});
  }
  const obs::Column titles[] = {{"key", obs::Align::left},
                                {base::printable(folders[0]), obs::Align::left},
                                {base::printable(folders[1]), obs::Align::left}};
  fmt::print("{}", obs::table_text(titles, rows));
  return 0;
}

}  // namespace trireme::cli
