// SPDX-License-Identifier: Apache-2.0
// NumericsWatch: which blocks of a run with products in 8 bits fall back to bf16, and which return.
// An alarm (drift_alarm.h) sends its block to bf16 if the configuration says so; after a number of
// steps the block returns, and each time that it falls back again it stays twice as long.
//
// Pure: decisions depend on what was added, in order. The whole state is part of a checkpoint, so
// that a resumed run decides what an uninterrupted one would.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/text/json_fwd.h"
#include "train/numerics/drift_alarm.h"
#include "train/numerics/numerics_figures.h"

namespace trireme::train {

// precision.fallback: what follows an alarm.
enum class Fallback : uint8_t {
  off,   // there are no alarms
  warn,  // a log line and an event
  bf16   // these, and the block's products are computed in bf16 from the next step on
};
std::optional<Fallback> fallback_from_name(std::string_view);

// Blocks of a model, as ranks exchange them.
constexpr size_t max_watched_blocks = 4000;
using BlockSet = std::bitset<max_watched_blocks>;
BlockSet set_of(std::span<const int> blocks);  // REQUIRES: all are below max_watched_blocks
std::vector<int> list_of(const BlockSet&);

class NumericsWatch {
 public:
  struct Options {
    Fallback fallback = Fallback::warn;
    int64_t return_steps = 0;  // after which a block returns to 8 bits; 0: never
  };
  explicit NumericsWatch(const Options& options) : options_(options) {}

  // Largest magnitudes are read after every second step.
  static constexpr int64_t sample_steps = 2;
  static bool is_sampled(int64_t step) { return step % sample_steps == 0; }

  // What follows the sample of a step. Blocks are counted from 0.
  struct Decision {
    std::vector<DriftFinding> alarms;
    std::vector<int> to_bf16, to_fp8;
    bool changes() const { return !to_bf16.empty() || !to_fp8.empty(); }
  };
  // See DriftAlarm::add(). The caller carries the decision out, or calls refuse().
  Decision add(int64_t step, std::span<const LayerFigures> layers);
  // The decision could not be carried out, because the engine would not fit into memory: blocks
  // stay as they are, and none falls back or returns any more.
  void refuse(const Decision&);

  // Returns the blocks that have fallen back, in ascending order.
  std::vector<int> fallen() const;
  // These blocks are no longer in bf16 by fall-back.
  void release(std::span<const int> blocks);

  // These blocks are in bf16 by fall-back, since `step` at the latest; more is not known of them.
  void assume_fallen(std::span<const int> blocks, int64_t step);

  base::Json to_json() const;
  // Throws base::Json::exception if it is no such state.
  static NumericsWatch from_json(const base::Json&, const Options&);

 private:
  struct Fallen {
    bool is_out = true;  // in bf16 now
    int64_t step = 0;    // of the last fall-back
    int64_t times = 1;   // so far
  };
  bool is_over(const Fallen&, int64_t step) const;

  Options options_;
  bool is_refused_ = false;
  DriftAlarm alarm_;
  std::map<int, Fallen> fallen_;  // by block; also those that have returned
};

}  // namespace trireme::train
