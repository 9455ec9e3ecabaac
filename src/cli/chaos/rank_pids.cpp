// SPDX-License-Identifier: Apache-2.0
#include "cli/chaos/rank_pids.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "base/system/regular_file.h"
#include "base/text/json_depth.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* processes_name = "processes.json";
constexpr int64_t max_json_bytes = int64_t{64} << 20;

template <class Number>
std::optional<Number> number_from(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Returns what can be read: a process may end meanwhile, and its files are then empty.
std::string proc_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Returns the parent of a process, from /proc/<id>/stat: "12 (name) S 11 ...". A name may contain
// blanks and parentheses.
std::optional<pid_t> parent_of(const fs::path& process) {
  const std::string text = proc_text(process / "stat");
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(name_end + 1));
  std::string state;
  pid_t parent = 0;
  if (!(rest >> state >> parent) || state == "Z") return std::nullopt;
  return parent;
}

std::optional<int> rank_of(const fs::path& process) {
  constexpr std::string_view name = "TRIREME_RANK=";
  const std::string environment = proc_text(process / "environ");
  for (size_t at = 0; at < environment.size();) {
    const size_t end = std::min(environment.find('\0', at), environment.size());
    const std::string_view word = std::string_view(environment).substr(at, end - at);
    if (word.starts_with(name)) return number_from<int>(word.substr(name.size()));
    at = end + 1;
  }
  return std::nullopt;
}

std::optional<RankPids> recorded_ranks(const fs::path& run_folder,
                                       const std::set<pid_t>& launchers) {
  const base::Result<std::string> text =
      base::read_regular_file(run_folder / processes_name, max_json_bytes);
  if (!text) return std::nullopt;
  const base::Json json = base::parse_shallow_json(text.value());
  if (!json.is_object()) return std::nullopt;
  const auto process = [&](const char* name) {
    const base::Json value = json.value(name, base::Json());
    return value.is_number_integer() ? value.get<pid_t>() : pid_t{0};
  };
  RankPids found{.ranks = {},
                 .is_recorded = true,
                 .supervisor = process("supervisor"),
                 .guardian = process("guardian"),
                 .spares = {}};
  if (!launchers.contains(found.supervisor) && !launchers.contains(found.guardian)) {
    return std::nullopt;
  }
  const auto ranks = json.find("ranks");
  if (ranks == json.end() || !ranks->is_array()) return std::nullopt;
  for (const base::Json& rank : *ranks) {
    const bool is_rank = rank.is_object() && rank.value("rank", base::Json()).is_number_integer() &&
                         rank.value("pid", base::Json()).is_number_integer();
    if (!is_rank) return std::nullopt;
    found.ranks[rank.at("rank").get<int>()] = rank.at("pid").get<pid_t>();
  }
  const auto spares = json.find("spares");
  if (spares == json.end() || !spares->is_array()) return found;
  for (const base::Json& spare : *spares) {
    if (spare.is_number_integer() && spare != 0) found.spares.push_back(spare.get<pid_t>());
  }
  return found;
}

}  // namespace

RankPids find_ranks(const fs::path& run_folder, const std::set<pid_t>& launchers,
                    const fs::path& proc) {
  if (std::optional<RankPids> recorded = recorded_ranks(run_folder, launchers)) return *recorded;
  RankPids found;
  std::error_code ended;
  for (fs::directory_iterator at(proc, ended), end; at != end && !ended; at.increment(ended)) {
    const auto process = number_from<pid_t>(at->path().filename().string());
    if (!process || !launchers.contains(parent_of(at->path()).value_or(0))) continue;
    if (const std::optional<int> rank = rank_of(at->path())) found.ranks[*rank] = *process;
  }
  return found;
}

bool is_alive(pid_t process) {
  return parent_of(fs::path("/proc") / fmt::format("{}", process)).has_value();
}

ProcessUse& ProcessUse::operator+=(const ProcessUse& other) {
  descriptors += other.descriptors;
  threads += other.threads;
  memory_bytes += other.memory_bytes;
  return *this;
}

std::optional<ProcessUse> use_of(pid_t process, const fs::path& proc) {
  const fs::path folder = proc / fmt::format("{}", process);
  ProcessUse use;
  std::istringstream lines(proc_text(folder / "status"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t value = 0;
    if (!(words >> name >> value)) continue;
    if (name == "Threads:") use.threads = value;
    if (name == "VmRSS:") use.memory_bytes = value * 1024;
  }
  std::error_code ended;
  for (fs::directory_iterator at(folder / "fd", ended), end; !ended && at != end;
       at.increment(ended)) {
    ++use.descriptors;
  }
  if (ended || use.threads == 0) return std::nullopt;
  return use;
}

}  // namespace trireme::cli
