// SPDX-License-Identifier: Apache-2.0
// The communication of a layer with other ranks, by axis of the mesh.
#pragma once

#include <utility>
#include <vector>

#include "nn/boundary.h"

namespace trireme::nn {

// How long compute waits for transfers along cp, or makes them itself, while it is switched on.
class TransferTimes {
 public:
  // Switching it on forgets the times before.
  void set_on(bool on) {
    if (on) spans_.clear();
    is_on_ = on;
  }
  bool is_on() const { return is_on_; }
  // Calls `work`, which queues a wait or a transfer on `compute`.
  template <typename Work>
  void during(device::Stream& compute, Work work) {
    if (!is_on_) return work();
    const device::Event begin = compute.record_timed();
    work();
    spans_.emplace_back(begin, compute.record_timed());
  }
  // REQUIRES: the stream has completed its work.
  double seconds(device::Stream& compute) const {
    double sum = 0;
    for (const auto& [begin, end] : spans_) sum += compute.seconds_between(begin, end);
    return sum;
  }

 private:
  bool is_on_ = false;
  std::vector<std::pair<device::Event, device::Event>> spans_;
};

// Ranks along cp, which have other rows of the same sequences: `ulysses` are the adjacent ranks of
// a group (spec::ContextSplit), `groups` the ranks at the same place in all groups. Null: one rank.
// Collectives between groups run on `side`, beside compute. Nothing is owned.
struct ContextBoundary {
  comm::Communicator* ulysses = nullptr;
  comm::Communicator* groups = nullptr;
  device::Stream* side = nullptr;
  TransferTimes* times = nullptr;  // null: one rank

  // Starts transfer(), a call of `groups` on the side stream, after all work queued on compute.
  // Returns when it will be complete.
  template <typename Transfer>
  device::Event start(Pass& pass, Transfer transfer) const {
    // Streams that run inline make the transfer here.
    times->during(pass.stream, [&] {
      side->wait(pass.stream.record());
      transfer();
    });
    return side->record();
  }
  void wait(Pass& pass, const device::Event& arrived) const {
    times->during(pass.stream, [&] { pass.stream.wait(arrived); });
  }
  void all_to_all(Pass& pass, Tensor out, ConstTensor in) const {
    times->during(pass.stream, [&] { ulysses->all_to_all(pass.stream, out, in); });
  }
};

// Ranks that share the experts of a layer: `ep` have other experts, `etp` other parts of the same
// experts. `tokens` have other rows of the same sequences, and `step` all other rows of a step (for
// spec::AuxScope::global only); loads of experts are summed over them. Null: one rank. Nothing is
// owned.
struct ExpertBoundary {
  comm::Communicator* ep = nullptr;
  comm::Communicator* etp = nullptr;
  comm::Communicator* tokens = nullptr;
  comm::Communicator* step = nullptr;
  // The same ranks as `ep`, for rows, which travel on `side`, beside compute. Null: on compute.
  comm::Communicator* rows = nullptr;
  device::Stream* side = nullptr;
  TransferTimes* times = nullptr;

  // Exchanges blocks of rows with the ranks along ep, after all work queued on compute.
  void start(Pass& pass, Tensor out, ConstTensor in) const {
    if (side == nullptr || pass.arrival == nullptr) {
      ep->all_to_all(pass.stream, out, in);
      return;
    }
    // Streams that run inline make the transfer here.
    times->during(pass.stream, [&] {
      side->wait(pass.stream.record());
      rows->all_to_all(*side, out, in);
    });
    *pass.arrival = side->record();
  }
  // Compute that is queued from here on reads what start() exchanged.
  void wait(Pass& pass) const {
    if (side == nullptr || pass.arrival == nullptr) return;
    times->during(pass.stream, [&] { pass.stream.wait(*pass.arrival); });
  }

  int rank() const { return ep == nullptr ? 0 : ep->rank(); }
  int ranks() const { return ep == nullptr ? 1 : ep->size(); }
};

struct Boundaries {
  Boundary tp;
  ContextBoundary cp;
  ExpertBoundary expert = {};
};

}  // namespace trireme::nn
