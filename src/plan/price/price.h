// SPDX-License-Identifier: Apache-2.0
// Pricer computes time and memory of a layout from the facts of its layers, a machine and a stack.
// Everything in the planner uses it, so that one layout has one price.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "plan/job.h"
#include "plan/memory/stage_share.h"
#include "plan/price/rules.h"
#include "plan/stack.h"
#include "spec/machine.h"

namespace trireme::plan {

// The parts of a step's time on the slowest rank.
enum class Term : uint8_t {
  forward,   // of blocks
  backward,  // of blocks, without recompute
  recompute,
  ends,      // embedding, head and loss
  tensor,    // exposed collectives of tp
  context,   // exposed transfers of cp
  expert,    // exposed all-to-alls of ep
  bubble,    // waiting for other stages
  messages,  // exposed messages of pp
  data,      // exposed collectives of dp and ZeRO
  optimizer,
  host,    // kernels launched more slowly than they run
  jitter,  // waiting for the slowest of all ranks
  rest,
  count
};
std::string_view name_of(Term);
std::string_view meaning_of(Term);

enum class Item : uint8_t {
  weights,
  gradients,
  optimizer,
  activations,
  working,
  transfers,
  reserved,
  count
};
std::string_view name_of(Item);

struct Price {
  std::array<double, static_cast<size_t>(Term::count)> seconds_of{};
  double seconds = 0;  // their sum
  std::array<double, static_cast<size_t>(Item::count)> bytes_of{};
  // The sum on the rank with the highest total. For layouts that the engine runs it is exact except
  // for the gaps that stages of different sizes leave in the stash, so never more than is
  // allocated. It is not exact, but confirm() is, for given cuts and custom schedules, which are
  // priced as balanced stages of the named schedule, for interleaved groups that are not complete,
  // and for recipes of fp8 on models with dense blocks beside experts.
  double bytes = 0;
  double model_flops = 0, hardware_flops = 0;  // of one step, over all ranks
  bool operator==(const Price&) const = default;

  double at(Term term) const { return seconds_of[static_cast<size_t>(term)]; }
  double at(Item item) const { return bytes_of[static_cast<size_t>(item)]; }
};

class Pricer {
 public:
  // The arguments must outlive the Pricer.
  Pricer(const Job&, const spec::Machine&, const Stack&);
  ~Pricer();
  Pricer(const Pricer&) = delete;
  Pricer& operator=(const Pricer&) = delete;

  // REQUIRES: no rule is broken. The price depends on the arguments alone. Not thread-safe: it
  // caches costs that layouts share.
  Price price(const Layout&);
  // Returns a tighter lower bound of the bytes, which includes gaps (EngineMemory). Slow if ranks
  // have several stages.
  double bytes_at_least(const Layout&);
  // Returns the layer costs from which the price is computed.
  const LayerCosts& layers(const Layout&);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::plan
