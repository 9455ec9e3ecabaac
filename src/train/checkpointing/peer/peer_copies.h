// SPDX-License-Identifier: Apache-2.0
// PeerCopies: copies of the states of ranks in the memory of other nodes, in one epoch of a run.
// This rank keeps copies for others, and another rank, in another failure domain, keeps its own
// (partners.h). They survive the loss of a node.
//
// Transfers run on threads beside the steps. They never fail the run: a rank whose copies do not
// arrive is reported, and tries again with its next one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/memory/copy_memory.h"
#include "comm/peer/peer_listener.h"
#include "train/checkpointing/peer/copy_sender.h"
#include "train/checkpointing/peer/copy_transfer.h"
#include "train/checkpointing/peer/kept_store.h"
#include "train/checkpointing/peer/partners.h"
#include "train/setup/rank.h"

namespace trireme::train {

class PeerCopies {
 public:
  struct Parts {
    Rank& rank;
    int memory_fd = -1;        // RankStart::peer_memory_fd
    std::string host_address;  // RankStart::host_address
    int64_t epoch = 0;
  };
  // Exchanges the addresses of all ranks, and a secret of the epoch. Throws IoError if the memory
  // cannot be read. Collective.
  explicit PeerCopies(const Parts&);

  // ---- where the epoch continues
  // Returns what an earlier epoch has left in the memory of this rank.
  std::vector<KeptStore::Kept> kept() const { return store_.list(); }
  // Fetches the copy of this rank's state from rank `keeper`. It becomes one of `own`, which has
  // its shape, if there is an empty buffer; null: it does not. Throws PeerLost.
  FetchedCopy fetch(int keeper, const ckpt::CopyShape&, int64_t step, ckpt::CopyMemory* own) const;

  // ---- then
  // As KeptStore. All fetches have ended.
  void reserve(std::span<const ckpt::CopyShape> shapes) { store_.reserve(shapes); }
  void settle() { store_.settle(); }
  int64_t reserved_bytes() const { return store_.reserved_bytes(); }
  // From now on copies in `own`, which must outlive this object, may be sent to the rank that keeps
  // those of this one.
  void send_to(const Partners&, const ckpt::CopyMemory& own);
  // As KeptStore::begin().
  void begin(const std::string& run, int64_t step) { store_.begin(run, step); }
  void mark_held(int64_t step) { store_.mark_held(step); }
  // REQUIRES: send_to().
  CopySender& sender() { return *sender_; }
  // Returns what has changed, from why the last send of each rank has failed (empty: it has not).
  std::vector<PartnerNews> news(std::span<const std::string> problems);

 private:
  const int number_;
  KeptStore store_;
  comm::PeerGroup group_;
  std::optional<comm::PeerListener> listener_;  // none: this rank cannot listen
  std::vector<std::string> addresses_;          // by rank; empty: it does not listen
  Partners partners_;
  std::vector<bool> are_lost_;  // the last sends, by rank
  std::optional<CopySender> sender_;
};

}  // namespace trireme::train
