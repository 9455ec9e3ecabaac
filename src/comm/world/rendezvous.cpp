// SPDX-License-Identifier: Apache-2.0
#include "comm/world/rendezvous.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/clock.h"
#include "comm/store/store.h"
#include "comm/store/store_socket.h"
#include "comm/world/find_store.h"
#include "comm/world/pmi.h"

namespace trireme::comm {
namespace {

constexpr const char* endpoints_key = "trireme-store";

// Returns a numeric Internet address; empty if other hosts cannot reach this one by it.
std::string numeric_address(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(address);
    if (ntohl(v4->sin_addr.s_addr) >> 24 == 127) return "";
    return ::inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
  }
  if (address->sa_family != AF_INET6) return "";
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(address);
  if (IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) || IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return "";
  return ::inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
}

// Appends the addresses that a name of this host resolves to.
void append_resolved(const std::string& name, std::vector<std::string>& hosts) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    hosts.push_back(numeric_address(at->ai_addr));
  }
  ::freeaddrinfo(list);
}

void append_interfaces(std::vector<std::string>& hosts) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
      if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
      if (at->ifa_addr->sa_family == family) hosts.push_back(numeric_address(at->ifa_addr));
    }
  }
  ::freeifaddrs(list);
}

// Returns addresses and names by which other hosts may reach this one, the launcher's name first. A
// name of this host often resolves to 127.0.1.1 on the host itself, so numbers precede names.
std::vector<std::string> names_of_this_host(const std::string& launcher_name) {
  std::array<char, 256> own{};
  if (::gethostname(own.data(), own.size() - 1) != 0) own[0] = '\0';
  std::vector<std::string> names = {launcher_name, own.data()}, hosts;
  for (const std::string& name : names) {
    if (!name.empty()) append_resolved(name, hosts);
  }
  append_interfaces(hosts);
  hosts.insert(hosts.end(), names.begin(), names.end());
  hosts.emplace_back("127.0.0.1");
  std::vector<std::string> unique;
  for (const std::string& host : hosts) {
    if (host.empty() || std::find(unique.begin(), unique.end(), host) != unique.end()) continue;
    unique.push_back(host);
  }
  // The text of the endpoints must fit into the 1,024 characters of a PMI value.
  constexpr size_t max_hosts = 12;
  if (unique.size() > max_hosts) unique.resize(max_hosts);
  return unique;
}

// Searches the endpoints' addresses with the tokens that `tokens` returns.
StoreSearch search_of(const StoreEndpoints& endpoints, const RankInfo& info, double deadline_s) {
  StoreSearch search{.who = fmt::format("rank {} of {}", info.rank, info.world),
                     .addresses = endpoints.addresses,
                     .tokens =
                         [token = endpoints.token] {
                           return JobTokens{{token}, false};
                         },
                     .deadline_s = deadline_s,
                     .stop = info.stop};
  if (info.local_rank == 0) {
    search.on_waiting = [addresses = endpoints.addresses, deadline_s](double waited_s) {
      base::log_info("waiting for the store at {} ({:.0f} s of {:.0f} s)",
                     fmt::join(addresses, ", "), waited_s, deadline_s);
    };
  }
  return search;
}

Rendezvous by_pmi(const RankInfo& info, double deadline_s) {
  const auto begin = Clock::now();
  const bool is_one_host = info.local_world == info.world;
  Rendezvous result{.info = info, .server = nullptr, .token_file = nullptr};
  StoreEndpoints endpoints;
  {
    Pmi pmi(info.pmi_descriptor, {.deadline_s = deadline_s, .stop = info.stop});
    if (info.rank == 0) {
      endpoints.token = random_token();
      result.server = std::make_unique<StoreServer>(
          StoreServer::Options{.host = is_one_host ? "127.0.0.1" : "", .token = endpoints.token});
      const std::vector<std::string> hosts =
          is_one_host ? std::vector<std::string>{"127.0.0.1"} : names_of_this_host(info.host_name);
      for (const std::string& host : hosts) {
        endpoints.addresses.push_back(
            StoreAddress{.host = host, .port = result.server->port()}.text());
      }
      pmi.put(endpoints_key, endpoints.text());
    }
    pmi.barrier();
    if (info.rank != 0) endpoints = parse_store_endpoints(pmi.get(endpoints_key));
    // At once: the launcher kills the job if a process ends between init and finalize.
    pmi.finalize();
  }
  result.info.store =
      find_store(search_of(endpoints, info, deadline_s - seconds_since(begin))).address;
  result.info.token = endpoints.token;
  result.info.has_secret_token = true;
  result.info.hosts_store = info.rank == 0;
  result.info.pmi_descriptor = -1;
  return result;
}

