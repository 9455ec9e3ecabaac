// SPDX-License-Identifier: Apache-2.0
#include "base/system/descriptor_limit.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "base/error.h"

namespace trireme::base {

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
  throw ConfigError(fmt::format(
      "{} needs {} file descriptors, and this process may have {} (the hard limit); "
      "raise the limit (ulimit -n, LimitNOFILE of systemd), or start fewer ranks on this host",
      purpose, have + more, limit.rlim_cur));
}

}  // namespace trireme::base
