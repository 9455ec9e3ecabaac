// SPDX-License-Identifier: Apache-2.0
// Samples of several sources as one provider.
#pragma once

#include <cstdint>
#include <vector>

#include "data/mixture/phases.h"
#include "data/samples/sample_provider.h"

namespace trireme::data {

// Positions are samples of the run (Phases). All phases of one seq_len use one MixedSampler. A
// phase with another seq_len needs samplers, and a MixedSampler, of that seq_len; give all samplers
// of a source the largest seq_len of the run as SamplerOptions::shuffle_len, so that they read the
// same tokens in the same order. Any thread may call.
class MixedSampler final : public SampleProvider {
 public:
  // `phases` and `sources` (in the order of the phases' sources) must outlive the sampler. Throws
  // ConfigError if their numbers differ, or the sources' seq_len.
  MixedSampler(const Phases& phases, std::vector<const SampleProvider*> sources);

  int64_t samples() const override { return phases_.samples(); }
  int64_t seq_len() const override { return sources_.front()->seq_len(); }
  SampleOrigin origin(int64_t position) const { return phases_.origin(position); }

 private:
  // Throws Error, too, if the position is not below samples() or in a phase of another seq_len.
  void fill_sample(int64_t position, const SampleOut& out,
                   std::vector<int32_t>& borders) const override;

  const Phases& phases_;
  std::vector<const SampleProvider*> sources_;
};

}  // namespace trireme::data
