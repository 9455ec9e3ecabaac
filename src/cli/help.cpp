// SPDX-License-Identifier: Apache-2.0
// trireme help, completion and man: descriptions of the command line.
#include <fmt/format.h>

#include "base/error.h"
#include "base/text/json.h"
#include "cli/shell/build_info.h"
#include "cli/shell/completion.h"
#include "cli/shell/man_page.h"
#include "cli/verbs.h"

namespace trireme::cli {
namespace {

int print_text(const Args& args, const std::string& text) {
  if (args.wants_json()) {
    fmt::print("{}\n", base::Json{{"ok", true}, {"text", text}}.dump());
  } else {
    fmt::print("{}", text);
  }
  return 0;
}

int run_help(const Args& args) {
  const CommandSet commands = all_commands();
  const std::vector<std::string>& words = args.list("verb");
  size_t max_words = 1;
  std::string group;
  for (const std::string& word : words) {
    group += (group.empty() ? "" : " ") + word;
    if (!commands.has_group(group)) break;
    ++max_words;
  }
  if (words.size() > max_words) {
    throw base::ConfigError(
        fmt::format("help {}: give one verb, such as train or data build", fmt::join(words, " ")));
  }
  return print_text(args, help_text(commands, words));
}

int run_completion(const Args& args) {
  const CommandSet commands = all_commands();
  return print_text(
      args, args.text("shell") == "zsh" ? zsh_completion(commands) : bash_completion(commands));
}

int run_man(const Args& args) { return print_text(args, man_page(all_commands(), build_info())); }

}  // namespace

std::vector<Verb> help_verbs() {
  return {
      {.name = "help",
       .summary = "Explain the program, a group of verbs or a verb",
       .details = "Examples:\n  trireme help\n  trireme help train\n  trireme help data build",
       .options = {{.name = "verb",
                    .kind = Kind::list,
                    .help = "Verb or group of verbs to explain"}},
       .run = run_help},
      {.name = "completion",
       .summary = "Print a script that completes verbs, options and keys in a shell",
       .details =
           "In bash: source <(trireme completion bash), or write it to\n"
           "~/.local/share/bash-completion/completions/trireme. In zsh: write it as _trireme to\n"
           "a folder of $fpath.\n\n"
           "Examples:\n  trireme completion bash\n  trireme completion zsh",
       .options = {{.name = "shell",
                    .help = "Shell that the script is for",
                    .is_required = true,
                    .choices = {"bash", "zsh"}}},
       .run = run_completion},
      {.name = "man",
       .summary = "Print the manual page",
       .details = "In the format of man(7). To read it: trireme man | man -l -\n\n"
                  "Examples:\n  trireme man",
       .run = run_man},
  };
}

}  // namespace trireme::cli
