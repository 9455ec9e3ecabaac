// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/config.h"
#include "config/schema.h"

namespace trireme::cli {
namespace {

struct CompletionEntry {
  std::string word, help;
};

std::vector<Option> options_of(const Verb& verb) {
  std::vector<Option> options = verb.options;
  options.push_back(
      {.name = "--json", .kind = Kind::flag, .help = "Print one JSON object on stdout"});
  options.push_back({.name = "--help", .kind = Kind::flag, .help = "Explain this verb"});
  return options;
}

// Returns the first words of all verbs and groups, or the words that may follow the name of a
// group.
std::vector<CompletionEntry> words_after(const CommandSet& commands, const std::string& group) {
  std::vector<CompletionEntry> entries;
  const std::string prefix = group.empty() ? "" : group + " ";
  const auto add = [&](const std::string& name, const std::string& summary) {
    if (!name.starts_with(prefix)) return;
    const std::string rest = name.substr(prefix.size());
    if (rest.find(' ') == std::string::npos) entries.push_back({rest, summary});
  };
  for (const Verb& verb : commands.verbs) add(verb.name, verb.summary);
  for (const VerbGroup& one : commands.groups) add(one.name, one.summary);
  return entries;
}

std::string words_text(const std::vector<CompletionEntry>& entries) {
  std::string text;
  for (const CompletionEntry& entry : entries) text += (text.empty() ? "" : " ") + entry.word;
  return text;
}

// Returns how the value of an option is completed: "flag" (there is none), "none", "files", or
// "words a b".
std::string values_text(const Option& option) {
  if (option.kind == Kind::flag) return "flag";
  const std::vector<std::string>& words = option.choices.empty() ? option.offered : option.choices;
  if (!words.empty()) return fmt::format("words {}", fmt::join(words, " "));
  return option.kind == Kind::integer || option.kind == Kind::number ? "none" : "files";
}

std::string values_text(const config::Key& key) {
  if (!key.choices.empty()) return fmt::format("words {}", fmt::join(key.choices, " "));
  if (std::holds_alternative<bool*>(key.field)) return "words true false";
  return std::holds_alternative<std::string*>(key.field) ? "files" : "none";
}

// Cases of a shell's `case`, the same text in bash and zsh.
std::string value_cases(const CommandSet& commands) {
  std::string text;
  for (const Verb& verb : commands.verbs) {
    for (const Option& option : options_of(verb)) {
      const std::string values = values_text(option);
      const bool is_positional = !option.name.starts_with("-");
      if (values == "files" || (is_positional && option.choices.empty())) continue;  // the default
      text += fmt::format("    \"{} {}\") echo {} ;;\n", verb.name,
                          is_positional ? "" : option.name, values);
    }
  }
  return text;
}

std::string key_cases() {
  config::Config defaults;
  std::string text;
  for (const config::Key& key : config::keys_of(defaults)) {
    text += fmt::format("    --{}) echo {} ;;\n", key.path(), values_text(key));
  }
  return text;
}

// "--job. --model. ...", and "--job.name= ..." of all sections.
std::pair<std::string, std::string> key_words() {
  config::Config defaults;
  std::string sections, keys;
  std::string_view last;
  for (const config::Key& key : config::keys_of(defaults)) {
    if (key.section != last) {
      sections += fmt::format("{}--{}.", sections.empty() ? "" : " ", key.section);
      last = key.section;
    }
    keys += fmt::format("{}--{}=", keys.empty() ? "" : " ", key.path());
  }
  return {sections, keys};
}

// A `case` list of the verbs that take --section.key=value.
std::string override_pattern(const CommandSet& commands) {
  std::vector<std::string> names;
  for (const Verb& verb : commands.verbs) {
    if (verb.takes_overrides) names.push_back(fmt::format("\"{}\"", verb.name));
  }
  return fmt::format("{}", fmt::join(names, " | "));
}

std::string group_pattern(const CommandSet& commands) {
  std::vector<std::string> names;
  for (const VerbGroup& group : commands.groups) names.push_back(fmt::format("\"{}\"", group.name));
  return fmt::format("{}", fmt::join(names, " | "));
}

std::string option_words(const Verb& verb) {
  std::vector<CompletionEntry> entries;
  for (const Option& option : options_of(verb)) {
    if (option.name.starts_with("-")) entries.push_back({option.name, option.help});
  }
  return words_text(entries);
}

// Text in single quotes.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// "'train:Train a model' 'eval:...'" for _describe of zsh.
std::string described(const std::vector<CompletionEntry>& entries) {
  std::string text;
  for (const CompletionEntry& entry : entries) {
    text += fmt::format("{}{}", text.empty() ? "" : " ", quoted(entry.word + ":" + entry.help));
  }
  return text;
}

constexpr const char* bash_body = R"(
_trireme() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb="" first=1 i values
  # bash cuts words at "=": --key, =, value.
  if [[ $cur == "=" ]]; then
    cur=""
  elif [[ $prev == "=" ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  local is_help=""
  if [[ ${COMP_WORDS[1]} == help && $COMP_CWORD -gt 1 ]]; then
    is_help=yes
    first=2
  fi
  for ((i = first; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} == -* ]] && break
    verb="${verb:+$verb }${COMP_WORDS[i]}"
    _trireme_is_group "$verb" || break
  done
  COMPREPLY=()
  if [[ -z $verb ]] || _trireme_is_group "$verb"; then
    values=$(_trireme_words "$verb")
    [[ -z $verb && -z $is_help ]] && values="$values --help --version"
    COMPREPLY=($(compgen -W "$values" -- "$cur"))
    return
  fi
  [[ -n $is_help ]] && return
  values=$(_trireme_values "$verb" "$prev")
  if [[ $prev != -* || $values == flag ]]; then
    if [[ $cur == -* ]]; then
      values=$(_trireme_options "$verb")
      if _trireme_takes_keys "$verb"; then
        case $cur in
          --*.*) values="$trireme_keys" ;;
          *) values="$values $trireme_sections" ;;
        esac
      fi
      COMPREPLY=($(compgen -W "$values" -- "$cur"))
      [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[.=] ]] && compopt -o nospace 2>/dev/null
      return
    fi
    values=$(_trireme_values "$verb" "")
  fi
  case $values in
    none) ;;
    words\ *) COMPREPLY=($(compgen -W "${values#words }" -- "$cur")) ;;
    *)
      compopt -o filenames 2>/dev/null
      COMPREPLY=($(compgen -f -- "$cur"))
      ;;
  esac
}
complete -F _trireme trireme
)";

