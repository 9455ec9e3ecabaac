// SPDX-License-Identifier: Apache-2.0
#include "cli/args.h"
#include "cli/exit_codes.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/check.h"
#include "base/error.h"
#include "cli/rank_voice.h"
#include "cli/report.h"
#include "config/spelling.h"

namespace trireme::cli {
namespace {

// Decimal only: what is checked here is what Args::integer reads.
std::optional<int64_t> integer_from(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> number_from(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

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
    // Otherwise "[a,b]" would be read as two values.
    if (option.kind != Kind::list) added->expected(1)->allow_extra_args(false);
    if (option.is_required) added->required();
    if (option.kind == Kind::integer) {
      added
          ->check([](const std::string& text) {
            return integer_from(text) ? "" : fmt::format("'{}' is not an integer", text);
          })
          ->type_name("INTEGER");
    }
    if (option.kind == Kind::number) {
      added
          ->check([](const std::string& text) {
            return number_from(text) ? "" : fmt::format("'{}' is not a number", text);
          })
          ->type_name("NUMBER");
    }
    if (!option.choices.empty()) added->check(CLI::IsMember(option.choices));
    if (!option.fallback.empty()) added->default_str(option.fallback);
  }

  Args collect() const {
    Args args;
    for (const Option& option : verb->options) {
      std::vector<std::string>& found = args.values_[option.name];
      if (option.kind == Kind::flag) {
        found = {flags.at(option.name) ? "1" : "0"};
        continue;
      }
      found = app->get_option(option.name)->results();  // as written; conversion would drop "{}"
      if (found.empty() && !option.fallback.empty()) found = {option.fallback};
    }
    args.values_["--json"] = {json ? "1" : "0"};
    if (verb->takes_overrides) args.overrides_ = app->remaining();
    return args;
  }
};

namespace {

// Every rank of a run was called by the same words: one of them says what is wrong with these.
int report_bad_call(const std::string& message, bool wants_json) {
  if (is_reported_by_rank_zero()) return exit_bad_call;
  return report(message, wants_json, exit_bad_call);
}

// The problem, if the words before the first option do not name a verb.
std::optional<std::string> unknown_verb(const std::vector<Verb>& verbs,
                                        const std::vector<std::string>& words) {
  if (words.empty() || words.front().starts_with("-")) return std::nullopt;
  std::vector<std::string_view> names;
  for (const Verb& verb : verbs) {
    const std::string group = words.front() + " ";
    if (verb.name == words.front()) return std::nullopt;
    if (verb.name.starts_with(group)) {
      if (words.size() < 2 || words[1].starts_with("-")) return std::nullopt;
      if (verb.name == group + words[1]) return std::nullopt;
    }
    names.push_back(verb.name);
  }
  const bool is_in_group = std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    return name.starts_with(words.front() + " ");
  });
  const std::string name = is_in_group ? words[0] + " " + words[1] : words[0];
  const auto best = config::nearest(name, names);
  return fmt::format("'{}' is not a verb{}; verbs are {}", name,
                     best ? fmt::format(", did you mean '{}'?", *best) : "",
                     fmt::join(names, ", "));
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
  const auto value = integer_from(single(values_of(values_, name), name));
  TRIREME_CHECK(value.has_value(), "option '{}' is not an integer", name);
  return *value;
}

int Args::small_integer(const std::string& name) const {
  const int64_t value = integer(name);
  constexpr int least = std::numeric_limits<int>::min(), most = std::numeric_limits<int>::max();
  if (value < least || value > most) {
    throw base::ConfigError(fmt::format("{} {}: from {} to {}", name, value, least, most));
  }
  return static_cast<int>(value);
}

double Args::number(const std::string& name) const {
  const auto value = number_from(single(values_of(values_, name), name));
  TRIREME_CHECK(value.has_value(), "option '{}' is not a number", name);
  return *value;
}

bool Args::flag(const std::string& name) const {
  return single(values_of(values_, name), name) == "1";
}

const std::vector<std::string>& Args::list(const std::string& name) const {
  return values_of(values_, name);
}

Args parse_words(const Verb& verb, const std::vector<std::string>& words) {
  CLI::App app;
  Parser parser;
  parser.verb = &verb;
  parser.bind(app, verb.name);
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // as the library wants them
  reversed.push_back(verb.name);
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::Error& error) {
    throw base::ConfigError(
        fmt::format("{}; run `trireme {} --help` for what is allowed", error.what(), verb.name));
  }
  return parser.collect();
}

int run_command(const std::vector<Verb>& verbs, int argc, const char* const* argv) {
  CLI::App app{"Trireme plans, trains and recovers the pretraining of language models."};
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
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const bool wants_json = std::find(words.begin(), words.end(), "--json") != words.end();
  if (const auto problem = unknown_verb(verbs, words)) return report_bad_call(*problem, wants_json);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return report_bad_call(fmt::format("{}; run with --help for what is allowed", error.what()),
                           wants_json);
  }
  for (const auto& parser : parsers) {
    if (!parser->app->parsed()) continue;
    try {
      const int code = parser->verb->run(parser->collect());
      // Where SIGPIPE is ignored, a reader that has gone away is no error.
      if (std::fflush(stdout) != 0 && errno != EPIPE) {
        throw base::IoError(fmt::format("standard output cannot be written: {}",
                                        std::generic_category().message(errno)));
      }
      return code;
    } catch (const std::exception& error) {
      return report_error(error, parser->json);
    }
  }
  return 2;
}

}  // namespace trireme::cli
