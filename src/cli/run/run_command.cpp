// SPDX-License-Identifier: Apache-2.0
// Runs a call and returns its exit code.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>

#include "agent/exit_codes.h"
#include "base/error.h"
#include "cli/launch/rank_errors.h"
#include "cli/shell/args.h"
#include "cli/shell/report.h"
#include "config/spelling.h"

namespace trireme::cli {
namespace {

// All ranks of a run have the same command line: only rank 0 reports an error in it.
int report_bad_call(const std::string& message, bool wants_json) {
  if (is_reported_by_rank_zero()) return agent::exit_bad_call;
  return report(message, wants_json, agent::exit_bad_call);
}

// Replaces `-V` and `--version` by the verb version.
std::vector<std::string> call_words(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty() && (words.front() == "-V" || words.front() == "--version")) {
    words.front() = "version";
  }
  return words;
}

// Throws IoError, except if the reader has gone away while SIGPIPE is ignored.
void flush_output() {
  if (std::fflush(stdout) != 0 && errno != EPIPE) {
    throw base::IoError(fmt::format("standard output cannot be written: {}",
                                    std::generic_category().message(errno)));
  }
}

int run_call(const CommandSet& commands, const std::vector<std::string>& words, bool wants_json) {
  const bool has_no_verb =
      words.empty() || commands.has_group(fmt::format("{}", fmt::join(words, " ")));
  if (has_no_verb) {
    fmt::print("{}", help_text(commands, words));
    flush_output();
    return agent::exit_bad_call;
  }
  Call call;
  try {
    call = parse_call(commands, words);
  } catch (const base::ConfigError& error) {
    return report_bad_call(error.what(), wants_json);
  }
  int code = agent::exit_done;
  if (call.verb == nullptr) {
    fmt::print("{}", call.help);
  } else {
    code = call.verb->run(call.args);
  }
  flush_output();
  return code;
}

}  // namespace

bool CommandSet::has_group(const std::string& name) const {
  return std::any_of(groups.begin(), groups.end(),
                     [&](const VerbGroup& group) { return group.name == name; });
}

std::string unknown_verb(const CommandSet& commands, const std::vector<std::string>& words) {
  std::string name;
  bool is_known = true;
  for (const std::string& word : words) {
    if (word.starts_with("-")) break;
    name += (name.empty() ? "" : " ") + word;
    const auto is_verb = [&](const Verb& verb) { return verb.name == name; };
    if (std::any_of(commands.verbs.begin(), commands.verbs.end(), is_verb)) break;
    is_known = commands.has_group(name);
    if (!is_known) break;
  }
  if (is_known) return "";
  std::vector<std::string_view> names;
  for (const Verb& verb : commands.verbs) names.push_back(verb.name);
  const auto best = config::nearest(name, names);
  return fmt::format("'{}' is not a verb{}; verbs are {}", name,
                     best ? fmt::format(", did you mean '{}'?", *best) : "",
                     fmt::join(names, ", "));
}

int run_command(const CommandSet& commands, int argc, const char* const* argv) {
  const std::vector<std::string> words = call_words(argc, argv);
  const bool wants_json = std::find(words.begin(), words.end(), "--json") != words.end();
  if (const std::string problem = unknown_verb(commands, words); !problem.empty()) {
    return report_bad_call(problem, wants_json);
  }
  try {
    return run_call(commands, words, wants_json);
  } catch (const std::exception& error) {
    return report_error(error, wants_json);
  }
}

}  // namespace trireme::cli
