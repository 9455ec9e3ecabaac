// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/args.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "cli/shell/number_words.h"
#include "config/config.h"
#include "config/numbers/scaled_number.h"
#include "config/schema.h"
#include "config/spelling.h"

namespace trireme::cli {
namespace {

std::vector<std::string_view> views_of(const std::vector<std::string>& words) {
  return {words.begin(), words.end()};
}

// Returns which option or key an unknown option may stand for, or "".
std::string option_hint(const Verb& verb, const std::string& name) {
  std::vector<std::string_view> names = {"--json", "--help"};
  for (const Option& option : verb.options) {
    if (option.name.starts_with("--")) names.emplace_back(option.name);
  }
  if (const auto near = config::nearest(name, names)) {
    return fmt::format(", did you mean {}?", *near);
  }
  config::Config defaults;
  for (const config::Key& key : config::keys_of(defaults)) {
    if (name == fmt::format("--{}", key.name)) {
      return fmt::format(", did you mean --{}?", key.path());
    }
  }
  return "";
}

// The names under which verbs know the place to write to. Every verb that has one accepts all.
constexpr std::array<std::string_view, 3> output_names = {"--out", "--output", "--into"};

// Returns the verb's option for the place to write to, or "".
std::string_view output_option(const Verb& verb) {
  for (const Option& option : verb.options) {
    const bool is_place = option.kind == Kind::text && option.choices.empty();
    if (is_place && std::ranges::find(output_names, option.name) != output_names.end()) {
      return option.name;
    }
  }
  return "";
}

// Replaces other names of the place to write to by the one of the verb.
void use_own_names(const Verb& verb, std::span<std::string> words) {
  const std::string_view own = output_option(verb);
  if (own.empty()) return;
  for (std::string& word : words) {
    const size_t end = std::min(word.find('='), word.size());
    const std::string_view name = std::string_view(word).substr(0, end);
    if (std::ranges::find(output_names, name) == output_names.end()) continue;
    word.replace(0, end, own);
  }
}

CLI::Validator one_of(const std::vector<std::string>& choices) {
  const std::string listed = fmt::format("{{{}}}", fmt::join(choices, ","));
  const auto check = [choices, listed](const std::string& text) {
    if (config::choice_of(text, views_of(choices))) return std::string();
    return fmt::format("{} not in {}{}", text, listed,
                       config::choice_hint(text, views_of(choices)));
  };
  return CLI::Validator(check, listed);
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
    app = parent.add_subcommand(name, verb->summary)->group("Verbs");
    app->footer("\n" + verb->details);
    for (const Option& option : verb->options) add(option);
    app->add_flag("--json", json, "Print one JSON object on stdout; messages stay on stderr");
    if (verb->takes_overrides) app->allow_extras();
  }

  void add(const Option& option) {
    if (option.kind == Kind::flag) {
      app->add_flag(option.name, flags[option.name], option.help);
      if (!option.old_name.empty()) app->add_flag(option.old_name, flags[option.name])->group("");
      return;
    }
    CLI::Option* added = app->add_option(option.name, values[option.name], option.help);
    // Otherwise "[a,b]" would be read as two values.
    if (option.kind == Kind::texts) {
      added->allow_extra_args(false);
    } else if (option.kind != Kind::list) {
      added->expected(1)->allow_extra_args(false);
    }
    if (option.is_required) added->required();
    if (option.kind == Kind::integer) {
      added
          ->check([](const std::string& text) {
            return integer_from(text) ? ""
                                      : fmt::format("'{}' is not an integer ({})", text,
                                                    config::scaled_number_hint);
          })
          ->type_name("INTEGER");
    } else if (option.kind == Kind::number) {
      added
          ->check([](const std::string& text) {
            return number_from(text)
                       ? ""
                       : fmt::format("'{}' is not a number ({})", text, config::scaled_number_hint);
          })
          ->type_name("NUMBER");
    }
    if (!option.choices.empty()) added->check(one_of(option.choices));
    if (!option.fallback.empty()) added->default_str(option.fallback);
  }

  Args collect() const {
    Args args;
    for (const Option& option : verb->options) {
      std::vector<std::string>& found = args.values_[option.name];
      if (option.kind == Kind::flag) {
        found = {flags.at(option.name) ? "1" : "0"};
        if (flags.at(option.name)) args.given_.insert(option.name);
        continue;
      }
      found = app->get_option(option.name)->results();  // as written; conversion would drop "{}"
      if (!found.empty()) args.given_.insert(option.name);
      if (!option.choices.empty()) {
        for (std::string& word : found) {
          word = std::string(config::choice_of(word, views_of(option.choices)).value_or(word));
        }
      }
      if (found.empty() && !option.fallback.empty()) found = {option.fallback};
    }
    args.values_["--json"] = {json ? "1" : "0"};
    if (verb->takes_overrides) args.overrides_ = app->remaining();
    // The arguments of another program are not ours to check.
    if (!args.accepts("--program") || !args.has("--program")) check_overrides(args.overrides_);
    return args;
  }

