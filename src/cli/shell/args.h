// SPDX-License-Identifier: Apache-2.0
// A verb of the command line as data: its options, help and what it runs. args.cpp is the only file
// that knows the library that parses them; help, completion and the manual page are made of the
// same descriptions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace trireme::cli {

enum class Kind : uint8_t { text, integer, number, flag, list };

struct Option {
  std::string name;  // "--steps"; without dashes it is positional
  Kind kind = Kind::text;
  std::string fallback;  // as text; empty: none
  std::string help;
  bool is_required = false;
  std::vector<std::string> choices;  // text only; empty: any. Types may be spelled otherwise
};

// The values of one call, typed by the verb's options. Asking for an option that the verb does not
// have is a bug.
class Args {
 public:
  bool knows(const std::string& name) const;  // the verb has this option
  bool has(const std::string& name) const;    // given, or has a fallback
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
  std::vector<std::string> overrides_;
};

struct Verb {
  std::string name;              // "train", or "data build" for a verb of a group
  std::string summary;           // one line
  std::string details;           // paragraphs of the help, with examples
  std::vector<Option> options;   // --json and --help come by themselves
  bool takes_overrides = false;  // --section.key=value
  // Returns the exit code. Errors are thrown.
  std::function<int(const Args&)> run;
};

// Verbs whose names begin with the same word.
struct VerbGroup {
  std::string name;     // "data"
  std::string summary;  // one line
};

struct CommandSet {
  std::vector<Verb> verbs;
  std::vector<VerbGroup> groups;

  bool has_group(const std::string& name) const;
};

// One call: a verb with its values, or a text that was asked for by --help.
struct Call {
  const Verb* verb = nullptr;  // null: `help` is the answer
  Args args;
  std::string help;
};

// The words after the program's name. Throws ConfigError. The commands must outlive the call.
Call parse_call(const CommandSet& commands, const std::vector<std::string>& words);

// The words after the verb's name, as parse_call() would read them. Throws ConfigError.
Args parse_words(const Verb& verb, const std::vector<std::string>& words);

// The problem, if the words before the first option do not name a verb or a group; else empty.
std::string unknown_verb(const CommandSet& commands, const std::vector<std::string>& words);

// The help of what `words` name: a verb, a group, or the program where there are none. Throws
// ConfigError for another word.
std::string help_text(const CommandSet& commands, std::vector<std::string> words);

// Parses, runs, and turns what is thrown into one message and an exit code (exit_codes.h). With
// --json an error is also one JSON object on stdout. A call without a verb prints the help and
// ends with exit code 2.
int run_command(const CommandSet& commands, int argc, const char* const* argv);

}  // namespace trireme::cli
