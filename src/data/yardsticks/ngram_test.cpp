// SPDX-License-Identifier: Apache-2.0
#include "data/yardsticks/ngram.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/yardsticks/markov.h"

namespace trireme::data {
namespace {

TEST(NgramTest, probabilities_add_up_to_one) {
  const MarkovSource source(1, 20, 2, 4.0);
  std::vector<int32_t> tokens(500);
  source.generate(0, tokens);
  NgramModel model(4);
  model.train(tokens);
  for (const std::vector<int32_t>& history :
       {std::vector<int32_t>{}, {3}, {tokens[10], tokens[11], tokens[12], tokens[13]}, {99, 98}}) {
    double sum = 0;
    for (int32_t next = 0; next < 256; ++next) sum += model.probability(history, next);
    EXPECT_NEAR(sum, 1, 1e-12);
  }
}

TEST(NgramTest, learns_an_order_2_source_down_to_its_entropy) {
  const MarkovSource source(2, 8, 2, 4.0);
  std::vector<int32_t> tokens(400000), test(50000);
  source.generate(0, tokens);
  source.generate(1, test);
  NgramModel model(2);
  model.train(tokens);
  EXPECT_NEAR(model.loss(test, 2), source.entropy_rate(), 0.02);
}

TEST(NgramTest, without_data_it_is_uniform) {
  const NgramModel model(3);
  const std::vector<int32_t> tokens = {1, 2, 3};
  EXPECT_NEAR(model.loss(tokens, 0), std::log(256.0), 1e-12);
}

}  // namespace
}  // namespace trireme::data
