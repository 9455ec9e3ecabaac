// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/peer/peer_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/world/job_token.h"

namespace trireme::train {
namespace {

// The first rank makes it. Collective.
std::string shared_secret(Rank& rank) {
  std::array<char, 64> own{};
  if (rank.is_first()) {
    const std::string secret = comm::random_token();
    TRIREME_CHECK(secret.size() < own.size(), "a secret of {} characters", secret.size());
    secret.copy(own.data(), own.size());
  }
  return rank.gather(own).front().data();
}

std::optional<int> empty_buffer(const ckpt::CopyMemory& memory) {
  const std::vector<ckpt::FoundCopy> copies = memory.copies();
  for (int buffer = 0; buffer < memory.shape().buffers; ++buffer) {
    if (std::ranges::find(copies, buffer, &ckpt::FoundCopy::buffer) == copies.end()) return buffer;
  }
  return std::nullopt;
}

}  // namespace

PeerCopies::PeerCopies(const Parts& parts)
    : number_(parts.rank.number()),
      store_(parts.memory_fd),
      group_{.secret = shared_secret(parts.rank), .epoch = parts.epoch} {
  try {
    listener_.emplace(parts.host_address, group_, [this](comm::PeerConnection& connection) {
      serve_copies(connection, store_);
    });
  } catch (const base::IoError& error) {
    base::log_warning("rank {} keeps no copies for other ranks: {}", number_, error.what());
  }
  addresses_ = parts.rank.all_gather_texts(listener_ ? listener_->address() : "");
}

FetchedCopy PeerCopies::fetch(int keeper, const ckpt::CopyShape& shape, int64_t step,
                              ckpt::CopyMemory* own) const {
  const std::string& address = addresses_.at(static_cast<size_t>(keeper));
  if (address.empty()) throw comm::PeerLost("it does not accept connections");
  const comm::PeerStop stop;
  comm::PeerConnection connection(address, group_, number_, stop);
  const std::optional<int> buffer = own != nullptr ? empty_buffer(*own) : std::nullopt;
  if (!buffer) return fetch_copy(connection, shape, step);
  TRIREME_CHECK(own->shape() == shape, "memory of rank {}", own->shape().rank);
  FetchedCopy fetched = fetch_copy(connection, shape, step, own->begin(*buffer));
  own->seal(*buffer, fetched.label, fetched.hash);
  own->mark_held(*buffer);  // ranks continue only from a step that all have finished
  return fetched;
}

void PeerCopies::send_to(const Partners& partners, const ckpt::CopyMemory& own) {
  partners_ = partners;
  are_lost_.assign(partners.keepers.size(), false);
  const int keeper = partners.keepers.at(static_cast<size_t>(number_));
  sender_.emplace(CopySender::Target{.address = addresses_.at(static_cast<size_t>(keeper)),
                                     .group = group_,
                                     .own = number_,
                                     .keeper = keeper},
                  own);
}

std::vector<PartnerNews> PeerCopies::news(std::span<const std::string> problems) {
  std::vector<PartnerNews> news;
  for (size_t rank = 0; rank < problems.size(); ++rank) {
    const bool is_lost = !problems[rank].empty();
    if (is_lost == are_lost_.at(rank)) continue;
    are_lost_[rank] = is_lost;
    const std::string what =
        fmt::format("copies of rank {} to rank {}", rank, partners_.keepers.at(rank));
    news.push_back({.is_lost = is_lost,
                    .rank = static_cast<int>(rank),
                    .text = is_lost ? fmt::format("{} do not arrive: {}; each later one is tried "
                                                  "again, and the loss of a node costs the steps "
                                                  "since the newest checkpoint meanwhile",
                                                  what, problems[rank])
                                    : fmt::format("{} arrive again", what)});
  }
  return news;
}

}  // namespace trireme::train
