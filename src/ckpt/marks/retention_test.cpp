// SPDX-License-Identifier: Apache-2.0
// Which checkpoints are kept: against the definition, and over long runs that save and remove.
#include "ckpt/marks/retention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace trireme::ckpt {
namespace {

std::vector<StoredGeneration> stored(const std::vector<int64_t>& newest_first) {
  std::vector<StoredGeneration> all;
  for (const int64_t step : newest_first) all.push_back({.step = step, .mark = {}});
  return all;
}

using Steps = std::set<int64_t>;

TEST(RetentionTest, the_newest_are_kept_and_zero_keeps_all) {
  auto all = stored({50, 40, 30, 20, 10});
  EXPECT_EQ(kept_steps(all, {.latest = 2}), (Steps{40, 50}));
  EXPECT_EQ(kept_steps(all, {.latest = 9}), (Steps{10, 20, 30, 40, 50}));
  all[0].mark = all[1].mark = Mark::bad;
  EXPECT_EQ(kept_steps(all, {.latest = 0}), (Steps{10, 20, 30, 40, 50}));
  EXPECT_TRUE(kept_steps({}, {.latest = 2, .every = -1}).empty());
}

TEST(RetentionTest, a_damaged_one_counts_for_none_and_goes_when_it_is_old) {
  auto all = stored({50, 40, 30, 20, 10});
  all[1].is_complete = all[3].is_complete = false;
  EXPECT_EQ(kept_steps(all, {.latest = 2}), (Steps{30, 40, 50}));
  EXPECT_EQ(kept_steps(all, {.latest = 3}), (Steps{10, 20, 30, 40, 50}));
}

TEST(RetentionTest, of_bad_ones_the_newest_is_kept_and_none_counts) {
  auto all = stored({60, 50, 40, 30, 20, 10});
  all[0].mark = all[1].mark = all[2].mark = Mark::bad;
  EXPECT_EQ(kept_steps(all, {.latest = 2}), (Steps{20, 30, 60}));
}

TEST(RetentionTest, the_newest_good_one_and_one_well_before_it_are_kept) {
  auto all = stored({900, 800, 700, 600, 500, 400, 300});
  all[2].mark = all[4].mark = all[6].mark = Mark::good;
  EXPECT_EQ(kept_steps(all, {.latest = 1, .good_after = 250}), (Steps{400, 700, 900}));
  all[2].mark = Mark::suspect;
  EXPECT_EQ(kept_steps(all, {.latest = 1, .good_after = 250}), (Steps{500, 900}));
}

TEST(RetentionTest, what_the_run_resumed_from_stays_until_two_newer_exist) {
  EXPECT_EQ(kept_steps(stored({40, 30}), {.latest = 1, .resumed_from = 30}), (Steps{30, 40}));
  EXPECT_EQ(kept_steps(stored({50, 40, 30}), {.latest = 1, .resumed_from = 30}), (Steps{50}));
  EXPECT_EQ(kept_steps(stored({40}), {.latest = 1, .resumed_from = 30}), (Steps{40}));
}

TEST(RetentionTest, a_number_keeps_the_first_of_so_many_steps) {
  EXPECT_EQ(kept_steps(stored({90, 81, 75, 60, 55, 40, 25, 9}), {.latest = 1, .every = 20}),
            (Steps{25, 40, 60, 81, 90}));
}

// ---- the definition, checkpoint by checkpoint, on random folders

bool is_kept_by_definition(const std::vector<StoredGeneration>& all, size_t at,
                           const Retention& retention) {
  const auto is_usable = [&](size_t i) { return all[i].is_complete && all[i].mark != Mark::bad; };
  const auto newer = [&](size_t i, auto counts) {
    int64_t count = 0;
    for (size_t other = 0; other < i; ++other) count += counts(other) ? 1 : 0;
    return count;
  };
  if (all[at].is_complete && all[at].mark == Mark::bad) {
    return newer(at, [&](size_t i) { return all[i].is_complete && all[i].mark == Mark::bad; }) == 0;
  }
  if (newer(at, is_usable) < retention.latest) return true;
  if (!is_usable(at)) return false;
  const auto is_good = [&](size_t i) { return is_usable(i) && all[i].mark == Mark::good; };
  if (is_good(at) && newer(at, is_good) == 0) return true;
  for (size_t good = 0; good < all.size(); ++good) {
    if (!is_good(good) || newer(good, is_good) > 0) continue;
    const auto is_before = [&](size_t i) {
      return is_usable(i) && all[i].step <= all[good].step - retention.good_after;
    };
    if (is_before(at) && newer(at, is_before) == 0) return true;
  }
  if (all[at].step == retention.resumed_from && newer(at, is_usable) < 2) return true;
  const int64_t every = retention.every;
  if (every <= 0 || all[at].step < every) return false;
  for (size_t other = at + 1; other < all.size(); ++other) {
    if (is_usable(other) && all[other].step / every == all[at].step / every) return false;
  }
  return true;
}

TEST(RetentionTest, random_folders_keep_what_the_definition_keeps) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    std::vector<StoredGeneration> all;
    for (int64_t step = 100; step > 0; step -= 1 + static_cast<int64_t>(random() % 25)) {
      StoredGeneration one{.step = step, .is_complete = random() % 5 != 0, .mark = {}};
      if (random() % 2 == 0) one.mark = static_cast<Mark>(random() % 3);
      all.push_back(one);
    }
    const Retention retention{.latest = 1 + static_cast<int64_t>(random() % 3),
                              .every = static_cast<int64_t>(random() % 3) * 15,
                              .good_after = static_cast<int64_t>(random() % 60),
                              .resumed_from = all[random() % all.size()].step};
    const Steps kept = kept_steps(all, retention);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(kept.contains(all[i].step), is_kept_by_definition(all, i, retention))
          << "seed " << seed << " step " << all[i].step;
    }
  }
}

