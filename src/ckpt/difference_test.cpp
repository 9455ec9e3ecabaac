// SPDX-License-Identifier: Apache-2.0
// Whole tensors of checkpoints: their statistics, and the differences between two checkpoints.
#include "ckpt/difference.h"

#include <gtest/gtest.h>

#include "base/text/json.h"
#include "ckpt/disk/memory_disk.h"
#include "ckpt/generation/figures.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/small_generation_test.h"
#include "ckpt/generation/windows.h"

namespace trireme::ckpt {
namespace {

TEST(Hasher, parts_give_the_hash_of_the_whole) {
  const std::string text(1000, 'x');
  Hasher hasher;
  for (size_t at = 0; at < text.size(); at += 300) {
    hasher.add(std::as_bytes(std::span(text).subspan(at, std::min<size_t>(300, 1000 - at))));
  }
  EXPECT_EQ(hasher.hash(), hash_of(text));
}

// Each on its own disk, because a folder holds one checkpoint per step.
struct Saved {
  explicit Saved(int64_t step, const SmallGeneration& small = {}) {
    save_small(disk, root, step, small);
  }
  Generation open(int64_t step) { return Generation::open(disk, root / generation_name(step)); }
  std::filesystem::path root = "/c";
  MemoryDisk disk;
};

TEST(Figures, are_those_of_the_elements_on_any_layout) {
  Saved one(3, {.ranks = 1}), five(3, {.ranks = 5});
  const SmallGeneration small;
  const std::vector<float> values = content_of_small(3, small)[0];
  double sum = 0;
  for (const float value : values) sum += value;
  const TensorFigures figures = figures_of(one.open(3), small.tensor(0));
  EXPECT_EQ(figures.elements, std::ssize(values));
  EXPECT_EQ(figures.not_finite, 0);
  EXPECT_EQ(figures.min, values.front());
  EXPECT_EQ(figures.max, values.back());
  EXPECT_DOUBLE_EQ(figures.mean, sum / static_cast<double>(values.size()));
  EXPECT_EQ(figures.hash, hash_of(std::as_bytes(std::span(values))));
  EXPECT_EQ(figures_of(five.open(3), small.tensor(0)).hash, figures.hash);
}

TEST(Windows, any_range_of_elements_can_be_read) {
  Saved saved(3, {.ranks = 3});
  const Generation generation = saved.open(3);
  const SmallGeneration small;
  const std::vector<float> values = content_of_small(3, small)[0];
  std::vector<float> part(70);
  read_flat(generation, small.tensor(0), 25, std::as_writable_bytes(std::span(part)));
  EXPECT_TRUE(std::equal(part.begin(), part.end(), values.begin() + 25));
}

TEST(Difference, layouts_do_not_count) {
  Saved two(3), seven(3, {.ranks = 7});
  const Differences found = difference(two.open(3), seven.open(3));
  EXPECT_TRUE(found.are_equal());
  EXPECT_EQ(found.tensors, 3);
  ASSERT_EQ(found.plan.size(), 1U);
  EXPECT_EQ(found.plan[0].key, "mesh.dp");
}

TEST(Difference, has_counts_the_largest_and_the_first_place) {
  Saved a(3), b(4);
  const Differences found = difference(a.open(3), b.open(4));
  EXPECT_FALSE(found.are_equal());
  ASSERT_EQ(found.unlike.size(), 3U);
  EXPECT_EQ(found.unlike[0].elements, 120);
  EXPECT_EQ(found.unlike[0].largest, 1000);
  EXPECT_EQ(found.unlike[0].place, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(found.state.size(), 2U);  // step, data.position
  EXPECT_TRUE(difference(a.open(3), b.open(4), {.tolerance = 1000}).unlike.empty());
  EXPECT_EQ(difference(a.open(3), b.open(4), {.tolerance = 999}).unlike.size(), 3U);
}

TEST(Difference, of_tensors_that_are_not_alike) {
  Saved a(3), b(3, {.rows = 41});
  const Differences found = difference(a.open(3), b.open(3));
  ASSERT_EQ(found.unlike.size(), 2U);
  EXPECT_EQ(found.unlike[0].what, Unlike::shape);
  EXPECT_EQ(found.tensors, 1);
}

TEST(Difference, of_keys_goes_into_objects) {
  const base::Json a = {{"x", 1}, {"in", {{"y", 2}, {"z", 3}}}};
  const base::Json b = {{"in", {{"y", 2}, {"z", 4}}}, {"w", nullptr}, {"v", 5}};
  std::vector<std::string> keys;
  for (const KeyDifference& one : difference(a, b)) keys.push_back(one.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"x", "in.z", "v"}));
}

}  // namespace
}  // namespace trireme::ckpt
