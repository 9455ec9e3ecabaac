// SPDX-License-Identifier: Apache-2.0
// The communication of a layer with other ranks, by axis of the mesh.
#pragma once

#include "device/wait_watch.h"
#include "nn/boundary.h"

namespace trireme::nn {

// Ranks along cp, which have other rows of the same sequences: `ulysses` are the adjacent ranks of
// a group (spec::ContextSplit), `groups` the ranks at the same place in all groups. Null: one rank.
// Collectives between groups run on `side`, beside compute. Nothing is owned.
struct ContextBoundary {
  comm::Communicator* ulysses = nullptr;
  comm::Communicator* groups = nullptr;
  device::Stream* side = nullptr;

  // Starts transfer(), a call of `groups` on the side stream, after all work queued on compute.
  // Returns when it will be complete.
  template <typename Transfer>
  device::Event start(Pass& pass, Transfer transfer) const {
    side->wait(pass.stream.record());
    transfer();
    return side->record();
  }
  void wait(Pass& pass, const device::Event& arrived) const {
    device::wait_for(pass.stream, arrived, device::Wait::cp);
  }
  void all_to_all(Pass& pass, Tensor out, ConstTensor in) const {
    ulysses->all_to_all(pass.stream, out, in);
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

  // Exchanges blocks of rows with the ranks along ep, after all work queued on compute.
  void start(Pass& pass, Tensor out, ConstTensor in) const {
    if (side == nullptr || pass.arrival == nullptr) {
      ep->all_to_all(pass.stream, out, in);
      return;
    }
    side->wait(pass.stream.record());
    rows->all_to_all(*side, out, in);
    *pass.arrival = side->record();
  }
  // Compute that is queued from here on reads what start() exchanged.
  void wait(Pass& pass) const {
    if (side == nullptr || pass.arrival == nullptr) return;
    device::wait_for(pass.stream, *pass.arrival, device::Wait::ep);
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
