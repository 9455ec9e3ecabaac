// SPDX-License-Identifier: Apache-2.0
#include "agent/rules/regroup.h"

#include <gtest/gtest.h>

namespace trireme::agent {
namespace {

using comm::Course;
using comm::VerdictKind;

Course course_of(VerdictKind kind, const EpochFacts& facts) {
  return course_after({.kind = kind, .ranks = {1}}, facts).course;
}

TEST(Regroup, a_lost_rank_is_replaced_and_a_refusal_ends_the_run) {
  const EpochFacts facts{.reached = 10};
  EXPECT_EQ(course_of(VerdictKind::died, facts), Course::regroup);
  EXPECT_EQ(course_of(VerdictKind::stalled, facts), Course::regroup);
  EXPECT_EQ(course_of(VerdictKind::failed, facts), Course::regroup);
  EXPECT_EQ(course_of(VerdictKind::unfit, facts), Course::end);
  EXPECT_EQ(course_of(VerdictKind::no_memory, facts), Course::end);
  EXPECT_EQ(course_of(VerdictKind::fenced, facts), Course::end);
  EXPECT_EQ(course_of(VerdictKind::stopped, facts), Course::end);
}

TEST(Regroup, a_rank_that_has_ended_well_cannot_come_back) {
  EXPECT_EQ(course_of(VerdictKind::died, {.has_ended_well = true, .reached = 10}), Course::end);
}

TEST(Regroup, three_epochs_without_a_newer_step_end_the_run) {
  EpochFacts facts{.reached = 5};
  const comm::Verdict verdict{.kind = VerdictKind::died};
  NextCourse next = course_after(verdict, facts);
  EXPECT_EQ(next.fruitless, 0);
  for (const int64_t fruitless : {1, 2}) {
    facts = {.reached = 5, .reached_before = 5, .fruitless = next.fruitless};
    next = course_after(verdict, facts);
    EXPECT_EQ(next.course, Course::regroup);
    EXPECT_EQ(next.fruitless, fruitless);
  }
  facts.fruitless = next.fruitless;
  next = course_after(verdict, facts);
  EXPECT_EQ(next.course, Course::end);
  EXPECT_EQ(next.reason, "3 epochs in a row came to no step after 5: the run is given up");
  // A newer step resets the count, and so does a newer checkpoint.
  facts.reached = 6;
  EXPECT_EQ(course_after(verdict, facts).fruitless, 0);
  facts.reached = 2;
  EXPECT_EQ(course_after(verdict, facts).fruitless, 3);
  facts.saved = 1;
  EXPECT_EQ(course_after(verdict, facts).fruitless, 0);
}

TEST(Regroup, a_run_that_never_begins_a_step_is_given_up) {
  NextCourse next;
  for (int epoch = 0; epoch < 3; ++epoch) {
    next = course_after({}, {.fruitless = next.fruitless});
  }
  EXPECT_EQ(next.course, Course::end);
  EXPECT_EQ(next.reason, "3 epochs in a row came to no step after the start: the run is given up");
}

}  // namespace
}  // namespace trireme::agent
