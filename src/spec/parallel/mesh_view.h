// SPDX-License-Identifier: Apache-2.0
// MeshView: how the ranks that sum the gradients of a parameter store its training state. Ranks
// along the axes `shard` hold one part each of what is sharded; ranks along `replicate` hold copies
// of a part. Both together are the axes over which gradients are summed. A layer has one bucket for
// each view of its parameters (bucket.h).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "spec/parallel/axes.h"

namespace trireme::spec {

// The views of a mesh. `dense`: every rank computes with the parameter, so its gradient is summed
// over dp, zero and cp. `expert`: the parameters of experts, which are cut along ep and etp. Rows
// of all ranks along ep and etp reach the rank that has their expert, so its gradient contains them
// already and is summed over edp and ezero only, without a factor.
enum class ParamView : uint8_t { dense, expert, count };
std::string_view name_of(ParamView);

struct MeshView {
  std::vector<Axis> shard, replicate;  // the slowest axis first
  bool operator==(const MeshView&) const = default;

  int shards(const Sizes&) const;
  int replicas(const Sizes&) const;
  // Returns the number of ranks whose gradients are summed.
  int ranks(const Sizes& sizes) const { return shards(sizes) * replicas(sizes); }
  // Return the rank's index among the shards, and among the copies of its shard.
  int shard_of(const Sizes&, const Coord&) const;
  int replica_of(const Sizes&, const Coord&) const;
};

const MeshView& mesh_view(ParamView);

}  // namespace trireme::spec
