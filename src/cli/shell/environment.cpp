// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/environment.h"

#include <unistd.h>

#include <string_view>

#include "base/log.h"

namespace trireme::cli {

comm::Environment process_environment() {
  comm::Environment table;
  for (char** word = environ; word != nullptr && *word != nullptr; ++word) {
    const std::string_view text = *word;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    table.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return table;
}

std::vector<std::string> environment_words(const comm::Environment& changes) {
  comm::Environment table = process_environment();
  for (const auto& [name, value] : changes) table[name] = value;
  std::vector<std::string> words;
  for (const auto& [name, value] : table) words.push_back(name + "=" + value);
  return words;
}

int64_t threads_asked(int64_t asked) {
  if (asked != 0) return asked;
  std::vector<std::string> warnings;
  const int threads = comm::threads_from(process_environment(), warnings);
  for (const std::string& warning : warnings) base::log_warning("{}", warning);
  return threads;
}

}  // namespace trireme::cli