// Listens on the first address whose port is free. Client connections, also of this run's ranks,
// occupy ports for moments, so it retries for a few seconds.
Rendezvous on_first_free(const StoreEndpoints& endpoints, const RankInfo& info, double deadline_s) {
  Rendezvous result{.info = info, .server = nullptr, .token_file = nullptr};
  const auto begin = Clock::now();
  constexpr double max_seconds = 5;
  std::string why;
  do {
    for (const std::string& address : endpoints.addresses) {
      try {
        result.info.store = address;
        result.server = std::make_unique<StoreServer>(store_options(result.info));
        return result;
      } catch (const base::IoError& error) {
        why = error.what();
      }
    }
    if (info.stop != nullptr && info.stop->load()) {
      throw base::Stopped("stopped while waiting for a free port of the store");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (seconds_since(begin) < std::min(deadline_s, max_seconds));
  throw base::IoError(fmt::format("none of {} is free; the last error: {}",
                                  fmt::join(endpoints.addresses, ", "), why));
}

StoreEndpoints endpoints_of(const RankInfo& info) {
  StoreEndpoints endpoints{.token = info.token, .addresses = {}};
  StoreAddress address = parse_store_address(info.store);
  for (int more = 0; more <= info.more_ports; ++more, ++address.port) {
    endpoints.addresses.push_back(address.text());
  }
  return endpoints;
}

// Rank 0 uses one of several ports; the other ranks recognise the store by its token.
Rendezvous by_ports(const RankInfo& info, double deadline_s) {
  const StoreEndpoints endpoints = endpoints_of(info);
  if (info.rank == 0) return on_first_free(endpoints, info, deadline_s);
  Rendezvous result{.info = info, .server = nullptr, .token_file = nullptr};
  result.info.store = find_store(search_of(endpoints, info, deadline_s)).address;
  return result;
}

// With a token that is already known.
Rendezvous by_token(const RankInfo& info, double deadline_s) {
  if (info.more_ports > 0 && !info.token.empty()) return by_ports(info, deadline_s);
  return {.info = info, .server = nullptr, .token_file = nullptr};
}

// Rank 0 writes the token to the run's folder, from which the other ranks read it.
Rendezvous by_token_file(const RankInfo& info, double deadline_s) {
  const std::string attempt = info.token;
  if (info.rank == 0) {
    auto file = std::make_unique<JobTokenFile>(info.run_folder, attempt);
    RankInfo with_token = info;
    with_token.token = file->token();
    with_token.has_secret_token = true;
    Rendezvous result = by_token(with_token, deadline_s);
    result.token_file = std::move(file);
    return result;
  }
  StoreSearch search = search_of(endpoints_of(info), info, deadline_s);
  search.tokens = [&info, &attempt] {
    const std::optional<std::string> token = read_job_token(info.run_folder, attempt);
    // If rank 0 has failed before it wrote a token, its store has that of rendezvous_to_report().
    return JobTokens{token ? std::vector{*token, attempt} : std::vector{attempt}, !token};
  };
  const FoundStore found = find_store(search);
  Rendezvous result{.info = info, .server = nullptr, .token_file = nullptr};
  result.info.store = found.address;
  result.info.token = found.token;
  result.info.has_secret_token = found.token != attempt;
  return result;
}

}  // namespace

StoreServer::Options store_options(const RankInfo& info) {
  const StoreAddress address = parse_store_address(info.store);
  return {.host = address.host,
          .serves_other_hosts = info.local_world < info.world,
          .port = address.port,
          .token = info.token,
          .may_have_leftovers = !info.knows_attempt};
}

std::string StoreEndpoints::text() const {
  return fmt::format("{}/{}", token, fmt::join(addresses, ","));
}

StoreEndpoints parse_store_endpoints(const std::string& text) {
  StoreEndpoints endpoints;
  const size_t slash = text.rfind('/');  // addresses have none
  try {
    if (slash == std::string::npos || slash == 0) throw base::ConfigError("no token");
    endpoints.token = text.substr(0, slash);
    for (size_t begin = slash + 1; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      endpoints.addresses.push_back(text.substr(begin, end - begin));
      if (parse_store_address(endpoints.addresses.back()).is_folder)
        throw base::ConfigError("a folder");
      begin = end + 1;
    }
  } catch (const base::ConfigError& error) {
    throw base::IoError(
        fmt::format("'{}', which rank 0 published, is not the address of a store: "
                    "{}; are all ranks the same program?",
                    text.substr(0, 80), error.what()));
  }
  return endpoints;
}

Rendezvous rendezvous(const RankInfo& info, double deadline_s) {
  if (!info.store_problem.empty()) throw base::ConfigError(info.store_problem);
  if (info.pmi_descriptor >= 0) return by_pmi(info, deadline_s);
  if (info.world == 1 || info.has_secret_token || parse_store_address(info.store).is_folder) {
    return by_token(info, deadline_s);
  }
  if (!info.run_folder.empty()) return by_token_file(info, deadline_s);
  if (listens_beyond_loopback(parse_store_address(info.store).host,
                              info.local_world < info.world)) {
    throw base::ConfigError(no_token_message(fmt::format("rank {} of {}", info.rank, info.world)));
  }
  return by_token(info, deadline_s);
}

Rendezvous rendezvous_to_report(const RankInfo& info, double deadline_s) {
  if (!info.store_problem.empty()) throw base::ConfigError(info.store_problem);
  if (info.pmi_descriptor >= 0) return by_pmi(info, deadline_s);
  const bool reads_file = info.rank != 0 && !info.has_secret_token && !info.run_folder.empty();
  return reads_file ? by_token_file(info, deadline_s) : by_token(info, deadline_s);
}

}  // namespace trireme::comm
