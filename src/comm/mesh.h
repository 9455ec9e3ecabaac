// SPDX-License-Identifier: Apache-2.0
// Mesh: named axes over the world, and the groups of ranks along them. The dense view of the ranks
// is [pp, dp, zero, cp, tp], the last axis the fastest; the expert view [pp, dp, ezero, ep, etp].
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

// Traffic of different kinds between the same ranks has channels of its own.
enum class Channel : uint8_t { compute, data, activations, gradients, expert };

// Why these sizes are no mesh of `world` ranks; empty if they are one. The expert axes may all be 1
// (a model without experts): they then say nothing.
std::string mesh_problem(const spec::Sizes&, int world);

// The rank's place in either view. REQUIRES: 0 <= rank < product of the dense axes.
spec::Coord coord_of(const spec::Sizes&, int rank);
// World ranks that differ from `rank` only along `axes`, in order of their coordinates, which is
// that of the ranks. REQUIRES: all axes are of one view.
std::vector<int> members(const spec::Sizes&, int rank, std::span<const spec::Axis> axes);

class Mesh {
 public:
  // `world` spans all ranks; its size must be the product of the dense axes (ConfigError else).
  Mesh(Communicator& world, const spec::Sizes& sizes);

  const spec::Sizes& sizes() const { return sizes_; }
  const spec::Coord& coord() const { return coord_; }
  Communicator& world() { return world_; }

  // The group along these axes, made at the first call (collective over the world: all ranks ask
  // for the same axes in the same order). The same member ranks on the same channel share one. Its
  // deadline and order of sums are the world's; its name says the axes: "dp+zero", "tp gradients".
  Communicator& along(std::span<const spec::Axis> axes, Channel channel = Channel::compute);
  Communicator& along(spec::Axis axis, Channel channel = Channel::compute);

  // All groups made so far, without the world.
  std::vector<Communicator*> groups();

 private:
  Communicator& world_;
  spec::Sizes sizes_;
  spec::Coord coord_;
  std::map<std::pair<std::vector<int>, Channel>, std::unique_ptr<Communicator>> groups_;
};

}  // namespace trireme::comm
