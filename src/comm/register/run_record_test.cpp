// SPDX-License-Identifier: Apache-2.0
#include "comm/register/run_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/text/json.h"

namespace trireme::comm {
namespace {

RunRecord sample_record() {
  return {.run = "r",
          .epoch = 7,
          .members = {{"a", "boot/1/x"}, {"b", "boot/2/y"}},
          .spares = {{"c", "boot/3/z"}},
          .plan_digest = "d",
          .layout = "dp2",
          .resume = {40, "memory"},
          .reason = "process of slot 1 ended with \"9\"",
          .last_commit = {30, 5}};
}

EpochChange sample_change() {
  return {.seen_epoch = 7,
          .members = {{"a", "boot/1/x"}, {"c", "boot/3/z"}},
          .plan_digest = "d",
          .layout = "dp2",
          .resume = {41, "memory"},
          .reason = "b is silent"};
}

std::string error_of_text(const std::string& text) {
  try {
    (void)run_record_from(text);
  } catch (const base::IoError& error) {
    return error.what();
  }
  return "none";
}

std::string error_after(const std::function<void(base::Json&)>& change) {
  base::Json json = base::Json::parse(to_text(sample_record()));
  change(json);
  return error_of_text(json.dump());
}

TEST(RunRecord, text_round_trips) {
  EXPECT_EQ(run_record_from(to_text(sample_record())), sample_record());
  EXPECT_EQ(run_record_from(to_text(RunRecord{})), RunRecord{});
  EXPECT_EQ(to_text(sample_record()).find('\n'), std::string::npos);
  RunRecord odd = sample_record();
  odd.reason = "bytes \xff\xfe";
  EXPECT_NE(run_record_from(to_text(odd)).reason.find("bytes "), std::string::npos);
}

TEST(RunRecord, every_missing_or_unknown_key_is_named) {
  const base::Json json = base::Json::parse(to_text(sample_record()));
  for (const auto& [key, value] : json.items()) {
    const std::string name = key;
    EXPECT_EQ(error_after([&](base::Json& record) { record.erase(name); }),
              "the record of the run: key '" + name + "' is missing");
  }
  EXPECT_EQ(error_after([](base::Json& record) { record["members"][1].erase("node"); }),
            "the record of the run: key 'members[1].node' is missing");
  EXPECT_EQ(error_after([](base::Json& record) { record["resume"].erase("source"); }),
            "the record of the run: key 'resume.source' is missing");
  EXPECT_EQ(error_after([](base::Json& record) { record["lease"] = 1; }),
            "the record of the run: unknown key 'lease'; it was written by another version");
  EXPECT_NE(error_after([](base::Json& record) {
              record["spares"][0]["x"] = 1;
            }).find("unknown key 'spares[0].x'"),
            std::string::npos);
  EXPECT_NE(error_after([](base::Json& record) {
              record["last_commit"]["x"] = 1;
            }).find("unknown key 'last_commit.x'"),
            std::string::npos);
}

TEST(RunRecord, values_of_other_types_are_refused) {
  EXPECT_EQ(error_after([](base::Json& record) { record["epoch"] = "7"; }),
            "the record of the run: key 'epoch' has the value \"7\" where an integer is expected");
  EXPECT_NE(error_after([](base::Json& record) { record["epoch"] = -1; }), "none");
  EXPECT_NE(error_after([](base::Json& record) { record["epoch"] = 1.5; }), "none");
  EXPECT_NE(error_after([](base::Json& record) { record["epoch"] = UINT64_MAX; }), "none");
  EXPECT_NE(error_after([](base::Json& record) { record["run"] = nullptr; }), "none");
  EXPECT_NE(error_after([](base::Json& record) { record["members"] = "a"; }), "none");
  EXPECT_NE(error_after([](base::Json& record) { record["members"][0] = "a"; }), "none");
  EXPECT_NE(error_after([](base::Json& record) { record["resume"] = 4; }), "none");
  EXPECT_EQ(error_of_text("{"), "the record of the run is no JSON");
  EXPECT_NE(error_of_text("[]"), "none");
  EXPECT_NE(error_of_text(""), "none");
}

TEST(RunRecord, the_next_epoch_keeps_the_run_and_the_last_commit) {
  const RunRecord next = next_epoch(sample_record(), sample_change()).value();
  EXPECT_EQ(next.epoch, 8);
  EXPECT_EQ(next.run, "r");
  EXPECT_EQ(next.last_commit, (CommitPoint{30, 5}));
  EXPECT_EQ(next.members, sample_change().members);
  EXPECT_TRUE(next.spares.empty());
  EXPECT_EQ(next.resume, (ResumePoint{41, "memory"}));
  EXPECT_EQ(next.slot_of("boot/3/z"), 1);
  EXPECT_EQ(next.slot_of("boot/2/y"), -1);
}

TEST(RunRecord, the_first_epoch_is_0) {
  const RunRecord first = first_epoch("r", sample_change()).value();
  EXPECT_EQ(first.epoch, 0);
  EXPECT_EQ(first.last_commit, CommitPoint{});
  EXPECT_FALSE(first_epoch("r", {}));
}

TEST(RunRecord, a_proposal_from_an_earlier_epoch_is_fenced) {
  EpochChange late = sample_change();
  late.seen_epoch = 6;
  EXPECT_EQ(next_epoch(sample_record(), late).reason(),
            "fenced: epoch 7 has begun; the proposal follows epoch 6");
}

TEST(RunRecord, a_process_has_one_place) {
  EpochChange twice = sample_change();
  twice.spares = {{"c", "boot/3/z"}};
  EXPECT_EQ(next_epoch(sample_record(), twice).reason(),
            "process boot/3/z of c would be in two places");
  twice = sample_change();
  twice.members[0] = twice.members[1];
  EXPECT_FALSE(next_epoch(sample_record(), twice));
  EXPECT_FALSE(first_epoch("r", twice));
  // Two processes of one node are two processes.
  twice.members[0] = {"c", "boot/4/w"};
  EXPECT_TRUE(next_epoch(sample_record(), twice));
  twice.members[0].incarnation.clear();
  EXPECT_FALSE(next_epoch(sample_record(), twice));
}

TEST(RunRecord, an_epoch_does_not_resume_from_before_the_last_commit) {
  EpochChange change = sample_change();
  change.resume.step = 30;
  EXPECT_TRUE(next_epoch(sample_record(), change));
  change.resume.step = 29;
  EXPECT_EQ(next_epoch(sample_record(), change).reason(),
            "it would resume from step 29, before the last commit of step 30");
}

TEST(RunRecord, a_commit_is_of_the_present_epoch_and_increases) {
  RunRecord expected = sample_record();
  expected.last_commit = {31, 7};
  EXPECT_EQ(commit(sample_record(), 31, 7).value(), expected);
  EXPECT_EQ(commit(sample_record(), 31, 6).reason(),
            "fenced: epoch 7 has begun; this process belongs to epoch 6");
  EXPECT_FALSE(commit(sample_record(), 31, 8));
  EXPECT_EQ(commit(sample_record(), 30, 7).reason(),
            "step 30 is not after the last commit of step 30");
}

TEST(RunRecord, the_incarnation_of_a_process_has_boot_start_and_random_bits) {
  const std::string& own = own_incarnation();
  EXPECT_EQ(own, own_incarnation());
  EXPECT_EQ(std::count(own.begin(), own.end(), '/'), 2);
  EXPECT_EQ(own.size() - own.rfind('/'), 17U);
  EXPECT_EQ(own.find('?'), std::string::npos);
}

TEST(RunRecordTest, a_job_after_another_one_has_a_higher_epoch_and_no_commit_yet) {
  RunRecord before{.run = "a", .epoch = 7, .last_commit = {40, 7}};
  const EpochChange change{.members = {{"node0", "x"}}, .resume = {20, "checkpoint"}};
  const auto next = next_start(before, "b", change);
  ASSERT_TRUE(next) << next.reason();
  EXPECT_EQ(next.value().run, "b");
  EXPECT_EQ(next.value().epoch, 8);
  EXPECT_EQ(next.value().last_commit, CommitPoint());
  EXPECT_FALSE(commit(next.value(), 60, 7)) << "by a process of the job before";
  EXPECT_FALSE(next_start(before, "b", {}));
}

TEST(RunRecordTest, a_commit_that_the_ranks_cannot_use_is_the_last_one_no_more) {
  const RunRecord now{.epoch = 2, .last_commit = {40, 1}};
  const auto from_memory = resumed(now, 2, {45, "memory"});
  ASSERT_TRUE(from_memory);
  EXPECT_EQ(from_memory.value().last_commit, (CommitPoint{40, 1}));
  EXPECT_EQ(from_memory.value().resume, (ResumePoint{45, "memory"}));
  const auto from_older = resumed(now, 2, {20, "checkpoint"});
  ASSERT_TRUE(from_older);
  EXPECT_EQ(from_older.value().last_commit, (CommitPoint{20, 2}));
  EXPECT_TRUE(commit(from_older.value(), 40, 2));
  EXPECT_EQ(resumed(now, 1, {45, "memory"}).reason(),
            "fenced: epoch 2 has begun; this process belongs to epoch 1");
}

}  // namespace
}  // namespace trireme::comm
