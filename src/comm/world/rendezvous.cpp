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
#include <random>
#include <thread>

#include "base/error.h"
#include "comm/clock.h"
#include "comm/store/store.h"
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

// Returns the first address at which a store with this token replies.
std::string reachable_address(const StoreEndpoints& endpoints, const RankInfo& info,
                              double deadline_s) {
  const auto begin = Clock::now();
  std::string why = "no address was given";
  constexpr double max_try_s = 5;
  for (double try_s = 0.2; seconds_since(begin) < deadline_s;
       try_s = std::min(2 * try_s, max_try_s)) {
    for (const std::string& address : endpoints.addresses) {
      const double left_s = deadline_s - seconds_since(begin);
      if (left_s <= 0) break;
      try {
        (void)open_store(
            parse_store_address(address),
            {.deadline_s = std::min(try_s, left_s), .token = endpoints.token, .stop = info.stop});
        return address;
      } catch (const base::CommAborted& error) {
        why = error.what();
      }
    }
  }
  throw base::IoError(fmt::format(
      "rank {} of {} cannot reach rank 0 at any of {}; the last error: {}. Set MASTER_ADDR "
      "and MASTER_PORT to an address of rank 0 that all hosts can reach",
      info.rank, info.world, fmt::join(endpoints.addresses, ", "), why));
}

Rendezvous by_pmi(const RankInfo& info, double deadline_s) {
  const auto begin = Clock::now();
  const bool is_one_host = info.local_world == info.world;
  Rendezvous result{.info = info, .server = nullptr};
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
  result.info.store = reachable_address(endpoints, info, deadline_s - seconds_since(begin));
  result.info.token = endpoints.token;
  result.info.has_secret_token = true;
  result.info.hosts_store = info.rank == 0;
  result.info.pmi_descriptor = -1;
  return result;
}

// Listens on the first address whose port is free. Client connections, also of this run's ranks,
// occupy ports for moments, so it retries for a few seconds.
Rendezvous on_first_free(const StoreEndpoints& endpoints, const RankInfo& info, double deadline_s) {
  Rendezvous result{.info = info, .server = nullptr};
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
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (seconds_since(begin) < std::min(deadline_s, max_seconds));
  throw base::IoError(fmt::format("none of {} is free; the last error: {}",
                                  fmt::join(endpoints.addresses, ", "), why));
}

// Rank 0 uses one of several ports; the other ranks recognise the store by its token.
Rendezvous by_ports(const RankInfo& info, double deadline_s) {
  StoreEndpoints endpoints{.token = info.token, .addresses = {}};
  StoreAddress address = parse_store_address(info.store);
  for (int more = 0; more <= info.more_ports; ++more, ++address.port) {
    endpoints.addresses.push_back(address.text());
  }
  if (info.rank == 0) return on_first_free(endpoints, info, deadline_s);
  Rendezvous result{.info = info, .server = nullptr};
  result.info.store = reachable_address(endpoints, info, deadline_s);
  return result;
}

}  // namespace

StoreServer::Options store_options(const RankInfo& info) {
  const StoreAddress address = parse_store_address(info.store);
  return {.host = address.host,
          .serves_other_hosts = info.local_world < info.world,
          .port = address.port,
          .token = info.token};
}

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
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
  if (info.more_ports > 0 && !info.token.empty()) return by_ports(info, deadline_s);
  return {.info = info, .server = nullptr};
}

}  // namespace trireme::comm
