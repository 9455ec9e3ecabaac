// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/peer/failure_domains.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace trireme::train {

FailureDomains FailureDomains::from_text(const std::string& text, const std::string& file) {
  FailureDomains found;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host, domain, more;
    if (!(words >> host)) continue;
    if (!(words >> domain) || words >> more) {
      throw base::ConfigError(fmt::format(
          "elastic.domains: {} line {}: '{}': expected a host and its domain, as 'node17 rack3'",
          file, number, line));
    }
    const auto [entry, is_new] = found.domains_.emplace(host, domain);
    if (is_new || entry->second == domain) continue;
    throw base::ConfigError(
        fmt::format("elastic.domains: {} line {}: host {} is in domain {} "
                    "here, and in {} above; leave one of the lines out",
                    file, number, host, domain, entry->second));
  }
  return found;
}

FailureDomains FailureDomains::read(const std::string& file) {
  if (file.empty()) return {};
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in && !in.eof()) {
    throw base::ConfigError(fmt::format(
        "elastic.domains: {} cannot be read; name a file that the first rank's host has", file));
  }
  return from_text(text, file);
}

std::map<std::string, std::string>::const_iterator FailureDomains::find(
    const std::string& host) const {
  const auto found = domains_.find(host);
  return found != domains_.end() ? found : domains_.find(host.substr(0, host.find('.')));
}

std::string FailureDomains::domain_of(const std::string& host) const {
  const auto found = find(host);
  return found == domains_.end() ? host : found->second;
}

}  // namespace trireme::train
