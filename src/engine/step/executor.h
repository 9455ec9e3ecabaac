// SPDX-License-Identifier: Apache-2.0
// Executor: runs the actions of one rank's program. It depends on no particular schedule.
//
// Outputs and gradients pass between stages of this rank in the stash, and to and from other ranks
// through the Pipe. A receive begins as soon as the host has queued it and its place in the stash
// is free.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/step/action_times.h"
#include "engine/step/input.h"
#include "engine/step/pipe.h"
#include "engine/step/stage.h"
#include "engine/step_progress.h"
#include "schedule/schedule.h"
#include "spec/plan.h"

namespace trireme::engine {

class Executor {
 public:
  // `stages` are this rank's, in the order of their stage numbers.
  Executor(const spec::Plan&, std::vector<std::unique_ptr<Stage>> stages, Pipe&, Buckets&,
           const spec::StashLayout&, StepProgress&);

  // Queues all actions of one step on `compute`. Gradients are complete and reduced afterwards. On
  // the rank of the last stage, loss and token count of its micro-batches are added to the sink.
  void run(device::Stream& compute, const InputStaging&, nn::StepSink&);
  // Queues the forward of micro-batch 0 through all stages and keeps no slots.
  void evaluate(device::Stream& compute, const InputStaging&, nn::StepSink&);

  // Records the times of the actions of every run. Null: none. Not owned.
  void set_times(ActionTimes* times) { times_ = times; }

 private:
  // Properties of an action that follow from the program.
  struct Place {
    spec::Leaf leaf;
    bool begins = false, completes = false, writes = false;  // among the actions of its leaf
    bool gathers = true, releases = true;                    // among the actions of its stage
    bool frees = false;                                      // a receive waits for its end
  };
  using Key = std::pair<int, int>;  // stage, micro-batch

  void find_places(const spec::Plan&);
  void find_frees();
  int index_of(int stage) const;  // among this rank's stages; -1: on another rank
  Stage& stage(int number);
  int rank_of(int stage) const { return lane_[static_cast<size_t>(stage)]; }
  const spec::StashLayout::Frames& frames(const schedule::Action&) const;
  // Returns the end of the action at this position of the program; -1: the start of the step.
  const device::Event& end_of(int position) const;

  // The task of an F, B, W or BW.
  Task task_of(size_t position, const InputStaging&);
  Stage::Progress begin(size_t position, device::Stream& compute, const InputStaging&,
                        nn::StepSink&);
  void compute_at(size_t position, device::Stream& compute, const InputStaging&, nn::StepSink&);
  void compute_pair(size_t position, device::Stream& compute, const InputStaging&, nn::StepSink&);
  void receive(size_t position);

  std::vector<schedule::Action> program_;
  schedule::Lane lane_;
  std::vector<Place> places_;  // by action
  std::vector<int> stage_numbers_;
  std::vector<std::unique_ptr<Stage>> stages_;
  Pipe& pipe_;
  Buckets& buckets_;
  const spec::StashLayout& layout_;
  StepProgress& progress_;
  ActionTimes* times_ = nullptr;
  device::Event step_began_;
  std::vector<device::Event> ended_;                 // by action, if a receive waits for it
  std::map<Key, device::Event> inputs_, gradients_;  // received from other ranks
};

}  // namespace trireme::engine
