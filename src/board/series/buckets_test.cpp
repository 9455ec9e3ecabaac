// SPDX-License-Identifier: Apache-2.0
#include "board/series/buckets.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/text/json.h"
#include "board/series/written_metrics_test.h"
#include "obs/scratch_folder_test.h"

namespace trireme::board {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// A store of the tag "a" with these steps and values.
struct Drawn {
  Drawn(const std::vector<int64_t>& steps, const std::vector<double>& values)
      : store(folder / "metrics.jsonl") {
    std::string text;
    for (size_t i = 0; i < steps.size(); ++i) {
      std::string number = "\"a\":";
      append_number(number, values[i]);
      text += train_line(steps[i], 1000.0 + static_cast<double>(steps[i]) / 4, number);
    }
    write_text(folder / "metrics.jsonl", text);
    store.poll();
    tag = store.find("a").value();
  }
  obs::ScratchFolder folder;
  MetricStore store;
  int tag = 0;
};

std::vector<int64_t> counted(size_t n) {
  std::vector<int64_t> steps(n);
  for (size_t i = 0; i < n; ++i) steps[i] = static_cast<int64_t>(i);
  return steps;
}

TEST(BucketsTest, a_spike_of_one_step_is_in_every_picture) {
  constexpr size_t points = 20'000;
  std::mt19937_64 random(7);
  int seen = 0;
  // The values are replaced in one store: a file per case would take longer than the cases.
  for (int series = 0; series < 20; ++series) {
    const auto index = static_cast<size_t>(random() % points);
    const double height = random() % 2 == 0 ? 1e6 : -1e6;
    std::vector<double> values(points);
    for (size_t i = 0; i < points; ++i) values[i] = std::sin(static_cast<double>(i));
    values[index] = height;
    const Drawn drawn(counted(points), values);
    for (int width = 0; width < 50; ++width) {
      const int px = static_cast<int>(1 + random() % 4000);
      BucketQuery query{.px = px};
      if (width % 2 == 1) {
        query.from = static_cast<double>(random() % (index + 1));
        query.to = static_cast<double>(index + random() % (points - index));
      }
      const std::vector<Bucket> buckets = buckets_of(drawn.store, drawn.tag, query);
      ASSERT_LE(std::ssize(buckets), px);
      for (const Bucket& bucket : buckets) {
        const bool has_spike = bucket.extent.max == height || bucket.extent.min == height;
        if (!has_spike) continue;
        ++seen;
        EXPECT_LE(bucket.first_x, static_cast<double>(index));
        EXPECT_GE(bucket.last_x, static_cast<double>(index));
      }
    }
  }
  EXPECT_EQ(seen, 1000);
}

TEST(BucketsTest, columns_have_all_points_of_their_range_once) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 60; ++round) {
    std::vector<int64_t> steps;
    std::vector<double> values;
    int64_t step = 0;
    const size_t points = 1 + random() % 2000;
    for (size_t i = 0; i < points; ++i) {
      step += static_cast<int64_t>(1 + (random() % 10 == 0 ? random() % 1000 : random() % 3));
      steps.push_back(step);
      values.push_back(static_cast<double>(random() % 1000));
    }
    const Drawn drawn(steps, values);
    const BucketQuery query{.px = static_cast<int>(1 + random() % 300)};
    const std::vector<Bucket> buckets = buckets_of(drawn.store, drawn.tag, query);
    ASSERT_LE(std::ssize(buckets), query.px);
    size_t at = 0;
    for (const Bucket& bucket : buckets) {
      Extent expected;
      ASSERT_EQ(bucket.first_x, static_cast<double>(steps[at]));
      while (at < points && static_cast<double>(steps[at]) <= bucket.last_x) {
        expected.add(values[at++]);
      }
      ASSERT_EQ(bucket.extent, expected);
      ASSERT_EQ(bucket.last, values[at - 1]);
    }
    ASSERT_EQ(at, points) << "points at the end are missing";
  }
}

TEST(BucketsTest, few_points_are_given_one_by_one) {
  const Drawn drawn({1, 2, 3, 900, 1000}, {5, 4, 3, 2, 1});
  const std::vector<Bucket> buckets = buckets_of(drawn.store, drawn.tag, {.px = 5});
  ASSERT_EQ(buckets.size(), 5U);
  EXPECT_EQ(buckets[4].first_x, 1000);
  EXPECT_EQ(buckets[4].last, 1);
  EXPECT_EQ(buckets_of(drawn.store, drawn.tag, {.from = 2, .to = 3, .px = 5}).size(), 2U);
  EXPECT_TRUE(buckets_of(drawn.store, drawn.tag, {.from = 4, .to = 899, .px = 5}).empty());
  EXPECT_TRUE(buckets_of(drawn.store, drawn.tag, {.from = 3, .to = 2, .px = 5}).empty());
}

TEST(BucketsTest, values_that_are_not_finite_are_counted_and_hide_no_others) {
  const double nan = std::nan("");
  const Drawn drawn(counted(6), {nan, 1, infinity, -infinity, 7, nan});
  const std::vector<Bucket> one = buckets_of(drawn.store, drawn.tag, {.px = 1});
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].extent.bad, 4);
  EXPECT_EQ(one[0].extent.min, 1);
  EXPECT_EQ(one[0].extent.max, 7);
  std::string text;
  append_json(text, buckets_of(drawn.store, drawn.tag, {.px = 10}));
  const base::Json json = base::Json::parse(text);
  EXPECT_EQ(json["bad"].dump(), "[1,0,1,1,0,1]");
  EXPECT_EQ(json["min"].dump(), "[null,1,null,null,7,null]");
  EXPECT_EQ(json["last"].dump(), R"(["NaN",1,"Infinity","-Infinity",7,"NaN"])");
}

TEST(BucketsTest, time_is_ascending_although_a_step_was_repeated_later) {
  obs::ScratchFolder folder;
  std::string text;
  for (int step = 1; step <= 80; ++step) text += train_line(step, step, "\"a\":1");
  for (int step = 51; step <= 60; ++step) text += train_line(step, 200 + step, "\"a\":2", 2);
  write_text(folder / "metrics.jsonl", text);
  MetricStore store(folder / "metrics.jsonl");
  store.poll();
  for (const int px : {1, 7, 100}) {
    double before = -1;
    int64_t points = 0;
    for (const Bucket& bucket :
         buckets_of(store, store.find("a").value(), {.axis = Axis::time, .px = px})) {
      EXPECT_GT(bucket.first_x, before);
      EXPECT_GE(bucket.last_x, bucket.first_x);
      before = bucket.last_x;
      points += bucket.extent.finite;
    }
    EXPECT_EQ(points, 80);
    EXPECT_EQ(before, 260);
  }
}

}  // namespace
}  // namespace trireme::board
