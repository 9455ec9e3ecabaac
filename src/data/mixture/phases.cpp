// SPDX-License-Identifier: Apache-2.0
#include "data/mixture/phases.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/text/json.h"

namespace trireme::data {
namespace {

// Names the sources of a phase whose limits end it too early.
std::string exhausted_message(const Phase& phase, int64_t available) {
  const int64_t last = phase.first_step + available / phase.options.global_batch;
  return fmt::format(
      "phase '{}' needs {} samples of {} tokens (steps {} to {}), but all its sources are "
      "exhausted after {} of them, in step {}; raise max_epochs or max_tokens of a source, add a "
      "source, or end the phase before that step",
      phase.options.name, phase.samples, phase.options.seq_len, phase.first_step,
      phase.first_step + phase.steps - 1, available, last);
}

}  // namespace

Phases::Phases(RunPhases run) : run_(std::move(run)), table_(phase_table(run_)) {
  for (const Phase& phase : table_) {
    if (phase.steps == 0) break;
    add_mixture(phase);
    samples_ += phase.samples;
  }
}

void Phases::add_mixture(const Phase& phase) {
  const int64_t seq_len = phase.options.seq_len;
  const size_t index = mixtures_.size();
  std::vector<int64_t> first(run_.sources.size(), 0);
  if (index > 0) {
    const Phase& before = table_[index - 1];
    const std::vector<int64_t> taken = mixtures_.back()->counts(before.samples);
    for (size_t i = 0; i < first.size(); ++i) {
      const int64_t samples = first_source_samples_.back()[i] + taken[i];
      first[i] = (samples * before.options.seq_len + seq_len - 1) / seq_len;
    }
  }
  std::vector<MixtureSource> sources;
  for (size_t i = 0; i < first.size(); ++i) {
    const int64_t limit = run_.sources[i].token_limit() / seq_len;
    sources.push_back({.name = run_.sources[i].name,
                       .weight = phase.options.weights[i],
                       .max_samples = std::max<int64_t>(0, limit - first[i])});
  }
  first_source_samples_.push_back(std::move(first));
  try {
    mixtures_.push_back(std::make_unique<MixtureOrder>(
        sources, base::rng_key(run_.seed, fmt::format("data.mixture.{}", index)), phase.samples));
  } catch (const base::ConfigError& error) {
    throw base::ConfigError(fmt::format("phase '{}': {}", phase.options.name, error.what()));
  }
  const int64_t available = mixtures_.back()->samples();
  if (available < phase.samples) throw base::ConfigError(exhausted_message(phase, available));
}

PhasePosition Phases::at_step(int64_t step) const {
  TRIREME_CHECK(step >= 0 && step < run_.steps, "step {} of {}", step, run_.steps);
  const auto after =
      std::upper_bound(table_.begin(), table_.end(), step,
                       [](int64_t value, const Phase& phase) { return value < phase.first_step; });
  const auto phase = static_cast<int>(after - table_.begin()) - 1;
  const int64_t in_phase = step - std::prev(after)->first_step;
  return {phase, in_phase, in_phase * std::prev(after)->options.global_batch};
}

PhasePosition Phases::at_sample(int64_t sample) const {
  TRIREME_CHECK(sample >= 0 && sample < samples_, "sample {} of {}", sample, samples_);
  const auto after = std::upper_bound(
      table_.begin(), table_.end(), sample,
      [](int64_t value, const Phase& phase) { return value < phase.first_sample; });
  const auto phase = static_cast<int>(after - table_.begin()) - 1;
  const int64_t in_phase = sample - std::prev(after)->first_sample;
  return {phase, in_phase / std::prev(after)->options.global_batch, in_phase};
}

SampleOrigin Phases::origin(int64_t sample) const {
  const PhasePosition position = at_sample(sample);
  const auto phase = static_cast<size_t>(position.phase);
  SampleOrigin origin = mixtures_[phase]->at(position.sample);
  origin.sample += first_source_samples_[phase][static_cast<size_t>(origin.source)];
  return origin;
}

base::Json Phases::identity(int64_t steps) const {
  base::Json sources = base::Json::array(), phases = base::Json::array();
  for (const PhaseSource& source : run_.sources) {
    sources.push_back(
        {{"epoch_tokens", source.epoch_tokens}, {"token_limit", source.token_limit()}});
  }
  for (const Phase& phase : table_) {
    if (phase.first_step >= steps) break;
    phases.push_back({{"first_step", phase.first_step},
                      {"seq_len", phase.options.seq_len},
                      {"global_batch", phase.options.global_batch},
                      {"weights", phase.options.weights}});
  }
  return {{"seed", run_.seed}, {"sources", sources}, {"phases", phases}};
}

}  // namespace trireme::data
