// SPDX-License-Identifier: Apache-2.0
#include "data/mixture/phase_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"

namespace trireme::data {
namespace {

using base::ConfigError;

constexpr int64_t max_run_tokens = int64_t{1} << 60, max_run_steps = int64_t{1} << 40;

void check_phase_source(const PhaseSource& source) {
  if (source.name.empty()) throw ConfigError("a source of a mixture has no name");
  if (source.epoch_tokens < 1) {
    throw ConfigError(fmt::format("source '{}': {} tokens in an epoch; allowed: 1 and more",
                                  source.name, source.epoch_tokens));
  }
  if (!(source.max_epochs >= 0 && source.max_epochs <= 1e9) || source.max_tokens < 0) {
    throw ConfigError(fmt::format(
        "source '{}': max_epochs {}, max_tokens {}; allowed: 0 (unlimited) and more, up to 1e9 "
        "epochs",
        source.name, source.max_epochs, source.max_tokens));
  }
}

void check_phase(const PhaseOptions& phase, size_t index, size_t sources) {
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(fmt::format("phase {} ('{}'): {}", index + 1, phase.name, what));
  };
  if (phase.weights.size() != sources) {
    refuse(fmt::format("{} weights for {} sources", phase.weights.size(), sources));
  }
  if (phase.seq_len < 1 || phase.seq_len > int64_t{1} << 30) {
    refuse(fmt::format("seq_len = {}; allowed: 1 .. {}", phase.seq_len, int64_t{1} << 30));
  }
  if (phase.global_batch < 1 || phase.global_batch > int64_t{1} << 30) {
    refuse(fmt::format("a global batch of {} samples; allowed: 1 .. {}", phase.global_batch,
                       int64_t{1} << 30));
  }
  const auto is_rate = [](double value) { return value >= 0 && std::isfinite(value); };
  if (!is_rate(phase.learning_rate) || !is_rate(phase.learning_rate_factor)) {
    refuse(fmt::format("learning rate {}, factor {}; allowed: 0 and more", phase.learning_rate,
                       phase.learning_rate_factor));
  }
  const bool has_step = phase.from_step >= 0, has_tokens = phase.from_tokens >= 0;
  if (index == 0 && (phase.from_step > 0 || phase.from_tokens > 0)) {
    refuse("the first phase begins at step 0");
  }
  if (index > 0 && has_step == has_tokens) refuse("give either from_step or from_tokens");
  if (phase.from_step > max_run_steps || phase.from_tokens > max_run_tokens) {
    refuse(fmt::format("from_step {}, from_tokens {}; allowed: up to 2^40 steps, 2^60 tokens",
                       phase.from_step, phase.from_tokens));
  }
}

void check_run(const RunPhases& run) {
  if (run.phases.empty() || run.sources.empty() || run.steps < 1 || run.steps > max_run_steps) {
    throw ConfigError(
        fmt::format("{} phases, {} sources, {} steps; allowed: 1 and more, up to 2^40 steps",
                    run.phases.size(), run.sources.size(), run.steps));
  }
  std::set<std::string> names;
  for (const PhaseSource& source : run.sources) {
    check_phase_source(source);
    if (names.insert(source.name).second) continue;
    throw ConfigError(fmt::format("two sources have the name '{}'", source.name));
  }
  for (size_t i = 0; i < run.phases.size(); ++i) {
    check_phase(run.phases[i], i, run.sources.size());
  }
}

void set_steps(Phase& phase, int64_t end_step) {
  phase.steps = std::max<int64_t>(0, end_step - phase.first_step);
  phase.samples = phase.steps * phase.options.global_batch;
}

// Returns the first step of a phase, given the phase before it.
int64_t first_step_of(const PhaseOptions& phase, const Phase& before) {
  if (phase.from_step >= 0) return phase.from_step;
  const int64_t step_tokens = before.options.seq_len * before.options.global_batch;
  const int64_t missing = phase.from_tokens - before.first_token;
  if (missing <= 0) return before.first_step;  // refused by the caller
  return before.first_step + (missing - 1) / step_tokens + 1;
}

}  // namespace

int64_t PhaseSource::token_limit() const {
  constexpr int64_t none = int64_t{1} << 62;
  const int64_t by_tokens = max_tokens > 0 ? std::min(max_tokens, none) : none;
  const double by_epochs = max_epochs * static_cast<double>(epoch_tokens);
  if (max_epochs == 0 || by_epochs >= static_cast<double>(none)) return by_tokens;
  return std::min<int64_t>(by_tokens, std::llround(by_epochs));
}

std::vector<Phase> phase_table(const RunPhases& run) {
  check_run(run);
  std::vector<Phase> table;
  for (size_t i = 0; i < run.phases.size(); ++i) {
    const PhaseOptions& options = run.phases[i];
    const auto refuse = [&](const std::string& what) {
      throw ConfigError(fmt::format("phase {} ('{}') {}", i + 1, options.name, what));
    };
    Phase phase{.options = options};
    if (i > 0) {
      Phase& before = table.back();
      phase.first_step = first_step_of(options, before);
      const int64_t steps = phase.first_step - before.first_step;
      if (steps <= 0) {
        refuse(
            fmt::format("begins at step {}, the phase before it at step {}; phases begin one "
                        "after the other",
                        phase.first_step, before.first_step));
      }
      const int64_t step_tokens = before.options.seq_len * before.options.global_batch;
      if (steps > (max_run_tokens - before.first_token) / step_tokens) {
        refuse(fmt::format("begins at step {}, after more than 2^60 tokens", phase.first_step));
      }
      phase.first_sample = before.first_sample + steps * before.options.global_batch;
      phase.first_token = before.first_token + steps * step_tokens;
      set_steps(before, std::min(run.steps, phase.first_step));
    }
    table.push_back(std::move(phase));
  }
  set_steps(table.back(), run.steps);
  return table;
}

}  // namespace trireme::data
