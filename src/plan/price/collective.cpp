// SPDX-License-Identifier: Apache-2.0
#include "plan/price/collective.h"

#include <algorithm>
#include <cmath>

namespace trireme::plan {
namespace {

using spec::Machine;

// Returns the number of a group's ranks in one domain.
int64_t inside(const Machine& machine, const Group& group) {
  return std::clamp<int64_t>(machine.domain.size / std::max<int64_t>(1, group.stride), 1,
                             group.size);
}

double domain_rate(const Machine& m) { return m.domain.link.bytes_per_second * m.domain.reach; }

// Returns the rate of one GPU in a group that spans `domains` domains.
double rate_between(const Machine& m, int64_t domains) {
  const spec::Network& n = m.network;
  const bool is_above = n.nodes_below_switch > 0 && domains > n.nodes_below_switch;
  return n.link.bytes_per_second * n.reach / (is_above ? n.oversubscription : 1);
}

struct Ring {
  double ranks, rate, latency;
};

// Each rank sends (n - 1) / n of the tensor; twice for an all-reduce (reduce-scatter, all-gather).
double ring_seconds(const Ring& ring, Collective kind, double bytes) {
  if (ring.ranks <= 1) return 0;
  const double rounds = kind == Collective::all_reduce ? 2 : 1;
  return rounds * (ring.ranks - 1) * (bytes / ring.ranks / ring.rate + ring.latency);
}

// A double binary tree: every rank sends the tensor twice, in log2(n) steps each way.
double tree_seconds(const Ring& ring, double bytes) {
  if (ring.ranks <= 1) return 0;
  return 2 * (bytes / ring.rate + std::ceil(std::log2(ring.ranks)) * ring.latency);
}

// The switch reduces: the tensor goes up once and comes down once, both at the same time.
double switch_seconds(const Ring& ring, double bytes) {
  return bytes / ring.rate + 2 * ring.latency;
}

double flat_seconds(const Ring& ring, Collective kind, double bytes, bool in_switch) {
  if (ring.ranks <= 1) return 0;
  const double plain = ring_seconds(ring, kind, bytes);
  if (kind != Collective::all_reduce) return plain;
  const double best = std::min(plain, tree_seconds(ring, bytes));
  return in_switch ? std::min(best, switch_seconds(ring, bytes)) : best;
}

}  // namespace

double collective_seconds(const Machine& m, Collective kind, const Group& group, double bytes) {
  if (group.size <= 1 || bytes <= 0) return 0;
  const int64_t local = inside(m, group);
  const int64_t domains = domains_of(m, group);
  const auto ranks = static_cast<double>(group.size);
  const Ring near{static_cast<double>(local), domain_rate(m), m.domain.link.latency};
  if (kind == Collective::all_to_all) {
    // Each rank sends the part that leaves its domain over its own network adapter.
    const double near_bytes = bytes * static_cast<double>(local - 1) / ranks;
    const double far_bytes = bytes * static_cast<double>(group.size - local) / ranks;
    const double far_seconds = domains > 1
                                   ? far_bytes / rate_between(m, domains) +
                                         static_cast<double>(domains - 1) * m.network.link.latency
                                   : 0;
    const double near_seconds =
        local > 1 ? near_bytes / near.rate + static_cast<double>(local - 1) * near.latency : 0;
    return std::max(near_seconds, far_seconds);
  }
  if (domains == 1) return flat_seconds(near, kind, bytes, m.domain.in_switch_reduction);
  // One ring through all domains: the traffic that leaves a domain is spread over the adapters of
  // the group's ranks in it.
  const double spread = rate_between(m, domains) * static_cast<double>(local);
  const double far_latency = m.network.link.latency;
  const Ring all{ranks, local > 1 ? std::min(near.rate, spread) : spread,
                 (far_latency * static_cast<double>(domains) +
                  near.latency * static_cast<double>(group.size - domains)) /
                     ranks};
  const double one_ring = flat_seconds(all, kind, bytes, false);
  // Two levels: inside the domain, then between ranks with the same index, each with its part.
  const Ring far{static_cast<double>(domains), rate_between(m, domains), far_latency};
  const Collective half = Collective::reduce_scatter;
  const double part = bytes / static_cast<double>(local);
  const double near_seconds = kind == Collective::all_reduce ? 2 * ring_seconds(near, half, bytes)
                                                             : ring_seconds(near, half, bytes);
  const double two_levels =
      near_seconds + flat_seconds(far, kind, part, m.network.in_network_reduction);
  return std::min(one_ring, two_levels);
}

double sum_seconds(const Machine& m, Collective kind, const Group& group, double bytes,
                   bool in_fixed_order) {
  if (!in_fixed_order) return collective_seconds(m, kind, group, bytes);
  if (group.size <= 1 || bytes <= 0) return 0;
  const auto ranks = static_cast<double>(group.size), local = static_cast<double>(inside(m, group)),
             domains = static_cast<double>(domains_of(m, group));
  const double near = bytes * (local - 1) / local / domain_rate(m);
  const double far =
      domains > 1 ? bytes / local * (domains - 1) / domains / rate_between(m, domains_of(m, group))
                  : 0;
  // Larger sums take several rounds of the buffer that data_buffers() gives them; each further one
  // waits once in each level.
  constexpr double round_bytes = 64 << 20;
  const double rounds = std::max(1.0, std::ceil(bytes / round_bytes));
  const double latency =
      (local - 1) * m.domain.link.latency + (domains - 1) * m.network.link.latency +
      (rounds - 1) *
          ((local > 1 ? m.domain.link.latency : 0) + (domains > 1 ? m.network.link.latency : 0));
  // A rank copies its own parts for the ranks at its place of all domains, adds those of its
  // neighbours to them, adds the partial sums of other domains, and copies the result. An addition
  // reads two operands and writes one.
  // With one rank in each domain there is one level.
  const double copied = local > 1 ? domains : 1;
  const double moved = 2 * copied + 3 * domains * (local - 1) + 3 * (domains - 1) + 2;
  const double additions =
      bytes / ranks * moved / (m.processor.bytes_per_second * m.processor.memory_reach);
  // Additions of one depth of the tree are one kernel.
  const double kernels = rounds * (std::ceil(std::log2(local)) + std::ceil(std::log2(domains)) + 3);
  const double scattered = near + far + latency + additions + kernels * m.processor.launch_seconds;
  if (kind == Collective::reduce_scatter) return scattered;
  return scattered + collective_seconds(m, Collective::all_gather, group, bytes);
}

int64_t domains_of(const Machine& m, const Group& group) {
  const int64_t local = inside(m, group);
  return (group.size + local - 1) / local;
}

double two_level_seconds(const Machine& m, const Group& group, double bytes, double crossing) {
  const int64_t local = inside(m, group), domains = domains_of(m, group);
  if (domains <= 1) return collective_seconds(m, Collective::all_to_all, group, bytes);
  if (bytes <= 0) return 0;
  const auto others = static_cast<double>(local - 1);
  const double far = bytes * crossing / rate_between(m, domains) +
                     static_cast<double>(domains - 1) * m.network.link.latency;
  const double near =
      bytes * others / static_cast<double>(local) / domain_rate(m) + others * m.domain.link.latency;
  return std::max(near, far);
}

double message_seconds(const Machine& m, int64_t stride, double bytes) {
  const bool is_near = stride < m.domain.size;
  const double rate = is_near ? domain_rate(m) : rate_between(m, 2);
  return bytes / rate + (is_near ? m.domain.link.latency : m.network.link.latency);
}

}  // namespace trireme::plan
