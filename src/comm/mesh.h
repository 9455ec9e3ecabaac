// SPDX-License-Identifier: Apache-2.0
// Mesh: named axes over the world, and the groups of ranks along them. The dense view of the ranks
// is [pp, dp, zero, cp, tp], the last axis the fastest; the expert view [pp, edp, ezero, ep, etp].
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "spec/parallel/axes.h"

namespace trireme::comm {

// Different kinds of traffic between the same ranks use separate channels.
enum class Channel : uint8_t { compute, data, activations, gradients, expert, expert_rows };

// Returns why these sizes are not a mesh of `world` ranks; empty if they are. The expert axes may
// all be 1 (a model without experts) and are ignored then.
std::string mesh_problem(const spec::Sizes&, int world);

using spec::coord_of;
// Returns the world ranks that differ from `rank` only along `axes`, in ascending order, which is
// also that of their coordinates. REQUIRES: all axes are of one view.
std::vector<int> members(const spec::Sizes&, int rank, std::span<const spec::Axis> axes);

class Mesh {
 public:
  // `world` spans all ranks; throws ConfigError unless its size is the product of the dense axes.
  Mesh(Communicator& world, const spec::Sizes& sizes);

  const spec::Sizes& sizes() const { return sizes_; }
  const spec::Coord& coord() const { return coord_; }
  Communicator& world() { return world_; }

  // Returns the group along these axes, created at the first call (collective over the world: all
  // ranks request the same axes in the same order). Axes with the same member ranks share one group
  // per channel. It has the deadline and order of sums of the world; its name lists the axes:
  // "dp+zero", "tp gradients".
  Communicator& along(std::span<const spec::Axis> axes, Channel channel = Channel::compute);
  Communicator& along(spec::Axis axis, Channel channel = Channel::compute);

  // Ends all groups of this rank (Communicator::close()), but not the world.
  void close(End) noexcept;

  // Returns all groups created so far, without the world.
  std::vector<Communicator*> groups();

 private:
  Communicator& world_;
  spec::Sizes sizes_;
  spec::Coord coord_;
  std::map<std::pair<std::vector<int>, Channel>, std::unique_ptr<Communicator>> groups_;
};

}  // namespace trireme::comm
