// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "cli/plan/plan_words.h"
#include "obs/terminal/number_text.h"

namespace trireme::cli {
namespace {

constexpr int64_t max_sequences = 1 << 30;

// Returns the number within 5 % that is divisible by the highest power of two; of several, the
// nearest.
int64_t roundest(int64_t number) {
  for (int64_t unit = int64_t{1} << 40; unit > 1; unit /= 2) {
    const int64_t nearest = (number + unit / 2) / unit * unit;
    if (nearest > 0 && std::abs(nearest - number) * 20 <= number) return nearest;
  }
  return number;
}

}  // namespace

void take_seq_len(const Args& args, PlanQuestion& q) {
  if (!args.has("--seq-len")) return;
  const int64_t seq_len = args.integer("--seq-len");
  if (seq_len < 1 || seq_len > q.job.model.max_seq) {
    throw base::ConfigError(
        fmt::format("--seq-len {}: must be from 1 to the model's max_seq = {}; for a longer one "
                    "give a model file "
                    "with a larger max_seq",
                    seq_len, q.job.model.max_seq));
  }
  q.job.seq_len = seq_len;
}

void take_batch(const Args& args, PlanQuestion& q) {
  if (args.has("--batch") && args.has("--batch-tokens")) {
    throw base::ConfigError("--batch and --batch-tokens both set the batch: give one of them");
  }
  if (args.has("--batch")) {
    q.job.global_batch = args.integer("--batch");
    if (q.job.global_batch < 1 || q.job.global_batch > max_sequences) {
      throw base::ConfigError(fmt::format("--batch {}: must be from 1 to {} sequences",
                                          q.job.global_batch, max_sequences));
    }
  }
  if (args.has("--batch-tokens")) {
    const double sequences = args.number("--batch-tokens") / static_cast<double>(q.job.seq_len);
    if (!(sequences >= 0.5) || sequences > max_sequences) {
      throw base::ConfigError(
          fmt::format("--batch-tokens {}: must be from 1 to {} sequences of {} tokens",
                      args.text("--batch-tokens"), max_sequences, q.job.seq_len));
    }
    q.job.global_batch = roundest(static_cast<int64_t>(sequences + 0.5));
    q.assumed.push_back(fmt::format("a batch of {} sequences, {} tokens",
                                    obs::grouped(q.job.global_batch),
                                    amount_text(static_cast<double>(q.job.tokens()))));
  }
  if (args.has("--critical-batch")) {
    q.job.critical_batch_tokens = args.number("--critical-batch");
    if (!(q.job.critical_batch_tokens > 0)) {
      throw base::ConfigError(fmt::format("--critical-batch {}: must be above 0 tokens",
                                          args.text("--critical-batch")));
    }
  }
}

void check_sizes(const plan::Job& job) {
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  const double of_sequence = spec::activation_elements(job.model, real(job.seq_len));
  const double activations = of_sequence * real(job.global_batch);
  if (activations > real(spec::max_step_activations)) {
    throw base::ConfigError(
        fmt::format("a batch of {} sequences of {} tokens: with model '{}' that is {:.3g} "
                    "activations in a step; at "
                    "most {:.3g} are allowed: give a smaller --batch (at most {:.0f}) or --seq-len",
                    job.global_batch, job.seq_len, job.model.name, activations,
                    real(spec::max_step_activations),
                    std::max(1.0, std::floor(real(spec::max_step_activations) / of_sequence))));
  }
}

}  // namespace trireme::cli
