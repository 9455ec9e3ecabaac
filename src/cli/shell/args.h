// SPDX-License-Identifier: Apache-2.0
// A verb of the command line as data: its options, its help and the function that it runs. args.cpp
// is the only file that includes the parsing library; help, completion and the manual page are
// generated from the same descriptions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace trireme::cli {

// A `list` takes all words that follow it; `texts` may be given several times, one word each.
enum class Kind : uint8_t { text, integer, number, flag, list, texts };

struct Option {
  std::string name;  // "--steps"; without dashes it is positional
  Kind kind = Kind::text;
  std::string fallback;  // default value as text; empty: none
  std::string help;
  bool is_required = false;
  std::vector<std::string>
      choices;           // of a text; empty: any text. Element types have other spellings
  std::string old_name;  // of a flag: an earlier name, which is accepted and not listed
  // Values that completion offers; others are allowed.
  std::vector<std::string> offered = {};
};

// The values of one call, typed by the verb's options. REQUIRES: the verb has the option that is
// named, except for accepts().
class Args {
 public:
  bool accepts(const std::string& name) const;  // the verb has this option
  bool has(const std::string& name) const;      // given, or the option has a fallback
  bool is_given(const std::string& name) const;
  std::string text(const std::string& name) const;
  int64_t integer(const std::string& name) const;
  int small_integer(const std::string& name) const;  // ConfigError if it does not fit
  double number(const std::string& name) const;
  bool flag(const std::string& name) const;
  const std::vector<std::string>& list(const std::string& name) const;
  const std::vector<std::string>& overrides() const { return overrides_; }
  bool wants_json() const { return flag("--json"); }

 private:
  friend struct Parser;
  std::map<std::string, std::vector<std::string>> values_;
  std::set<std::string> given_;  // names of options that are not at their fallback
  std::vector<std::string> overrides_;
};

struct Verb {
  std::string name;              // "train", or "data build" for a verb of the group "data"
  std::string summary;           // one line
  std::string details;           // paragraphs of the help, with examples
  std::vector<Option> options;   // --json and --help are added for every verb
  bool takes_overrides = false;  // --section.key=value
  // Returns the exit code. Errors are thrown.
  std::function<int(const Args&)> run;
};

// Verbs whose names begin with the same words.
struct VerbGroup {
  std::string name;     // "data", or "data tokenizer" for a group in a group
  std::string summary;  // one line
};

struct CommandSet {
  std::vector<Verb> verbs;
  std::vector<VerbGroup> groups;

  bool has_group(const std::string& name) const;
};

// One call: a verb with its values, or the text that --help prints.
struct Call {
  const Verb* verb = nullptr;  // null: print `help`
  Args args;
  std::string help;
};

// Parses the words after the program's name. Throws ConfigError. The commands must outlive the
// call.
Call parse_call(const CommandSet& commands, const std::vector<std::string>& words);

// Parses the words after the verb's name, as parse_call() does. Throws ConfigError.
Args parse_words(const Verb& verb, const std::vector<std::string>& words);

// Returns an error message if the words before the first option name neither a verb nor a group,
// otherwise an empty text.
std::string unknown_verb(const CommandSet& commands, const std::vector<std::string>& words);

// Returns the help of the verb or group that `words` name, or of the program if there are no words.
// Throws ConfigError for any other word.
std::string help_text(const CommandSet& commands, std::vector<std::string> words);

// Parses and runs a call, and turns an exception into one message and an exit code
// (agent/exit_codes.h). With --json an error is also one JSON object on stdout. A call without a
// verb prints the help and returns exit code 2.
int run_command(const CommandSet& commands, int argc, const char* const* argv);

}  // namespace trireme::cli