// ---- long runs

// The folder of a run that saves, and removes what is not kept.
struct SavingRun {
  void save(int64_t step, const Retention& retention) {
    ever.push_back(step);
    steps.insert(steps.begin(), step);
    const Steps kept = kept_steps(stored(steps), retention);
    std::erase_if(steps, [&](int64_t one) { return !kept.contains(one); });
  }
  // Is there a kept one whose age is above `low` and at most `high`?
  bool has_age(double low, double high) const {
    return std::ranges::any_of(steps, [&](int64_t step) {
      const auto age = static_cast<double>(ever.back() - step);
      return age > low && age <= high;
    });
  }
  std::vector<int64_t> ever, steps;  // all saves, ascending; what is there, newest first
};

// What is kept by powers of two of all that the run has ever saved.
Steps spaced_of_all(const std::vector<int64_t>& ever) {
  Steps kept;
  const int64_t newest = ever.back();
  for (int64_t width = 1; width <= newest; width *= 2) {
    for (int64_t back = 0; back < (newest / width < 8 ? 3 : 2); ++back) {
      const int64_t cell = newest / width - back;
      const auto first = std::ranges::lower_bound(ever, cell * width);
      if (cell >= 1 && first != ever.end() && *first < (cell + 1) * width) kept.insert(*first);
    }
  }
  return kept;
}

constexpr Retention spaced = {.latest = 2, .every = Retention::powers_of_two};

void expect_guarantees(const SavingRun& folder, int64_t longest_gap) {
  const auto newest = static_cast<double>(folder.ever.back());
  const auto gap = static_cast<double>(longest_gap);
  for (double width = 1; width <= newest / 2; width *= 2) {
    if (width < gap) continue;
    EXPECT_TRUE(folder.has_age(width - gap, 2 * width - 1)) << width << " at step " << newest;
  }
  if (gap > newest / 8) return;
  EXPECT_TRUE(folder.has_age(newest / 4 - gap, newest / 2)) << "at step " << newest;
}

TEST(RetentionTest, half_of_the_age_can_always_be_reached_with_few_checkpoints) {
  for (const int64_t gap : {1, 7, 100}) {
    SavingRun folder;
    size_t most = 0;
    for (int64_t save = 1; save <= 10'000; ++save) {
      folder.save(save * gap, spaced);
      expect_guarantees(folder, gap);
      ASSERT_LE(std::ssize(folder.steps), max_kept(spaced, save * gap, gap)) << save;
      most = std::max(most, folder.steps.size());
    }
    // log2(10,000) is 13.3.
    EXPECT_LE(most, 18U) << gap;
    EXPECT_GE(most, 12U) << gap;
  }
}

TEST(RetentionTest, nothing_that_is_removed_would_be_needed_later) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    SavingRun folder;
    int64_t step = 0, longest_gap = 0;
    const auto max_gap = static_cast<int64_t>(1 + random() % 40);
    for (int save = 0; save < 2'000; ++save) {
      const auto gap = static_cast<int64_t>(1 + random() % static_cast<uint64_t>(max_gap));
      longest_gap = std::max(longest_gap, gap);
      folder.save(step += gap, spaced);
      const Steps there(folder.steps.begin(), folder.steps.end());
      for (const int64_t needed : spaced_of_all(folder.ever)) {
        ASSERT_TRUE(there.contains(needed)) << "seed " << seed << " step " << needed;
      }
      expect_guarantees(folder, longest_gap);
      ASSERT_LE(std::ssize(folder.steps), max_kept(spaced, step, 1)) << "seed " << seed;
    }
  }
}

// A run that is started again and again saves at steps that are not in order.
TEST(RetentionTest, a_run_that_goes_back_keeps_what_it_needs) {
  std::mt19937 random(5);
  SavingRun folder;
  int64_t step = 0;
  for (int save = 0; save < 5'000; ++save) {
    folder.save(step += 10, spaced);
    ASSERT_EQ(folder.steps.front(), step);
    ASSERT_LE(std::ssize(folder.steps), max_kept(spaced, 50'000, 10) + 1);
    if (random() % 50 != 0) continue;
    step = folder.steps[random() % std::min<size_t>(3, folder.steps.size())];
    std::erase_if(folder.steps, [&](int64_t one) { return one > step; });
    std::erase_if(folder.ever, [&](int64_t one) { return one > step; });
  }
}

TEST(RetentionTest, the_bound_holds_for_every_rule) {
  EXPECT_EQ(max_kept({.latest = 0}, 1000, 1), -1);
  EXPECT_EQ(max_kept({.latest = 2}, 100, 1), 2);
  EXPECT_EQ(max_kept({.latest = 1}, 100, 1), 2);
  EXPECT_EQ(max_kept({.latest = 2}, 300, 1), 3);
  EXPECT_EQ(max_kept({.latest = 2}, 3000, 1), 4);
  EXPECT_EQ(max_kept({.latest = 2, .every = 500}, 3000, 1), 10);
  const Retention every = {.latest = 2, .every = 64, .good_after = 1000};
  SavingRun folder;
  for (int64_t step = 8; step <= 1000; step += 8) {
    folder.save(step, every);
    ASSERT_LE(std::ssize(folder.steps), max_kept(every, step, 8)) << step;
  }
}

}  // namespace
}  // namespace trireme::ckpt
