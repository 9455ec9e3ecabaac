// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/man_page.h"

#include <fmt/format.h>

#include <array>
#include <sstream>
#include <string_view>

#include "agent/exit_codes.h"

namespace trireme::cli {
namespace {

struct ManTerm {
  std::string_view name, meaning;
};

constexpr auto variable_terms = std::to_array<ManTerm>({
    {"NO_COLOR", "If set and not empty, no escape codes are written to a terminal."},
    {"TERM", "With dumb, progress is written as plain lines."},
    {"LC_ALL, LC_CTYPE, LANG",
     "The first that is set decides whether curves are drawn in UTF-8 "
     "or in ASCII."},
    {"TRIREME_CACHE_DIR",
     "Folder of the cache of measured GPU algorithms; otherwise trireme in "
     "XDG_CACHE_HOME, otherwise ~/.cache/trireme."},
    {"TRIREME_COMM_DEBUG", "With 1, ranks compare their arguments before each collective."},
    {"TRIREME_TOKEN",
     "Secret of one job, the same for all ranks; needed only if the launcher gives none and the "
     "run's folder is not shared."},
    {"RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, SLURM_*, OMPI_*, PMI_*",
     "Set by torchrun, Slurm, Open MPI and MPICH; a process reads its rank from them."},
});

constexpr auto file_terms = std::to_array<ManTerm>({
    {"run.json",
     "In the run's folder: the resolved configuration, which train accepts in place of "
     "a TOML file."},
    {"metrics.jsonl", "In the run's folder: one JSON object a line."},
    {"tb", "In the run's folder: TensorBoard events."},
    {"checkpoint", "In the run's folder: checkpoints, from which --resume continues."},
    {"weights", "In the run's folder: exported weights, Hugging Face directories."},
    {"configs/models, machines, stacks",
     "Model, machine and stack files, below the current folder, beside the "
     "build, or installed in share/trireme."},
});

// Escapes text for roff: it contains no escape sequence, and no request at the start of a line.
std::string escaped(std::string_view text) {
  std::string out;
  bool starts_line = true;
  for (const char c : text) {
    if (starts_line && (c == '.' || c == '\'')) out += "\\&";
    starts_line = c == '\n';
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Breaks text into lines of about 100 characters; roff fills them anyway.
std::string filled(std::string_view text) {
  constexpr size_t width = 100;
  std::istringstream words{std::string(text)};
  std::string word, line, out;
  while (words >> word) {
    if (!line.empty() && line.size() + word.size() >= width) {
      out += escaped(line) + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return line.empty() ? out : out + escaped(line) + "\n";
}

std::string example_block(const std::string& lines) {
  return fmt::format(".PP\nExamples:\n.PP\n.nf\n{}{}.fi\n", escaped(lines),
                     lines.ends_with('\n') ? "" : "\n");
}

// Paragraphs are filled; examples keep their lines.
std::string details_text(const std::string& details) {
  constexpr std::string_view title = "Examples:\n";
  const size_t examples = details.find(title);
  std::string text;
  std::string_view rest = std::string_view(details).substr(0, examples);
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n");
    const std::string paragraph = filled(rest.substr(0, end));
    if (!paragraph.empty()) text += ".PP\n" + paragraph;
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 2);
  }
  if (examples != std::string::npos) text += example_block(details.substr(examples + title.size()));
  return text;
}

std::string term(std::string_view name, std::string_view value, std::string_view meaning) {
  const std::string shown = value.empty() ? "" : fmt::format(" \\fI{}\\fR", escaped(value));
  return fmt::format(".TP\n\\fB{}\\fR{}\n{}", escaped(name), shown, filled(meaning));
}

std::string option_text(const Option& option) {
  const bool is_positional = !option.name.starts_with("-");
  std::string value;
  if (option.kind != Kind::flag && !is_positional) {
    value = !option.choices.empty()        ? fmt::format("{}", fmt::join(option.choices, "|"))
            : option.kind == Kind::integer ? "INTEGER"
            : option.kind == Kind::number  ? "NUMBER"
                                           : "TEXT";
  }
  std::string meaning = option.help;
  if (!meaning.ends_with('.')) meaning += '.';
  if (is_positional && !option.choices.empty()) {
    meaning += fmt::format(" One of {}.", fmt::join(option.choices, ", "));
  }
  if (option.is_required) meaning += " Required.";
  if (!option.fallback.empty()) meaning += fmt::format(" Default: {}.", option.fallback);
  return term(option.name, value, meaning);
}

std::string verb_text(const Verb& verb) {
  std::string text = fmt::format(".SS \"{}\"\n{}.\n", escaped(verb.name), escaped(verb.summary));
  text += details_text(verb.details);
  for (const Option& option : verb.options) text += option_text(option);
  if (verb.takes_overrides) {
    text += term("--section.key=value", "",
                 "Set a key of the configuration; `trireme train --keys` lists them.");
  }
  return text;
}

template <size_t count>
std::string terms_text(const std::array<ManTerm, count>& terms) {
  std::string text;
  for (const ManTerm& one : terms) text += term(one.name, "", one.meaning);
  return text;
}

std::string exit_code_terms() {
  std::string text;
  for (const agent::ExitCode& row : agent::exit_codes()) {
    text += term(std::to_string(row.code), "",
                 fmt::format("{}. A scheduler should {}.", row.meaning, row.advice));
  }
  return text;
}

}  // namespace

std::string man_page(const CommandSet& commands, const BuildInfo& program) {
  std::string text = fmt::format(
      ".\\\" SPDX-License-Identifier: Apache-2.0\n"
      ".\\\" Printed by `trireme man`.\n"
      ".TH TRIREME 1 \"{}\" \"trireme {}\" \"User Commands\"\n"
      ".SH NAME\ntrireme \\- plan, train and recover the pretraining of language models\n"
      ".SH SYNOPSIS\n.B trireme\n.I verb\n[\\fIoptions\\fR]\n.br\n.B trireme\n"
      "\\fBhelp\\fR [\\fIverb\\fR]\n.br\n.B trireme\n\\fB\\-\\-version\\fR\n"
      ".SH DESCRIPTION\n",
      program.date, escaped(program.version));
  text += filled(
      "One program that plans, trains and recovers the pretraining of large language models across "
      "many accelerators. Every verb takes --help and --json; with --json, standard output is one "
      "JSON object and messages stay on standard error.");
  text += ".PP\n" + filled(
                        "If a verb takes a configuration file, - and /dev/stdin read it from "
                        "standard input, once. Element types may be spelled as in other "
                        "programs: fp32 or float32, bf16 or bfloat16, u16 or uint16.");
  text += ".SH VERBS\n";
  for (const Verb& verb : commands.verbs) text += verb_text(verb);
  text += ".SH EXIT STATUS\n" + exit_code_terms();
  text += ".SH ENVIRONMENT\n" + terms_text(variable_terms);
  text += ".SH FILES\n" + terms_text(file_terms);
  return text;
}

}  // namespace trireme::cli
