// SPDX-License-Identifier: Apache-2.0
// One rank of a layout of several, without the others: what `trireme bench train --as-rank`
// measures. The rank runs its true shapes, schedule, buckets and shards; messages of its peers are
// copies within the device (comm/alone.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/alone.h"
#include "comm/mesh.h"
#include "device/device.h"
#include "engine/engine.h"
#include "spec/machine.h"
#include "spec/parallel/data_parallel.h"
#include "spec/plan.h"
#include "train/setup/fit.h"

namespace trireme::train {

// How transfers are labelled in reports.
constexpr const char* lone_transfers = "local copies, no link";

// Throws ConfigError unless the layout has several ranks and `rank` is one of them. REQUIRES: no
// open degree.
void check_lone_rank(const spec::Layout&, int64_t rank);

// Sets the memory that counts to that of this rank, with its stand-ins.
void count_lone_rank(FitJob&, int rank);

// The mesh and the world of the rank. Must outlive the engine.
class LoneRank {
 public:
  // `plan` must outlive it. REQUIRES: a rank of the plan.
  LoneRank(device::Device&, const spec::ModelSpec&, const spec::Plan& plan, int rank,
           bool fixed_order);

  comm::Mesh& mesh() { return *mesh_; }
  // Is the loss of the model computed on this rank?
  bool has_head() const;
  // Adds what an engine of this rank needs to know.
  void set_options(engine::EngineOptions&) const;
  // Later calls move nothing: memory keeps what earlier ones have left there.
  void stop_transfers() { world_.stop_moving(); }

 private:
  const spec::Plan& plan_;
  comm::AloneWorld world_;
  std::unique_ptr<comm::Communicator> group_;
  std::unique_ptr<comm::Mesh> mesh_;
};

// What the plan says about a rank.
struct LoneRankFacts {
  spec::Coord coord;
  std::vector<int> stages;
  std::vector<spec::LayerRange> layers;  // by stage
  int64_t parameters = 0;                // of these layers, before ZeRO; a tied head has no table
  double hardware_flops = 0;             // of these layers in a step, with recompute
  spec::TrafficTable sent;               // in a step
  spec::MemoryTable memory;
  int64_t stand_in_bytes = 0;
};
LoneRankFacts lone_rank_facts(const spec::ModelSpec&, const spec::Plan&, const spec::Backend&,
                              int rank);

// The planner's times on a machine.
struct LoneRankTime {
  std::string machine;
  double compute_seconds = 0;  // of this rank's layers in a step, without transfers
  double update_seconds = 0;   // of the optimizer, on the ranks of the slowest stage
  double step_seconds = 0;     // of the whole job, with transfers and bubbles
  double band = 0;             // of step_seconds: relative, each way
};
// Throws ConfigError if the planner cannot price the layout on the machine. REQUIRES: a layout that
// check_lone_rank() accepts.
LoneRankTime lone_rank_time(const spec::ModelSpec&, const spec::Workload&, const spec::Layout&,
                            const spec::Machine&, int rank);

}  // namespace trireme::train
