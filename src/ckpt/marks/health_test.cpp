// SPDX-License-Identifier: Apache-2.0
// The mark that counts, against an oracle that knows the history of every checkpoint.
#include "ckpt/marks/health.h"

#include <gtest/gtest.h>

#include <functional>

namespace trireme::ckpt {
namespace {

MarkLine line_of(GenerationId id, Mark mark) {
  return {.of = id, .mark = mark, .detector = "hand"};
}

std::optional<Mark> mark_in(const GenerationId& id, const Marks& marks) {
  const auto found = mark_of(id, marks);
  return found ? std::optional(found->mark) : std::nullopt;
}

TEST(HealthTest, the_last_mark_of_a_checkpoint_counts) {
  Marks marks;
  EXPECT_EQ(mark_in({10, 1}, marks), std::nullopt);
  for (const Mark mark : {Mark::good, Mark::bad, Mark::suspect, Mark::good}) {
    marks.push_back(line_of({10, 1}, mark));
    EXPECT_EQ(mark_in({10, 1}, marks), mark);
  }
  EXPECT_EQ(mark_in({20, 1}, marks), std::nullopt) << "it is not bad any more";
}

TEST(HealthTest, a_bad_mark_covers_what_continues_it_and_no_more) {
  const Marks marks = {line_of({30, 1}, Mark::good), line_of({40, 1}, Mark::good),
                       line_of({20, 1}, Mark::bad), ResumeLine{.epoch = 2, .step = 10},
                       ResumeLine{.epoch = 3, .step = 30}};
  EXPECT_EQ(mark_in({10, 1}, marks), std::nullopt);
  EXPECT_EQ(mark_in({20, 1}, marks), Mark::bad);
  EXPECT_EQ(mark_in({30, 1}, marks), Mark::bad) << "whatever it was marked before";
  EXPECT_EQ(mark_in({30, 2}, marks), std::nullopt) << "the run had gone back to step 10";
  EXPECT_EQ(mark_in({40, 3}, marks), std::nullopt);
}

TEST(HealthTest, a_mark_that_was_given_later_to_a_covered_checkpoint_counts) {
  const Marks marks = {line_of({20, 1}, Mark::bad), line_of({40, 1}, Mark::good)};
  EXPECT_EQ(mark_in({30, 1}, marks), Mark::bad);
  EXPECT_EQ(mark_in({40, 1}, marks), Mark::good);
  EXPECT_EQ(mark_in({50, 1}, marks), Mark::bad);
}

// ---- enumeration

// A run with up to three epochs. Each begins from a state of the one before, or from the start, and
// computes steps up to the last. histories[e][s] has the states that the state after step s of
// epoch e + 1 continues, itself included.
struct World {
  static constexpr int64_t steps = 3;
  std::vector<int64_t> resumed;  // the step that epoch 2, 3, ... continues
  std::vector<std::vector<std::vector<GenerationId>>> histories;
};

World world_of(const std::vector<int64_t>& resumed) {
  World world{.resumed = resumed, .histories = {}};
  std::vector<std::vector<GenerationId>> last(1);  // of step 0: nothing was computed
  for (size_t epoch = 0; epoch <= resumed.size(); ++epoch) {
    const auto from = static_cast<size_t>(epoch == 0 ? 0 : resumed[epoch - 1]);
    last.resize(from + 1);
    for (int64_t step = static_cast<int64_t>(from) + 1; step <= World::steps; ++step) {
      last.push_back(last.back());
      last.back().push_back({step, static_cast<int64_t>(epoch) + 1});
    }
    world.histories.push_back(last);
  }
  return world;
}

// By definition: marks are applied one after the other; a mark sets its checkpoint, and a bad one
// all that continue it. A checkpoint that stops to be bad leaves what follows from it as it would
// be without.
std::optional<Mark> naive_mark(const GenerationId& id, const std::vector<GenerationId>& history,
                               const std::vector<MarkLine>& lines) {
  std::optional<Mark> mark;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].of == id) mark = lines[i].mark;
    if (lines[i].mark != Mark::bad) continue;
    bool is_withdrawn = false;
    for (size_t later = i + 1; later < lines.size(); ++later) {
      is_withdrawn = is_withdrawn || (lines[later].of == lines[i].of);
    }
    bool is_continued = false;
    for (const GenerationId& state : history) is_continued = is_continued || state == lines[i].of;
    if (is_continued && !is_withdrawn) mark = Mark::bad;
  }
  return mark;
}

// Calls `use` for every sequence of `count` marks of states that exist in the world.
void for_all_marks(const World& world, int count, std::vector<MarkLine>& lines,
                   const std::function<void()>& use) {
  if (count == 0) return use();
  for (size_t epoch = 0; epoch < world.histories.size(); ++epoch) {
    const int64_t from = epoch == 0 ? 0 : world.resumed[epoch - 1];
    for (int64_t step = from + 1; step <= World::steps; ++step) {
      for (const Mark mark : {Mark::good, Mark::suspect, Mark::bad}) {
        lines.push_back(line_of({step, static_cast<int64_t>(epoch) + 1}, mark));
        for_all_marks(world, count - 1, lines, use);
        lines.pop_back();
      }
    }
  }
}

TEST(HealthTest, marks_are_those_of_the_histories_in_all_small_worlds) {
  int64_t compared = 0;
  std::vector<std::vector<int64_t>> all = {{}};
  for (int64_t second = 0; second < World::steps; ++second) {
    all.push_back({second});
    for (int64_t third = 0; third < World::steps; ++third) all.push_back({second, third});
  }
  for (const auto& resumed : all) {
    const World world = world_of(resumed);
    Marks resumes;
    for (size_t i = 0; i < resumed.size(); ++i) {
      resumes.push_back(ResumeLine{.epoch = static_cast<int64_t>(i) + 2, .step = resumed[i]});
    }
    for (int count = 0; count <= 3; ++count) {
      std::vector<MarkLine> lines;
      for_all_marks(world, count, lines, [&] {
        Marks marks = resumes;
        marks.insert(marks.end(), lines.begin(), lines.end());
        for (const auto& histories : world.histories) {
          for (size_t step = 1; step < histories.size(); ++step) {
            const GenerationId id = histories[step].back();
            ASSERT_EQ(mark_in(id, marks), naive_mark(id, histories[step], lines))
                << "step " << id.step << " of epoch " << id.epoch;
            ++compared;
          }
        }
      });
    }
  }
  EXPECT_GT(compared, 100'000);
}

}  // namespace
}  // namespace trireme::ckpt
