// SPDX-License-Identifier: Apache-2.0
#include "train/run/copies/rank_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "device/host_memory.h"
#include "obs/clock.h"
#include "obs/terminal/number_text.h"
#include "train/checkpointing/peer/node_domains.h"
#include "train/checkpointing/peer/partners.h"
#include "train/run/state/copied_state.h"

namespace trireme::train {
namespace {

int buffers_of(const Incarnation& parts) {
  return static_cast<int>(parts.bench.config.elastic.peer_buffers);
}

ckpt::CopyShape copy_shape(const Incarnation& parts, int rank) {
  return shape_of(copy_layout(parts.bench.model, parts.plan(), rank), rank, buffers_of(parts));
}

// Returns the host memory that is available when copies are reserved.
int64_t available_bytes(Incarnation& parts) {
  Platform& platform = parts.bench.platform;
  return platform.is_gpu() ? device::host_memory_available() : platform.host_available_bytes;
}

// Returns the bytes that the host lacks for what this rank needs; at most 0: it has them.
int64_t missing_bytes(Incarnation& parts, const HostBytes& host, int64_t available) {
  return missing_host_bytes(*parts.job, parts.bench.platform, parts.start.host_ranks, host,
                            available);
}

// What one rank lacks decides for all: returns the text about it; empty: none lacks anything.
// Collective.
std::string shortage(Rank& rank, int64_t bytes, int64_t missing) {
  const std::vector<int64_t> all = rank.gather(missing);
  const auto most = std::ranges::max_element(all);
  if (*most <= 0) return "";
  return fmt::format("{} a rank do not fit beside the rest: the host of rank {} lacks {}",
                     obs::bytes_text(bytes), most - all.begin(), obs::bytes_text(*most));
}

// Are these reserved bytes missing in available_bytes() of this process?
bool is_taken_off(const Incarnation& parts) {
  return parts.bench.platform.is_gpu() || parts.start.up_at > 0;
}

// Copies of each rank itself. Returns whether an earlier epoch has reserved them. Collective.
bool reserve_own(Incarnation& parts, const HostBytes& host, int64_t available) {
  const RankStart& start = parts.start;
  const ckpt::CopyShape shape = copy_shape(parts, start.number);
  // What earlier epochs have reserved is not available any more, and needs no room.
  const bool is_reserved =
      ckpt::CopyMemory::reserved_bytes(start.memory_fd) >= shape.memory_bytes();
  int64_t missing = is_reserved ? 0 : missing_bytes(parts, host, available);
  if (missing <= 0) {
    try {
      parts.copy_memory.emplace(start.memory_fd, shape);
    } catch (const base::OutOfMemory&) {
      missing = host.peer_bytes;
    }
  }
  parts.no_copies = shortage(parts.rank, host.peer_bytes, missing);
  if (parts.no_copies.empty()) {
    parts.copies_bytes = host.peer_bytes;
    return is_reserved;
  }
  parts.copy_memory.reset();
  ckpt::CopyMemory::release(start.memory_fd);
  return false;
}

// Memory for copies that this rank keeps. Returns its bytes; sets no_partners if there is too
// little. Collective.
int64_t reserve_kept(Incarnation& parts, const Partners& partners, HostBytes host,
                     int64_t available) {
  std::vector<ckpt::CopyShape> shapes;
  for (const int rank : partners.ranks_kept_by(parts.start.number)) {
    shapes.push_back(copy_shape(parts, rank));
  }
  host.kept_bytes = ckpt::KeptCopies::memory_bytes(shapes);
  const int64_t reserved = parts.peers->reserved_bytes();
  if (is_taken_off(parts)) available += reserved;
  int64_t missing = reserved >= host.kept_bytes ? 0 : missing_bytes(parts, host, available);
  if (missing <= 0) {
    try {
      parts.peers->reserve(shapes);
    } catch (const base::OutOfMemory&) {
      missing = host.kept_bytes;
    }
  }
  const std::string text = shortage(parts.rank, host.kept_bytes, missing);
  if (!text.empty()) parts.no_partners = "copies of other ranks: " + text;
  return host.kept_bytes;
}

void log_same_domain(const Incarnation& parts, const Partners& partners) {
  if (partners.same_domain.empty() || !parts.rank.is_first()) return;
  base::log_warning(
      "more than half of the nodes are in one failure domain: the copies of {} of "
      "them, node {} among them, are kept in the same domain (elastic.domains)",
      partners.same_domain.size(), partners.same_domain.front());
}

// Ranks send their copies to each other from now on, if they have the memory.
void reserve_partners(Incarnation& parts, const CopyChoice& choice, const HostBytes& host,
                      int64_t available) {
  if (!parts.peers) return;
  const auto drop = [&parts] {
    parts.peers->reserve({});
    parts.peers->settle();
    parts.peers.reset();
  };
  if (!choice.is_sent || !parts.copy_memory) {
    parts.no_partners = choice.why_not_sent;
    return drop();
  }
  const std::vector<std::string> domains =
      domains_of_nodes(parts.rank, parts.bench.config.elastic.domains, parts.start.epoch > 0);
  const Partners partners = partners_of(parts.rank.nodes(), domains);
  const int64_t bytes = reserve_kept(parts, partners, host, available);
  if (!parts.no_partners.empty()) return drop();
  parts.kept_bytes = bytes;
  parts.peers->send_to(partners, *parts.copy_memory);
  log_same_domain(parts, partners);
}

// Makes the memory of this rank's copies before reserve_copies(), unless the host lacks it.
void make_memory(Incarnation& parts, const ckpt::CopyShape& shape,
                 std::optional<ckpt::CopyMemory>& made) {
  HostBytes host = parts.host_bytes();
  host.peer_bytes = shape.memory_bytes();
  if (made || missing_bytes(parts, host, available_bytes(parts)) > 0) return;
  try {
    made.emplace(parts.start.memory_fd, shape);
  } catch (const base::OutOfMemory&) {
    // The copy is used once, in other memory.
  }
}

}  // namespace

void open_copies(Incarnation& parts, const CopyChoice& choice) {
  const RankStart& start = parts.start;
  const bool may_fetch = choice.may_exist && start.epoch > 0 && start.next_epoch;
  if (start.peer_memory_fd < 0 || !(choice.is_sent || may_fetch)) return;
  parts.peers.emplace(PeerCopies::Parts{.rank = parts.rank,
                                        .memory_fd = start.peer_memory_fd,
                                        .host_address = start.host_address,
                                        .epoch = start.epoch});
}

void agree_on_kept(Incarnation& parts, const CopyChoice& choice, std::optional<KeptState>& kept) {
  const int number = parts.start.number;
  auto found = choice.may_exist
                   ? ckpt::CopyMemory::existing(parts.start.memory_fd, copy_shape(parts, number))
                   : std::nullopt;
  std::optional<ckpt::CopyMemory> made;
  CopiesOfRank copies{
      .memory = found ? &*found : nullptr,
      .report =
          [number](const std::string& text) { base::log_warning("rank {}: {}", number, text); },
      .kept = {},
      .fetch = {},
      .buffers = buffers_of(parts)};
  if (parts.peers) {
    copies.kept = parts.peers->kept();
    copies.fetch = [&](int keeper, const ckpt::CopyShape& shape, int64_t step) {
      const double begin = obs::steady_seconds();
      // It outlives this process from now on, too: ranks may give up what they have kept.
      if (!found && choice.is_on) make_memory(parts, shape, made);
      ckpt::CopyMemory* const own = found ? &*found : made ? &*made : nullptr;
      FetchedCopy fetched = parts.peers->fetch(keeper, shape, step, own);
      base::log_info("rank {}: its copy of step {} came from the memory of rank {}: {} in {:.3f} s",
                     number, step, keeper, obs::bytes_text(shape.bytes),
                     obs::steady_seconds() - begin);
      return fetched;
    };
  }
  agree_on_state(parts.rank, parts.bench.model, parts.plan(), copies, kept);
}

void reserve_copies(Incarnation& parts, const CopyChoice& choice) {
  parts.no_copies = choice.why_not;
  HostBytes host = parts.host_bytes();
  const int64_t available = available_bytes(parts);
  if (choice.is_on) {
    const int number = parts.start.number;
    host.peer_bytes = copies_bytes(copy_layout(parts.bench.model, parts.plan(), number), number,
                                   buffers_of(parts));
    const bool was_reserved = reserve_own(parts, host, available);
    if (was_reserved && is_taken_off(parts)) host.peer_bytes = 0;
  }
  reserve_partners(parts, choice, host, available);
}

}  // namespace trireme::train
