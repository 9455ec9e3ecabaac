// SPDX-License-Identifier: Apache-2.0
#include "data/mixture/mixed_sampler.h"

#include <fmt/core.h>

#include "base/check.h"
#include "base/error.h"

namespace trireme::data {

MixedSampler::MixedSampler(const Phases& phases, std::vector<const SampleProvider*> sources)
    : phases_(phases), sources_(std::move(sources)) {
  const std::vector<PhaseSource>& wanted = phases.run().sources;
  if (sources_.size() != wanted.size()) {
    throw base::ConfigError(
        fmt::format("{} samplers for {} sources", sources_.size(), wanted.size()));
  }
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i]->seq_len() == seq_len()) continue;
    throw base::ConfigError(fmt::format("source '{}' has a seq_len of {}, source '{}' of {}",
                                        wanted[i].name, sources_[i]->seq_len(), wanted.front().name,
                                        seq_len()));
  }
}

void MixedSampler::fill_sample(int64_t position, const SampleOut& out,
                               std::vector<int32_t>& borders) const {
  const PhasePosition at = phases_.at_sample(position);
  const Phase& phase = phases_.table()[static_cast<size_t>(at.phase)];
  TRIREME_CHECK(phase.options.seq_len == seq_len(), "sample {} has a seq_len of {}, not {}",
                position, phase.options.seq_len, seq_len());
  const SampleOrigin from = phases_.origin(position);
  sources_[static_cast<size_t>(from.source)]->sample(from.sample, out, borders);
}

}  // namespace trireme::data
