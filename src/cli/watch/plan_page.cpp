// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/plan_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/error.h"
#include "base/text/json.h"
#include "cli/plan/sizes/plan_deadline.h"
#include "cli/plan/sizes/plan_sizes.h"
#include "cli/verbs.h"
#include "config/files/machine_file.h"
#include "config/files/model_file.h"
#include "config/files/stack_file.h"
#include "config/spelling.h"
#include "obs/clock.h"
#include "sim/picture.h"
#include "spec/layout/layout_text.h"

namespace trireme::cli {
namespace {

// The planner is busy, or a search took too long.
class TimeLimit : public base::Error {
  using Error::Error;
};

struct NamedFiles {
  const char* parameter;
  std::vector<std::string> names;
};

std::vector<std::string> shipped_stacks() {
  std::vector<std::string> names = config::stack_names(stack_folders());
  if (std::ranges::find(names, "trireme") == names.end()) names.emplace_back("trireme");
  return names;
}

std::vector<NamedFiles> shipped_files() {
  return {{"model", config::model_names(model_folders())},
          {"machine", config::machine_names(machine_folders())},
          {"stack", shipped_stacks()}};
}

// Names are found in any case of letters, as on a command line.
void check_shipped(const std::string& name, const std::string& value) {
  for (const NamedFiles& files : shipped_files()) {
    if (files.parameter != name) continue;
    if (config::in_any_case(value, {files.names.begin(), files.names.end()})) continue;
    throw base::ConfigError(
        fmt::format("{} '{}': must be one of {}; other files are planned with "
                    "`trireme plan`",
                    name, value, fmt::join(files.names, ", ")));
  }
}

// Returns the names of parameters: the options of a question, except those that name other files.
std::set<std::string> parameter_names() {
  std::set<std::string> names;
  for (const Option& option : plan_question_options()) {
    if (!option.name.starts_with("--") || option.name.starts_with("--from-")) continue;
    std::string name = option.name.substr(2);
    std::ranges::replace(name, '-', '_');
    names.insert(name);
  }
  names.insert({"days", "budget", "deadline"});
  return names;
}

base::Json choices_json() {
  base::Json json = base::Json::object();
  for (const NamedFiles& files : shipped_files()) {
    json[std::string(files.parameter) + "s"] = files.names;
  }
  base::Json& longest = json["max_seq"] = base::Json::object();  // of each model
  for (const std::string& model : config::model_names(model_folders())) {
    longest[model] = config::model_from_file(model, model_folders()).max_seq;
  }
  return json;
}

// {"toml": TEXT}, or {"toml": "", "missing": why there is none}.
base::Json config_json(const PlanReport& report) {
  const auto missing = [](const std::string& why) {
    return base::Json{{"toml", ""}, {"missing", why}};
  };
  if (!report.best) return missing("no layout fits");
  try {
    return {{"toml", plan_config(report.question, report.best->proposal)}};
  } catch (const base::ConfigError& error) {
    return missing(error.what());
  }
}

// {"svg": TEXT}, or {"svg": "", "missing": why there is no picture}.
base::Json picture_json(const PlanReport& report, int64_t max_actions) {
  const auto missing = [](const std::string& why) {
    return base::Json{{"svg", ""}, {"missing", why}};
  };
  const std::optional<PlannedLayout>& shown = report.best ? report.best : report.nearest;
  if (!shown) return missing("the planner has no layout");
  const plan::Proposal& p = shown->proposal;
  if (!p.confirmed.has_plan) {
    return missing(
        "the engine has no schedule for this layout: " +
        (p.confirmed.problem.empty() ? "it is one of another program" : p.confirmed.problem));
  }
  const schedule::Schedule& schedule = p.confirmed.plan.schedule;
  int64_t actions = 0;
  for (const auto& program : schedule.program) actions += std::ssize(program);
  if (actions > max_actions) {
    return missing(
        fmt::format("the schedule has {} actions; a picture has {} at most", actions, max_actions));
  }
  const PlanQuestion& q = report.question;
  const sim::Result played =
      plan::play_pipeline(q.job, q.machine, q.stack, p.confirmed.plan, p.layout);
  return {{"svg", sim::svg({{spec::to_text(p.layout), &schedule, &played, true}})}};
}

// Returns the words of `trireme plan` behind the program's name.
std::vector<std::string> call_of(const board::Request& request) {
  std::vector<std::string> words = plan_words(request);
  words.insert(words.begin(), "plan");
  return words;
}

}  // namespace

std::vector<std::string> plan_words(const board::Request& request) {
  const std::set<std::string> known = parameter_names();
  std::set<std::string> given;
  std::vector<std::string> words;
  for (const auto& [name, value] : request.query) {
    if (name == "token" || value.empty()) continue;
    if (!known.contains(name)) {
      throw base::ConfigError(fmt::format("'{}' is not a parameter of the planner; known are {}",
                                          name, fmt::join(known, ", ")));
    }
    if (!given.insert(name).second) {
      throw base::ConfigError(fmt::format("'{}' is given twice", name));
    }
    check_shipped(name, value);
    std::string option = "--" + name;
    std::ranges::replace(option, '_', '-');
    if (name == "unaudited") {
      if (value != "1") throw base::ConfigError("unaudited: must be 1 or absent");
      words.push_back(option);
    } else {
      words.push_back(option + "=" + value);
    }
  }
  return words;
}

plan::PlanProgress PlanPage::time_limit() const {
  const double begin = obs::steady_seconds();
  return [begin, this](std::string_view /*doing*/) {
    if (obs::steady_seconds() - begin < limits_.search_seconds) return;
    throw TimeLimit(fmt::format(
        "the search has taken more than {:.0f} s: limit the layouts (tp, pp, micro_batch), or run "
        "trireme plan with the same question",
        limits_.search_seconds));
  };
}

std::unique_lock<std::timed_mutex> PlanPage::turn() {
  std::unique_lock lock(mutex_, std::chrono::duration<double>(limits_.queue_seconds));
  if (!lock) throw TimeLimit("the planner is busy with earlier questions: ask again later");
  return lock;
}

base::Json PlanPage::answer_json_to(const board::Request& request) {
  const CommandSet commands = all_commands();
  const Call call = parse_call(commands, call_of(request));
  if (asks_sizes(call.args)) {
    const std::unique_lock<std::timed_mutex> lock = turn();
    return sizes_json(plan_sizes(call.args, time_limit()));
  }
  if (call.args.has("--deadline")) {
    const std::unique_lock<std::timed_mutex> lock = turn();
    return deadline_json(plan_deadline(call.args, time_limit()));
  }
  return answer_json(*answer_to(request));
}

PlanPage::Answer PlanPage::answer_to(const board::Request& request) {
  const std::vector<std::string> words = call_of(request);
  const std::string key = fmt::format("{}", fmt::join(words, "\n"));
  const CommandSet commands = all_commands();
  const PlanQuestion question = plan_question(parse_call(commands, words).args);
  const std::unique_lock<std::timed_mutex> lock = turn();
  const auto known = std::ranges::find(kept_, key, &std::pair<std::string, Answer>::first);
  if (known != kept_.end()) return known->second;
  auto answer = std::make_shared<const PlanReport>(plan_answer(question, time_limit()));
  if (kept_.size() >= limits_.kept_answers) kept_.erase(kept_.begin());
  kept_.emplace_back(key, answer);
  return answer;
}

std::optional<board::Response> PlanPage::handle(const board::Request& request) {
  try {
    if (request.path == "/api/plan/choices") return board::json_response(choices_json());
    if (request.path == "/api/plan") {
      return board::json_response(answer_json_to(request));
    }
    if (request.path == "/api/plan/toml") {
      return board::json_response(config_json(*answer_to(request)));
    }
    if (request.path == "/api/plan/schedule") {
      return board::json_response(picture_json(*answer_to(request), limits_.picture_actions));
    }
  } catch (const TimeLimit& error) {
    return board::error_response(503, error.what());
  } catch (const base::ConfigError& error) {
    return board::error_response(400, error.what());
  }
  return {};
}

}  // namespace trireme::cli
