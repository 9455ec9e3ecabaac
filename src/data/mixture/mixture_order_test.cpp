// SPDX-License-Identifier: Apache-2.0
#include "data/mixture/mixture_order.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "data/files_test.h"

namespace trireme::data {
namespace {

// Checks that each source provides its samples in order, at most its limit, and within each segment
// less than one sample from its share.
void check_order(const std::vector<MixtureSource>& sources, const MixtureOrder& order,
                 int64_t positions) {
  std::vector<int64_t> counts(sources.size(), 0);
  size_t next = 0;
  for (int64_t i = 0; i < positions; ++i) {
    if (next < order.segments().size() && order.segments()[next].begin == i) {
      ASSERT_EQ(order.segments()[next].counts, counts) << "segment " << next;
      ++next;
    }
    const SampleOrigin origin = order.at(i);
    const auto source = static_cast<size_t>(origin.source);
    ASSERT_EQ(origin.sample, counts[source]) << "position " << i;
    ASSERT_LT(counts[source]++, sources[source].max_samples) << "position " << i;
    const MixtureSegment& segment = order.segments()[next - 1];
    double sum = 0;
    for (const int one : segment.sources) sum += sources[static_cast<size_t>(one)].weight;
    for (const int one : segment.sources) {
      const auto at = static_cast<size_t>(one);
      const double share = sources[at].weight / sum * static_cast<double>(i + 1 - segment.begin);
      ASSERT_LT(std::abs(static_cast<double>(counts[at] - segment.counts[at]) - share), 1 + 1e-9)
          << "position " << i << ", source " << one;
    }
  }
  EXPECT_EQ(order.counts(positions), counts);
}

TEST(MixtureOrderTest, an_exhausted_source_leaves_at_its_last_sample) {
  const std::vector<MixtureSource> sources = {{.name = "web", .weight = 0.6},
                                              {.name = "code", .weight = 0.3, .max_samples = 300},
                                              {.name = "books", .weight = 0.1, .max_samples = 150}};
  const MixtureOrder order(sources, 5);
  EXPECT_EQ(order.samples(), unlimited_samples);
  check_order(sources, order, 20'000);
  ASSERT_EQ(order.segments().size(), 3U);
  const MixtureSegment& second = order.segments()[1];
  EXPECT_EQ(second.exhausted, 1);
  EXPECT_NEAR(static_cast<double>(second.begin), 1000, 3);  // 300 / 0.3
  EXPECT_EQ(order.at(second.begin - 1), (SampleOrigin{1, 299}));
  EXPECT_TRUE(holds(second.sources, {0, 2}));
  EXPECT_EQ(order.segments()[2].exhausted, 2);
  // Books: 100 samples in the first segment, then one of 7.
  EXPECT_NEAR(static_cast<double>(order.segments()[2].begin), 1000 + 50 * 7, 15);
}

TEST(MixtureOrderTest, every_sample_of_limited_sources_is_used_once) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::vector<MixtureSource> sources;
    int64_t total = 0;
    for (uint64_t i = 0; i < 2 + seed % 5; ++i) {
      const auto limit = static_cast<int64_t>(1 + base::rng_below(seed, i, 400));
      sources.push_back({.name = std::to_string(i),
                         .weight = 1 + static_cast<double>(base::rng_below(seed + 1000, i, 20)),
                         .max_samples = limit});
      total += limit;
    }
    const MixtureOrder order(sources, seed);
    EXPECT_EQ(order.samples(), total) << "seed " << seed;
    check_order(sources, order, total);
    EXPECT_EQ(MixtureOrder(sources, seed, total - 1).samples(), total - 1);
    EXPECT_EQ(MixtureOrder(sources, seed, total + 1).samples(), total);
  }
}

TEST(MixtureOrderTest, the_number_of_prepared_positions_changes_none) {
  const std::vector<MixtureSource> sources = {{.name = "a", .weight = 3, .max_samples = 100},
                                              {.name = "unused", .weight = 0},
                                              {.name = "b", .weight = 2}};
  const MixtureOrder all(sources, 9), some(sources, 9, 120);
  EXPECT_EQ(some.samples(), 120);
  EXPECT_EQ(some.segments().size(), 1U);
  for (int64_t i = 0; i < 120; ++i) EXPECT_EQ(all.at(i), some.at(i));
}

TEST(MixtureOrderTest, mixtures_without_samples_are_refused) {
  const auto refused = [](const std::vector<MixtureSource>& sources) {
    return message_of<base::ConfigError>([&] { const MixtureOrder order(sources, 1); });
  };
  EXPECT_TRUE(says(refused({}), {"a mixture of 0 sources"}));
  EXPECT_TRUE(says(refused({{.name = "a", .weight = 0}}), {"none with samples left"}));
  EXPECT_TRUE(says(refused({{.name = "a", .max_samples = 0}}), {"none with samples left"}));
  EXPECT_TRUE(says(refused({{.name = "a", .weight = -1}}), {"source 'a': weight -1"}));
  EXPECT_TRUE(says(refused({{.name = "a", .weight = std::nan("")}}), {"source 'a': weight nan"}));
  EXPECT_TRUE(says(refused({{.name = "a", .max_samples = -3}}), {"at most -3 samples"}));
}

}  // namespace
}  // namespace trireme::data
