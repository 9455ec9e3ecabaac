// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/peer/node_domains.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "train/checkpointing/peer/failure_domains.h"

namespace trireme::train {
namespace {

std::string own_host_name() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return host.data();
}

FailureDomains read_domains(const std::string& file, bool only_warns) {
  try {
    return FailureDomains::read(file);
  } catch (const base::ConfigError& error) {
    if (!only_warns) throw;
    base::log_warning("{}; every node is a failure domain", error.what());
    return {};
  }
}

// Returns the domain of each node from the host of each rank.
std::vector<std::string> domains_by(const FailureDomains& domains, std::span<const int> nodes,
                                    const std::vector<std::string>& hosts) {
  const auto count = static_cast<size_t>(*std::ranges::max_element(nodes)) + 1;
  std::vector<std::string> of(count);
  std::set<std::string> unknown;
  for (size_t rank = nodes.size(); rank-- > 0;) {
    const auto node = static_cast<size_t>(nodes[rank]);
    const bool is_known = domains.has(hosts[rank]);
    of[node] = is_known ? domains.domain_of(hosts[rank]) : fmt::format("node {}", node);
    if (!is_known && !domains.is_empty()) unknown.insert(hosts[rank]);
  }
  if (!unknown.empty()) {
    base::log_warning(
        "elastic.domains does not have {} of the hosts, {} among them: each is a "
        "failure domain",
        unknown.size(), *unknown.begin());
  }
  return of;
}

}  // namespace

std::vector<std::string> domains_of_nodes(Rank& rank, const std::string& file, bool only_warns) {
  const std::vector<std::string> hosts = rank.all_gather_texts(own_host_name());
  std::string text;
  if (rank.is_first()) {
    text = base::Json(domains_by(read_domains(file, only_warns), rank.nodes(), hosts)).dump();
  }
  return base::Json::parse(rank.all_gather_texts(text).front()).get<std::vector<std::string>>();
}

}  // namespace trireme::train
