// SPDX-License-Identifier: Apache-2.0
#include "cli/args.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <memory>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace trireme::cli {

// Binds the options of one verb to a subcommand, and collects their values after parsing.
struct Parser {
  const Verb* verb = nullptr;
  CLI::App* app = nullptr;
  std::map<std::string, std::vector<std::string>> values;
  std::map<std::string, bool> flags;
  bool json = false;

  void bind(CLI::App& parent, const std::string& name) {
    app = parent.add_subcommand(name, verb->summary);
    app->footer("\n" + verb->details);
    for (const Option& option : verb->options) add(option);
    app->add_flag("--json", json, "One JSON object on stdout; messages stay on stderr");
    if (verb->takes_overrides) app->allow_extras();
  }

  void add(const Option& option) {
    if (option.kind == Kind::flag) {
      app->add_flag(option.name, flags[option.name], option.help);
      return;
    }
    CLI::Option* added = app->add_option(option.name, values[option.name], option.help);
    if (option.kind != Kind::list) added->expected(1);
    if (option.is_required) added->required();
    if (option.kind == Kind::integer) {
      added->check(CLI::TypeValidator<int64_t>("INTEGER"))->type_name("INTEGER");
    }
    if (option.kind == Kind::number) {
      added->check(CLI::TypeValidator<double>("NUMBER"))->type_name("NUMBER");
    }
    if (!option.choices.empty()) added->check(CLI::IsMember(option.choices));
    if (!option.fallback.empty()) added->default_str(option.fallback);
  }

  Args collect() const {
    Args args;
    args.values_ = values;
    for (const Option& option : verb->options) {
      std::vector<std::string>& found = args.values_[option.name];
      if (option.kind == Kind::flag) {
        found = {flags.at(option.name) ? "1" : "0"};
      } else if (found.empty() && !option.fallback.empty()) {
        found = {option.fallback};
      }
    }
    args.values_["--json"] = {json ? "1" : "0"};
    if (verb->takes_overrides) args.overrides_ = app->remaining();
    return args;
  }
};

namespace {

int report(const std::exception& error, bool json, int code) {
  base::log(base::LogLevel::error, error.what());
  if (json) {
    fmt::print("{}\n", base::Json{{"ok", false}, {"error", error.what()}}.dump());
  }
  return code;
}

const std::vector<std::string>& values_of(
    const std::map<std::string, std::vector<std::string>>& all, const std::string& name) {
  const auto found = all.find(name);
  TRIREME_CHECK(found != all.end(), "the verb has no option '{}'", name);
  return found->second;
}

std::string single(const std::vector<std::string>& values, const std::string& name) {
  TRIREME_CHECK(values.size() == 1, "option '{}' has {} values", name, values.size());
  return values.front();
}

}  // namespace

bool Args::has(const std::string& name) const { return !values_of(values_, name).empty(); }

std::string Args::text(const std::string& name) const {
  const auto& values = values_of(values_, name);
  return values.empty() ? "" : single(values, name);
}

int64_t Args::integer(const std::string& name) const {
  return std::stoll(single(values_of(values_, name), name));
}

double Args::number(const std::string& name) const {
  return std::stod(single(values_of(values_, name), name));
}

bool Args::flag(const std::string& name) const {
  return single(values_of(values_, name), name) == "1";
}

const std::vector<std::string>& Args::list(const std::string& name) const {
  return values_of(values_, name);
}

int run_command(const std::vector<Verb>& verbs, int argc, const char* const* argv) {
  CLI::App app{"Trireme plans, trains, watches and recovers the pretraining of language models."};
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  std::map<std::string, CLI::App*> groups;
  std::vector<std::unique_ptr<Parser>> parsers;
  for (const Verb& verb : verbs) {
    auto parser = std::make_unique<Parser>();
    parser->verb = &verb;
    const size_t blank = verb.name.find(' ');
    if (blank == std::string::npos) {
      parser->bind(app, verb.name);
    } else {
      const std::string group = verb.name.substr(0, blank);
      CLI::App*& parent = groups[group];
      if (parent == nullptr) {
        parent = app.add_subcommand(group, "Verbs: see trireme " + group + " --help");
        parent->require_subcommand(1);
      }
      parser->bind(*parent, verb.name.substr(blank + 1));
    }
    parsers.push_back(std::move(parser));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  for (const auto& parser : parsers) {
    if (!parser->app->parsed()) continue;
    try {
      return parser->verb->run(parser->collect());
    } catch (const base::ConfigError& error) {
      return report(error, parser->json, 2);
    } catch (const std::exception& error) {
      return report(error, parser->json, 1);
    }
  }
  return 2;
}

}  // namespace trireme::cli
