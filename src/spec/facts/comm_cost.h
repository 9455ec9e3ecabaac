// SPDX-License-Identifier: Apache-2.0
// One collective of a layer along an axis of the mesh, and the bytes that a rank sends for it, as
// comm::Communicator counts them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "spec/parallel/axes.h"

namespace trireme::spec {

// all_to_all: every rank sends an equal part of its tensor to each rank. shift: every rank sends
// its tensor to the next one.
enum class CommKind : uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all, shift, count };
std::string_view name_of(CommKind);

struct CommCost {
  CommKind kind = CommKind::all_reduce;
  Axis axis = Axis::tp;
  int64_t elements = 0;  // of the whole tensor; all_to_all and shift: of a rank's tensor
  base::DType dtype = base::DType::f32;
  int ranks = 0;          // of the group; 0: all along the axis
  bool is_inner = false;  // adjacent ranks of the axis (Ulysses)

  bool operator==(const CommCost&) const = default;
};

// Tensors with fewer elements are summed by sending everything to every rank: one exchange instead
// of two.
constexpr int64_t small_all_reduce_elements = 4096;

// Returns the bytes that one of `ranks` sends. REQUIRES: gathered, scattered and exchanged tensors
// divide by the ranks.
int64_t sent_bytes(const CommCost&, int ranks);
// Returns the bytes that a rank sends for the costs along one axis of the mesh.
int64_t sent_bytes(const std::vector<CommCost>&, Axis, const Sizes&);

}  // namespace trireme::spec