constexpr const char* zsh_body = R"(
_trireme() {
  local verb="" first=2 i is_help="" values cur=${words[CURRENT]} prev=${words[CURRENT-1]}
  local -a entries
  if [[ ${words[2]} == help && $CURRENT -gt 2 ]]; then
    is_help=yes
    first=3
  fi
  for ((i = first; i < CURRENT; i++)); do
    [[ ${words[i]} == -* ]] && break
    verb="${verb:+$verb }${words[i]}"
    _trireme_is_group "$verb" || break
  done
  if [[ -z $verb ]] || _trireme_is_group "$verb"; then
    _trireme_words "$verb"
    _describe 'verb' entries
    return
  fi
  [[ -n $is_help ]] && return
  if [[ $cur == --*=* ]]; then
    prev=${cur%%=*}
    compset -P '*='
  elif [[ $prev != -* || $(_trireme_values "$verb" "$prev") == flag ]]; then
    if [[ $cur == -* ]]; then
      _trireme_options "$verb"
      _describe -o 'option' entries
      if _trireme_takes_keys "$verb"; then
        if [[ $cur == --*.* ]]; then
          compadd -S '' -- ${=trireme_keys}
        else
          compadd -S '' -- ${=trireme_sections}
        fi
      fi
      return
    fi
    prev=""
  fi
  values=$(_trireme_values "$verb" "$prev")
  case $values in
    none) ;;
    words\ *) compadd -- ${=values#words } ;;
    *) _files ;;
  esac
}
_trireme "$@"
)";

// Functions that both scripts call.
std::string shared_functions(const CommandSet& commands) {
  const auto [sections, keys] = key_words();
  return fmt::format(
      "trireme_sections='{}'\n"
      "trireme_keys='{}'\n"
      "_trireme_is_group() {{\n  case $1 in\n    {}) return 0 ;;\n    *) return 1 ;;\n  esac\n}}\n"
      "_trireme_takes_keys() {{\n  case $1 in\n    {}) return 0 ;;\n    *) return 1 ;;\n  "
      "esac\n}}\n"
      "_trireme_values() {{\n  case \"$1 $2\" in\n{}  *)\n"
      "    if _trireme_takes_keys \"$1\"; then\n    case $2 in\n{}    *) echo files ;;\n    esac\n"
      "    else\n      echo files\n    fi\n    ;;\n  esac\n}}\n",
      sections, keys, group_pattern(commands), override_pattern(commands), value_cases(commands),
      key_cases());
}

}  // namespace

std::string bash_completion(const CommandSet& commands) {
  std::string text = "# bash completion for trireme, printed by `trireme completion bash`.\n" +
                     shared_functions(commands) + "_trireme_words() {\n  case $1 in\n";
  for (const VerbGroup& group : commands.groups) {
    text += fmt::format("    \"{}\") echo {} ;;\n", group.name,
                        words_text(words_after(commands, group.name)));
  }
  text += fmt::format("    *) echo {} ;;\n  esac\n}}\n", words_text(words_after(commands, "")));
  text += "_trireme_options() {\n  case $1 in\n";
  for (const Verb& verb : commands.verbs) {
    text += fmt::format("    \"{}\") echo {} ;;\n", verb.name, option_words(verb));
  }
  return text + "  esac\n}\n" + bash_body;
}

std::string zsh_completion(const CommandSet& commands) {
  std::string text =
      "#compdef trireme\n# zsh completion for trireme, printed by `trireme completion zsh`.\n" +
      shared_functions(commands) + "_trireme_words() {\n  case $1 in\n";
  for (const VerbGroup& group : commands.groups) {
    text += fmt::format("    \"{}\") entries=({}) ;;\n", group.name,
                        described(words_after(commands, group.name)));
  }
  text += fmt::format("    *) entries=({}) ;;\n  esac\n}}\n", described(words_after(commands, "")));
  text += "_trireme_options() {\n  case $1 in\n";
  for (const Verb& verb : commands.verbs) {
    std::vector<CompletionEntry> entries;
    for (const Option& option : options_of(verb)) {
      if (option.name.starts_with("-")) entries.push_back({option.name, option.help});
    }
    text += fmt::format("    \"{}\") entries=({}) ;;\n", verb.name, described(entries));
  }
  return text + "  esac\n}\n" + zsh_body;
}

}  // namespace trireme::cli
