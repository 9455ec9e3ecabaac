// SPDX-License-Identifier: Apache-2.0
// The communication of a layer with other ranks, by axis of the mesh.
#pragma once

#include "nn/boundary.h"

namespace trireme::nn {

// Ranks along cp, which have other rows of the same sequences: `ulysses` are the adjacent ranks of
// a group (spec::ContextSplit), `groups` the ranks at the same place in all groups. Null: one rank.
// Collectives between groups run on `side`, beside compute. Nothing is owned.
struct ContextBoundary {
  comm::Communicator* ulysses = nullptr;
  comm::Communicator* groups = nullptr;
  device::Stream* side = nullptr;
};

struct Boundaries {
  Boundary tp;
  ContextBoundary cp;
};

}  // namespace trireme::nn
