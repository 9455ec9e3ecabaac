// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/environment.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>

#include "base/error.h"
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

void raise_descriptor_limit() {
  // Some programs that this one starts loop over all descriptors below the limit.
  constexpr rlim_t enough = 1 << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= enough) return;
  limit.rlim_cur = std::min(limit.rlim_max, enough);
  // If this fails, the old limit stays: expect_descriptors() reads it.
  [[maybe_unused]] const int refused = ::setrlimit(RLIMIT_NOFILE, &limit);
}

void expect_descriptors(int64_t more, const std::string& purpose) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  std::error_code unknown;
  const std::filesystem::directory_iterator open("/proc/self/fd", unknown);
  const int64_t have = unknown ? 0 : std::distance(open, std::filesystem::directory_iterator());
  if (have + more <= static_cast<int64_t>(limit.rlim_cur)) return;
  throw base::ConfigError(fmt::format(
      "{} needs {} file descriptors, and this process may have {} (the hard limit); "
      "raise the limit (ulimit -n, LimitNOFILE of systemd), or start fewer ranks on this host",
      purpose, have + more, limit.rlim_cur));
}

}  // namespace trireme::cli
