// SPDX-License-Identifier: Apache-2.0
// Rules about words and sizes: what a newcomer meets first.
#include <fmt/core.h>
#include <regex.h>

#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "prose.h"
#include "rules.h"

namespace trireme::tidy {

namespace {

// POSIX extended regular expressions: glibc's automaton reads the tree in a fraction of the time
// that std::regex takes.
class Pattern {
 public:
  Pattern(const std::string& text, bool ignores_case) : regex_(new regex_t, &destroy) {
    const int flags = REG_EXTENDED | (ignores_case ? REG_ICASE : 0);
    error_ = regcomp(regex_.get(), text.c_str(), flags);
  }
  bool is_valid() const { return error_ == 0; }
  // Returns the offset and length of the first match, or length 0.
  std::pair<size_t, size_t> find(const std::string& text) const {
    regmatch_t match = {};
    if (!is_valid() || regexec(regex_.get(), text.c_str(), 1, &match, 0) != 0) return {0, 0};
    return {static_cast<size_t>(match.rm_so), static_cast<size_t>(match.rm_eo - match.rm_so)};
  }

 private:
  static void destroy(regex_t* regex) {
    regfree(regex);
    delete regex;
  }

  std::unique_ptr<regex_t, void (*)(regex_t*)> regex_;
  int error_ = 0;
};

bool applies(const WordRule& rule, Passage::Kind kind) {
  if (rule.kind == "text") return true;
  return (rule.kind == "comment" && kind == Passage::Kind::comment) ||
         (rule.kind == "shown" && kind != Passage::Kind::comment);
}

bool ignores_case(const WordRule& rule) { return rule.kind == "text" || rule.kind == "shown"; }

struct CompiledRule {
  const WordRule* rule;
  Pattern pattern;
};

std::vector<CompiledRule> compiled(const std::vector<WordRule>& rules) {
  std::vector<CompiledRule> all;
  for (const WordRule& rule : rules) {
    all.push_back({&rule, Pattern(rule.pattern, ignores_case(rule))});
  }
  return all;
}

std::string problem(const SourceFile& file, int line, std::string_view found,
                    const WordRule& rule) {
  return fmt::format("{}:{}: '{}'; write: {}", file.path, line, found, rule.replacement);
}

}  // namespace

std::vector<WordRule> parse_words(std::string_view text, Problems& problems) {
  static const std::set<std::string> kinds = {"name", "text", "comment", "shown"};
  std::vector<WordRule> rules;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const size_t arrow = line.find(" => ");
    std::istringstream begin(line.substr(0, arrow));
    WordRule rule;
    begin >> rule.kind >> std::ws;
    std::getline(begin, rule.pattern);
    rule.pattern.erase(rule.pattern.find_last_not_of(' ') + 1);
    if (arrow == std::string::npos || !kinds.contains(rule.kind) || rule.pattern.empty()) {
      problems.push_back(
          fmt::format("words.txt:{}: '{}' is not 'name|text|comment|shown pattern => replacement'",
                      number, line));
      continue;
    }
    rule.replacement = line.substr(arrow + 4);
    if (!Pattern(rule.pattern, true).is_valid()) {
      problems.push_back(
          fmt::format("words.txt:{}: '{}' is not a regular expression", number, rule.pattern));
      continue;
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

Problems check_words(const Files& files, const std::vector<WordRule>& rules) {
  const std::vector<CompiledRule> all = compiled(rules);
  Problems problems;
  std::map<std::string, const WordRule*> names;  // of every identifier: the rule it breaks, or null
  for (const SourceFile& file : files) {
    if (is_source(file.path)) {
      for (const Identifier& identifier : identifiers_of(file.text)) {
        const auto [found, is_new] = names.try_emplace(identifier.name, nullptr);
        for (const CompiledRule& one : all) {
          if (is_new && one.rule->kind == "name" && one.pattern.find(identifier.name).second > 0) {
            found->second = one.rule;
          }
        }
        if (found->second != nullptr) {
          problems.push_back(problem(file, identifier.line, identifier.name, *found->second));
        }
      }
    }
    for (const Passage& passage : passages_of(file)) {
      for (const CompiledRule& one : all) {
        if (!applies(*one.rule, passage.kind)) continue;
        const auto [at, length] = one.pattern.find(passage.text);
        if (length == 0) continue;
        const std::string found = passage.text.substr(at, length);
        problems.push_back(problem(file, line_of(passage, at), found, *one.rule));
      }
    }
  }
  return problems;
}

Problems check_paragraphs(const SourceFile& file) {
  Problems problems;
  for (const Passage& passage : passages_of(file)) {
    const int sentences = sentences_of(passage.text);
    if (!is_paragraph(passage) || sentences <= max_sentences) continue;
    problems.push_back(
        fmt::format("{}:{}: a paragraph of {} sentences; at most {}, or a list, a "
                    "table or a picture",
                    file.path, line_of(passage, 0), sentences, max_sentences));
  }
  return problems;
}

Problems check_folder_sizes(const Files& files) {
  std::map<std::string, int> counts;
  for (const SourceFile& file : files) {
    if (is_source(file.path)) ++counts[file.path.substr(0, file.path.rfind('/'))];
  }
  Problems problems;
  for (const auto& [folder, count] : counts) {
    if (count <= max_files_a_folder) continue;
    problems.push_back(fmt::format("{}: {} source files beside each other; at most {}", folder,
                                   count, max_files_a_folder));
  }
  return problems;
}

}  // namespace trireme::tidy