  // Throws ConfigError for a word that is neither an option nor a key of a configuration: the word
  // after it would be read as the name of a configuration.
  void check_overrides(const std::vector<std::string>& words) const {
    for (const std::string& word : words) {
      const std::string name = word.substr(0, word.find('='));
      if (!name.starts_with("--") || name.find('.') != std::string::npos) continue;
      const std::string hint = option_hint(*verb, name);
      if (hint.empty() && name != word) continue;  // --key=value: the configuration names sections
      throw base::ConfigError(fmt::format(
          "{}: not an option of {}{} Run `trireme {} --help`", name, verb->name,
          hint.empty() ? ". Keys of the configuration are set by --section.key=value." : hint,
          verb->name));
    }
  }
};

namespace {

// All commands as subcommands of the parsing library.
struct CommandTree {
  CLI::App app{"Trireme plans, trains and recovers the pretraining of language models."};
  std::vector<std::unique_ptr<Parser>> parsers;
  std::map<std::string, CLI::App*> group_apps;
  bool asks_version = false;  // run_command() handles it if it is the first word

  explicit CommandTree(const CommandSet& commands) {
    app.require_subcommand(1);
    app.get_formatter()->label("SUBCOMMAND", "VERB");
    app.add_flag("-V,--version", asks_version, "Print version, commit and back ends");
    app.footer(
        "\n`trireme help VERB` explains a verb, with examples; `trireme man | man -l -` shows the\n"
        "manual page; `trireme completion bash` prints a completion script.\n"
        "Numbers may end in k, M, B or T, which are powers of ten: --tokens 100B, --steps 2k.");
    for (const Verb& verb : commands.verbs) {
      auto parser = std::make_unique<Parser>();
      parser->verb = &verb;
      const auto [group, name] = split_name(verb.name);
      parser->bind(group_app(commands, group), name);
      parsers.push_back(std::move(parser));
    }
  }

  // Returns the part before the last word, which may be empty, and the last word.
  static std::pair<std::string, std::string> split_name(const std::string& name) {
    const size_t blank = name.rfind(' ');
    if (blank == std::string::npos) return {"", name};
    return {name.substr(0, blank), name.substr(blank + 1)};
  }

  // Returns the subcommand of a group ("data", "data tokenizer"), and adds it if it is new.
  CLI::App& group_app(const CommandSet& commands, const std::string& name) {
    if (name.empty()) return app;
    if (const auto found = group_apps.find(name); found != group_apps.end()) return *found->second;
    const auto group = std::find_if(commands.groups.begin(), commands.groups.end(),
                                    [&](const VerbGroup& one) { return one.name == name; });
    const auto [parent, word] = split_name(name);
    CLI::App* added =
        group_app(commands, parent)
            .add_subcommand(word, group == commands.groups.end() ? std::string() : group->summary);
    added->group("Verbs");
    added->require_subcommand(1);
    added->footer(fmt::format("\n`trireme help {} VERB` explains one of them.", name));
    group_apps[name] = added;
    return *added;
  }
};

// Returns the verb that the words begin with, or null.
const Verb* verb_of(const CommandSet& commands, const std::vector<std::string>& words) {
  std::string name;
  for (const std::string& word : words) {
    name += (name.empty() ? "" : " ") + word;
    const auto found = std::ranges::find(commands.verbs, name, &Verb::name);
    if (found != commands.verbs.end()) return &*found;
  }
  return nullptr;
}

}  // namespace

Args parse_words(const Verb& verb, const std::vector<std::string>& words) {
  CLI::App app;
  Parser parser;
  parser.verb = &verb;
  parser.bind(app, verb.name);
  std::vector<std::string> own_words = words;
  use_own_names(verb, own_words);
  std::vector<std::string> reversed(own_words.rbegin(), own_words.rend());  // the order of CLI11
  reversed.push_back(verb.name);
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::Error& error) {
    throw base::ConfigError(
        fmt::format("{}; run `trireme {} --help` for the options", error.what(), verb.name));
  }
  return parser.collect();
}

Call parse_call(const CommandSet& commands, const std::vector<std::string>& given) {
  CommandTree tree(commands);
  tree.app.name("trireme");
  std::vector<std::string> words = given;
  if (const Verb* verb = verb_of(commands, words)) use_own_names(*verb, words);
  try {
    tree.app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success&) {
    return {.help = tree.app.help()};  // no error: CLI11 reports --help this way
  } catch (const CLI::ParseError& error) {
    throw base::ConfigError(fmt::format("{}; run with --help for the options", error.what()));
  }
  for (const auto& parser : tree.parsers) {
    if (parser->app->parsed()) return {.verb = parser->verb, .args = parser->collect()};
  }
  throw base::ConfigError("no verb is given; run with --help for the verbs");
}

std::string help_text(const CommandSet& commands, std::vector<std::string> words) {
  if (const std::string problem = unknown_verb(commands, words); !problem.empty()) {
    throw base::ConfigError(problem);
  }
  words.emplace_back("--help");
  return parse_call(commands, words).help;
}

}  // namespace trireme::cli
