// SPDX-License-Identifier: Apache-2.0
// CapturedSteps: training steps that the device replays as one graph, instead of taking them kernel
// by kernel from the host.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "device/device.h"
#include "spec/parallel/data_parallel.h"
#include "spec/plan.h"

namespace trireme::engine {

// Is a step small enough? The host needs about a second to prepare a graph of 25,000 kernels. All
// ranks have the same answer: NCCL requires that all capture a call, or none does.
bool is_worth_capturing(const spec::ModelSpec&, const spec::Plan&);

class CapturedSteps {
 public:
  enum class Kind : uint8_t { plain, with_numerics, count };  // with_numerics: counts LayerNumerics

  // `traffic` returns the bytes that this rank has sent so far.
  CapturedSteps(device::Stream& compute, std::function<spec::TrafficTable()> traffic)
      : compute_(compute), traffic_(std::move(traffic)) {}

  // Queues the graph of this kind of step. The first time it captures what `queue_step` queues on
  // compute and on `others`, in the phase "compile". Returns false and queues nothing if the device
  // has no graphs.
  bool launch(Kind, std::span<device::Stream* const> others,
              const std::function<void()>& queue_step);
  // The next step of each kind is captured again.
  void clear() { graphs_ = {}; }
  bool has_any() const;
  // The bytes that launches have sent and groups have not counted: all except each first one.
  const spec::TrafficTable& replayed() const { return replayed_; }

 private:
  struct Step {
    std::unique_ptr<device::Graph> graph;
    spec::TrafficTable traffic;  // sent by one launch
  };

  device::Stream& compute_;
  std::function<spec::TrafficTable()> traffic_;
  std::array<Step, static_cast<size_t>(Kind::count)> graphs_;
  spec::TrafficTable replayed_;
};

}  // namespace trireme::engine
