// SPDX-License-Identifier: Apache-2.0
// Log-likelihoods of packed requests against the softmax of the model's logits, token by token.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/rng.h"
#include "train/tasks/task_scores.h"
#include "train/weights/inference.h"

namespace trireme::tests {
namespace {

double log_probability(std::span<const float> logits, int32_t token) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x});
  return double{logits[static_cast<size_t>(token)]} - std::log(sum);
}

TEST(TasksTest, likelihoods_are_sums_of_log_probabilities) {
  for (const char* family : {"gpt2", "qwen3"}) {
    SCOPED_TRACE(family);
    train::HfSource weights(std::filesystem::path(TRIREME_SOURCE_DIR) / "tests/golden/hf" / family);
    constexpr int64_t seq_len = 12;
    std::vector<train::TaskTokens> requests;
    for (uint64_t i = 0; i < 9; ++i) {
      train::TaskTokens request{.ending = 1 + i % 4};
      // The last one is longer than the window: its first tokens are left out.
      const uint64_t length = i == 8 ? 17 : 5 + i;
      for (uint64_t t = 0; t < length; ++t) {
        request.tokens.push_back(static_cast<int32_t>(base::rng_below(i, t, 60)));
      }
      requests.push_back(std::move(request));
    }
    train::Inference packed(
        weights,
        {.sequences = 2, .seq_len = seq_len, .system = {.device = "cpu"}, .document_mask = true});
    int64_t done = 0;
    const std::vector<double> likelihoods =
        train::ending_likelihoods(packed, requests, [&](int64_t n) { done = n; });
    EXPECT_EQ(done, 9);
    train::Inference window(weights, {.seq_len = seq_len, .system = {.device = "cpu"}});
    for (size_t r = 0; r < requests.size(); ++r) {
      const std::span<const int32_t> all = requests[r].tokens;
      const auto tokens = all.last(std::min<size_t>(all.size(), seq_len + 1));
      double expected = 0;
      for (size_t t = tokens.size() - requests[r].ending; t < tokens.size(); ++t) {
        expected += log_probability(window.logits(tokens.first(t)), tokens[t]);
      }
      EXPECT_NEAR(likelihoods[r], expected, 1e-4 * std::abs(expected)) << r;
    }
  }
}

}  // namespace
}  // namespace trireme::tests
