// SPDX-License-Identifier: Apache-2.0
// DriftAlarm: names the block whose 8-bit numbers are going to fail, before the loss shows it.
//
// With one scale for a tensor, a few values that grow push all others of the tensor below the
// smallest code. The largest magnitude of the tensor then rises for many steps before the others
// are lost: E4M3 covers 17 bits from the largest value to the smallest. The alarm follows the
// logarithm of this magnitude:
//
//   d = log2(amax) - baseline, the mean of the steps so far (of the last max_memory at most);
//   excess = min(d, d - median of d of the same matrix in the other blocks).
//
// What all blocks do together (warm-up, another learning rate, a hard batch) has no excess. A block
// drifts if its excess is above a threshold in several samples in a row. The threshold is a number
// of bits by kind of matrix: more in the first steps and where the excess is noisy, and less where
// measured steps show that the share of flushed values has grown as well. Independently of growth,
// a block has failed if most of its values are flushed or if noise outweighs a tenth of the
// signal's amplitude, and that was not so at first.
//
// Pure: results depend on what was added, in order.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "spec/recipe.h"
#include "train/numerics/numerics_figures.h"

namespace trireme::train {

struct DriftFinding {
  int64_t step = 0;
  int layer = 0;  // as LayerFigures::layer
  spec::Quantized role = spec::Quantized::h1;
  enum class Reason : uint8_t { growth, flushed, saturated, noise } reason = Reason::growth;
  double growth_bits = 0;  // the excess
  double flushed = -1;     // shares, and SNR, when they were last measured; -1: never
  double saturated = -1, snr_db = -1;
};
// "act of blocks.3 has grown by 3.2 bits beyond the other blocks; 1.4 % of its values are flushed"
std::string text_of(const DriftFinding&);

class DriftAlarm {
 public:
  // The sample of a step: all blocks with products in 8 bits, those of all pipeline stages. Steps
  // ascend; they need not be consecutive. Returns the block that begins to drift, at most one in a
  // sample: that with the largest excess relative to its threshold. A block is reported again only
  // after its excess was low.
  std::vector<DriftFinding> add(int64_t step, std::span<const LayerFigures> layers);
  // A block does not have products in 8 bits any more.
  void forget(int layer);

  // The whole state, as a part of a checkpoint: an alarm that is restored continues exactly.
  base::Json to_json() const;
  // Throws base::Json::exception if it is no such state.
  static DriftAlarm from_json(const base::Json&);

 private:
  // Follows one matrix of one block.
  struct Track {
    int64_t samples = 0, first_step = 0, last_step = 0;
    double baseline = 0;   // of log2(amax)
    double last = 0;       // excess of the last sample
    double noise2 = 0;     // half the mean square of the excess's changes
    int64_t above = 0;     // samples in a row above the threshold
    int64_t failing = 0;   // measured samples in a row that have failed
    int64_t measured = 0;  // samples with shares
    double flushed = 0;    // mean share of the first samples, then a slow average
    double snr_db = 0;     // the same
  };
  using Tracks = std::array<Track, spec::quantized_count>;
  struct Layer {
    Tracks by;
    bool is_reported = false;
  };
  struct Suspect {
    DriftFinding finding;
    double ratio = 0;  // of the excess and the threshold
  };

  void follow(Track&, int64_t step, double log2_amax);
  // Returns the ratio of excess and threshold, or more than 1 for a matrix that has failed.
  Suspect judge(Track&, int64_t step, spec::Quantized, const RoleFigures&, double excess);

  std::map<int, Layer> layers_;
};

}  // namespace trireme::train
