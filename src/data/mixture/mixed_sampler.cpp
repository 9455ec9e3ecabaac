// SPDX-License-Identifier: Apache-2.0
#include "data/mixture/mixed_sampler.h"

#include <fmt/core.h>

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
  // Errors, because a prefetcher reads ahead over the end of a phase; it throws them only if the
  // batch is requested.
  if (position >= samples()) {
    throw base::Error(fmt::format("sample {}; the phases of the run have {}", position, samples()));
  }
  const PhaseOptions& phase =
      phases_.table()[static_cast<size_t>(phases_.at_sample(position).phase)].options;
  if (phase.seq_len != seq_len()) {
    throw base::Error(fmt::format("sample {} is in phase '{}' with a seq_len of {}, not {}",
                                  position, phase.name, phase.seq_len, seq_len()));
  }
  const SampleOrigin from = phases_.origin(position);
  sources_[static_cast<size_t>(from.source)]->sample(from.sample, out, borders);
}

}  // namespace trireme::data
