// SPDX-License-Identifier: Apache-2.0
#include "data/mixture/proportional_order.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "base/error.h"
#include "data/files_test.h"
#include "data/mixture/shares.h"

namespace trireme::data {
namespace {

__extension__ using Wide = __int128;

std::vector<int64_t> shares_of_weights(const std::vector<double>& weights) {
  std::vector<std::string> names;
  for (size_t i = 0; i < weights.size(); ++i) names.push_back("source" + std::to_string(i));
  return integer_shares(weights, names);
}

// Weights of `sources` sources that differ by up to a factor of `spread`.
std::vector<double> random_weights(uint64_t seed, int sources, double spread) {
  std::vector<double> weights;
  for (int i = 0; i < sources; ++i) {
    weights.push_back(std::pow(spread, base::rng_uniform(seed, static_cast<uint64_t>(i))));
  }
  return weights;
}

// Returns the first position of [begin, begin + positions) after which a count differs by one
// sample or more from its share, or -1. The count of a source is farthest below its share before
// one of its samples and farthest above after it, so that these two cover every prefix.
int64_t first_unfair(const std::vector<int64_t>& shares, const ProportionalOrder& order,
                     int64_t begin, int64_t positions) {
  Wide total = 0;
  for (const int64_t share : shares) total += share;
  std::vector<int64_t> counts = order.counts(begin);
  const auto excess = [&](size_t source, int64_t prefix) {
    return counts[source] * total - Wide{shares[source]} * prefix;
  };
  for (int64_t i = begin; i < begin + positions; ++i) {
    const SampleOrigin origin = order.at(i);
    const auto source = static_cast<size_t>(origin.source);
    if (origin.sample != counts[source] || excess(source, i) <= -total) return i;
    ++counts[source];
    if (excess(source, i + 1) >= total) return i;
  }
  for (size_t source = 0; source < shares.size(); ++source) {
    if (excess(source, begin + positions) <= -total) return begin + positions;
  }
  return -1;
}

TEST(SharesTest, decimal_fractions_are_exact) {
  EXPECT_TRUE(holds(shares_of_weights({0.7, 0.2, 0.1}), {7, 2, 1}));
  EXPECT_TRUE(holds(shares_of_weights({3, 1, 1}), {3, 1, 1}));
  EXPECT_TRUE(holds(shares_of_weights({123456789012, 1000000000}), {30864197253, 250000000}));
  const std::vector<int64_t> thirds = shares_of_weights({1.0 / 3, 2.0 / 3});
  EXPECT_NEAR(static_cast<double>(thirds[1]) / static_cast<double>(thirds[0]), 2, 1e-12);
}

TEST(SharesTest, weights_that_are_not_legal_are_refused_with_their_source) {
  const auto refused = [](const std::vector<double>& weights) {
    return message_of<base::ConfigError>([&] { shares_of_weights(weights); });
  };
  EXPECT_TRUE(says(refused({1, 0}), {"source 'source1': weight 0; allowed: above 0"}));
  EXPECT_TRUE(says(refused({1, -2}), {"source 'source1': weight -2"}));
  EXPECT_TRUE(says(refused({std::nan(""), 1}), {"source 'source0': weight nan"}));
  EXPECT_TRUE(says(refused({std::numeric_limits<double>::infinity()}), {"weight inf"}));
  EXPECT_TRUE(says(refused({1, 0.00001}), {"source 'source1'", "1e-05", "at least 0.0001"}));
  EXPECT_TRUE(says(refused({}), {"a mixture of 0 sources"}));
}

TEST(ProportionalOrderTest, every_prefix_of_a_million_has_the_shares) {
  std::vector<std::vector<double>> cases = {
      {1},
      {0.5, 0.5},
      {0.7, 0.2, 0.1},
      {0.9, 0.1},
      {1, 1, 1},
      {0.4, 0.4, 0.05, 0.05, 0.05, 0.05},
      {0.9997, 0.0001, 0.0002},
      {0.45, 0.45, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01}};
  for (uint64_t seed = 0; seed < 8; ++seed) {
    cases.push_back(random_weights(seed, 2 + 3 * static_cast<int>(seed), seed % 2 ? 10 : 300));
  }
  cases.push_back(random_weights(99, 500, 10));
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::vector<int64_t> shares = shares_of_weights(cases[i]);
    const ProportionalOrder order(shares, 17 + i);
    EXPECT_EQ(first_unfair(shares, order, 0, 1'000'000), -1) << "case " << i;
  }
}

TEST(ProportionalOrderTest, small_mixtures_are_fair_across_many_blocks) {
  for (uint64_t seed = 100; seed < 200; ++seed) {
    const auto shares = shares_of_weights(random_weights(seed, 2 + static_cast<int>(seed % 9), 40));
    const ProportionalOrder order(shares, seed);
    const int64_t far = static_cast<int64_t>(seed) * 1'000'003'000;
    EXPECT_EQ(first_unfair(shares, order, far, 10'000), -1) << "seed " << seed;
  }
}

TEST(ProportionalOrderTest, any_position_equals_the_sequential_order) {
  const auto shares = shares_of_weights(random_weights(5, 8, 30));
  const ProportionalOrder sequential(shares, 1);
  std::vector<SampleOrigin> all;
  for (int64_t i = 0; i < 100'000; ++i) all.push_back(sequential.at(i));
  for (uint64_t i = 0; i < 200; ++i) {
    const ProportionalOrder fresh(shares, 1);
    const auto position = static_cast<int64_t>(base::rng_below(7, i, all.size()));
    const SampleOrigin origin = fresh.at(position);
    EXPECT_EQ(origin, all[static_cast<size_t>(position)]);
    EXPECT_EQ(fresh.position_of(origin), position);
    EXPECT_EQ(fresh.counts(position)[static_cast<size_t>(origin.source)], origin.sample);
  }
}

TEST(ProportionalOrderTest, threads_read_the_same_order) {
  const auto shares = shares_of_weights({5, 3, 2, 1});
  const ProportionalOrder alone(shares, 3), shared(shares, 3);
  std::vector<int> differences(3, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = static_cast<int64_t>(t); i < 30'000; i += 7) {
        differences[t] += shared.at(i * 3) != alone.at(i * 3);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(holds(differences, {0, 0, 0}));
}

TEST(ProportionalOrderTest, keys_give_different_orders) {
  const auto shares = shares_of_weights({0.5, 0.3, 0.2});
  const ProportionalOrder one(shares, 1), other(shares, 2);
  int differences = 0;
  for (int64_t i = 0; i < 10'000; ++i) differences += one.at(i).source != other.at(i).source;
  EXPECT_GT(differences, 3000);  // two independent orders differ in 1 - (0.25 + 0.09 + 0.04) = 62 %
  // Within an order, the sources do not repeat in the period of the shares, which is 10.
  int repeated = 0;
  for (int64_t i = 0; i < 10'000; ++i) repeated += one.at(i).source == one.at(i + 10).source;
  EXPECT_LT(repeated, 7000);
  // Pinned: a run that is resumed by a later version must continue with the same sources.
  std::string first;
  for (int64_t i = 0; i < 40; ++i) first += std::to_string(one.at(i).source);
  EXPECT_EQ(first, "1002011002200110200102011002101020011002");
}

// A walk from the start would not reach the last position.
TEST(ProportionalOrderTest, a_position_far_away_is_found) {
  const ProportionalOrder order(shares_of_weights({0.9998, 0.0002}), 1);
  for (const int64_t position : {int64_t{1'000'000'000}, (int64_t{1} << 61) - 1}) {
    EXPECT_EQ(order.position_of(order.at(position)), position);
  }
}

}  // namespace
}  // namespace trireme::data
