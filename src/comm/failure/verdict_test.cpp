// SPDX-License-Identifier: Apache-2.0
// The ranks that are blamed, from invented positions.
#include "comm/failure/verdict.h"

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

using Call = RankPosition::Call;
using RankList = std::vector<int>;

Call call(const std::string& op, const std::string& group, RankList ranks, int64_t sequence) {
  return {.op = op, .group = group, .ranks = std::move(ranks), .sequence = sequence};
}
Call message(const std::string& op, int64_t sequence, int peer) {
  Call made = call(op, "pp", {0, 1, 2, 3}, sequence);
  made.peer = peer;
  return made;
}

RankReport report(int rank, std::optional<Call> inside, std::optional<Call> finished,
                  std::vector<Call> reached) {
  RankPosition position{.rank = rank, .host = "host", .process = 100 + rank};
  position.inside = std::move(inside);
  position.finished = std::move(finished);
  position.reached = std::move(reached);
  return {.position = position, .silent_s = 0.1};
}
RankReport waits(int rank, const Call& inside) {
  return report(rank, inside, std::nullopt,
                inside.is_message() ? std::vector<Call>{} : std::vector{inside});
}

const Call step_sum = call("all_reduce", "world", {0, 1, 2, 3}, 17);
const Call gather_before = call("all_gather", "world", {0, 1, 2, 3}, 16);

std::vector<RankReport> one_lags(int laggard) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 4; ++rank) {
    reports.push_back(rank == laggard ? report(rank, std::nullopt, gather_before, {gather_before})
                                      : waits(rank, step_sum));
  }
  return reports;
}

TEST(Verdict, names_the_rank_that_did_not_enter) {
  const Verdict verdict = verdict_of(one_lags(2), {.deadline_s = 5, .reporter = 1});
  EXPECT_EQ(verdict.ranks, RankList{2});
  EXPECT_EQ(verdict.text,
            "rank 2 did not enter all_reduce #17 of group 'world' within 5 s; ranks 0, 1 and 3 "
            "are waiting; the last call that rank 2 finished was all_gather #16 of group 'world'");
}

TEST(Verdict, the_rank_that_ended_first_has_priority) {
  std::vector<RankReport> reports = one_lags(2);
  reports[3].ended = "ended with exit code 1";
  reports[3].departure = 1;
  reports[0].ended = "was killed by signal 9 (SIGKILL)";
  reports[1].silent_s = 100;
  const Verdict verdict = verdict_of(reports, {});
  EXPECT_EQ(verdict.ranks, RankList{0});
  EXPECT_TRUE(verdict.text.starts_with(
      "rank 0 (process 100 on host) was killed by signal 9 (SIGKILL); at its last heartbeat it was "
      "in all_reduce #17 of group 'world'; ranks 1 and 3 wait in all_reduce #17"))
      << verdict.text;
}

TEST(Verdict, silence_has_priority_over_lag) {
  std::vector<RankReport> reports = one_lags(2);
  reports[1].silent_s = 4;
  reports[3].silent_s = 3;
  const Verdict verdict = verdict_of(reports, {.reporter = 0});
  EXPECT_EQ(verdict.ranks, RankList{1});
  EXPECT_NE(verdict.text.find("no heartbeat for 4.0 s"), std::string::npos);
  reports[1].position->has_left = true;
  EXPECT_EQ(verdict_of(reports, {.reporter = 0}).ranks, RankList{3});
}

// 3 waits for 2 in a pair, 2 waits for 1 to send, 1 computes.
TEST(Verdict, follows_the_waits) {
  const Call pair = call("all_reduce", "tp", {2, 3}, 4);
  const Verdict verdict = verdict_of(
      {report(0, std::nullopt, gather_before, {}), report(1, std::nullopt, gather_before, {}),
       waits(2, message("recv", 7, 1)), waits(3, pair)},
      {.deadline_s = 2, .reporter = 3});
  EXPECT_EQ(verdict.ranks, RankList{1});
  EXPECT_NE(verdict.text.find("rank 1 did not enter recv #7 from rank 1"), std::string::npos)
      << verdict.text;
}

TEST(Verdict, groups_with_the_same_name_are_distinguished_by_their_ranks) {
  const Call left = call("all_reduce", "tp", {0, 1}, 9),
             right = call("all_reduce", "tp", {2, 3}, 3);
  const Verdict verdict = verdict_of({waits(0, left), report(1, std::nullopt, right, {right}),
                                      report(2, std::nullopt, right, {right}), waits(3, right)},
                                     {.deadline_s = 2, .reporter = 0});
  EXPECT_EQ(verdict.ranks, RankList{1});
}

TEST(Verdict, in_a_cycle_the_minority_is_blamed) {
  const Call pair = call("all_reduce", "pair", {2, 3}, 50);
  std::vector<RankReport> reports = one_lags(3);
  reports[3] = report(3, pair, gather_before, {gather_before, pair});
  EXPECT_EQ(verdict_of(reports, {.deadline_s = 2, .reporter = 3}).ranks, RankList{3});
  const Verdict tie = verdict_of({waits(0, message("recv", 1, 1)), waits(1, message("recv", 1, 0))},
                                 {.deadline_s = 2, .reporter = 0});
  EXPECT_EQ(tie.ranks, (RankList{0, 1}));
  EXPECT_NE(tie.text.find("wait for each other"), std::string::npos);
}

TEST(Verdict, names_ranks_that_never_started_and_the_case_that_none_lags) {
  std::vector<RankReport> reports = one_lags(2);
  reports[2].position.reset();
  EXPECT_EQ(verdict_of(reports, {.reporter = 0}).ranks, RankList{2});
  std::vector<RankReport> all;
  for (int rank = 0; rank < 4; ++rank) all.push_back(waits(rank, step_sum));
  EXPECT_TRUE(verdict_of(all, {.reporter = 0}).ranks.empty());
}

TEST(Verdict, many_ranks_stay_one_line) {
  std::vector<RankReport> reports;
  RankList everyone;
  for (int rank = 0; rank < 1000; ++rank) everyone.push_back(rank);
  const Call wide = call("all_reduce", "world", everyone, 3);
  for (int rank = 0; rank < 1000; ++rank) reports.push_back(waits(rank, wide));
  reports[500] = report(500, std::nullopt, std::nullopt, {});
  const Verdict verdict = verdict_of(reports, {.reporter = 7});
  EXPECT_EQ(verdict.ranks, RankList{500});
  EXPECT_LT(verdict.text.size(), 300U);
}

TEST(RankPosition, is_read_from_the_recorder_and_from_text) {
  FlightRecorder recorder(2);
  const auto made = [&](const char* op, int64_t sequence, int peer) {
    return recorder.scheduled({.sequence = sequence,
                               .group = "world",
                               .ranks = {0, 1, 2, 3},
                               .op = op,
                               .dtype = "f32",
                               .peer = peer});
  };
  EXPECT_EQ(position_of(recorder).inside, std::nullopt);
  const int64_t first = made("all_reduce", 0, -1), second = made("broadcast", 1, 3);
  recorder.started(first);
  recorder.completed(first);
  recorder.started(second);
  made("recv", 0, 1);
  const RankPosition position = position_of(recorder);
  EXPECT_EQ(position.rank, 2);
  EXPECT_EQ(call_text(*position.finished), "all_reduce #0 of group 'world'");
  EXPECT_EQ(call_text(*position.inside), "broadcast #1 of group 'world'");
  ASSERT_EQ(position.reached.size(), 1U);
  EXPECT_EQ(position.reached.front().sequence, 1);
  EXPECT_EQ(position_from(to_text(position), 64), position);
  for (const char* wrong : {"", "{}", "[1]", "{\"rank\": \"x\"}", "nonsense"}) {
    EXPECT_EQ(position_from(wrong, 64), std::nullopt) << wrong;
  }
  // Ranks that the run does not have, and more of them than fit into memory.
  EXPECT_EQ(position_from(to_text(position), 3), std::nullopt);
  const std::string text = to_text(position), ranks = "{\"first\":0,\"step\":1,\"count\":4}";
  for (const char* wrong :
       {"{\"count\":16777216,\"first\":0,\"step\":1}", "{\"count\":4,\"first\":-1,\"step\":1}",
        "{\"count\":4,\"first\":9223372036854775807,\"step\":1}",
        "{\"count\":4,\"first\":0,\"step\":2147483647}", "[0,1,2,64]", "7"}) {
    std::string changed = text;
    changed.replace(changed.find(ranks), ranks.size(), wrong);
    EXPECT_EQ(position_from(changed, 64), std::nullopt) << changed;
  }
}

TEST(Verdict, is_the_same_after_the_store) {
  const Verdict verdict{.kind = VerdictKind::stalled,
                        .ranks = {3, 12},
                        .node = "node1",
                        .cause = "did not enter all_reduce #3",
                        .text = "ranks 3 and 12 did not enter all_reduce #3"};
  EXPECT_EQ(verdict_from(stored_form(verdict)), verdict);
  for (const VerdictKind kind :
       {VerdictKind::died, VerdictKind::failed, VerdictKind::fenced, VerdictKind::stopped,
        VerdictKind::unfit, VerdictKind::no_memory}) {
    EXPECT_EQ(verdict_from(stored_form({.kind = kind, .text = "x"})).kind, kind);
  }
}

TEST(Verdict, of_a_stranger_is_a_failure_without_ranks) {
  const Verdict plain = verdict_from("rank 3 was\nkilled");
  EXPECT_EQ(plain, (Verdict{.text = "rank 3 was killed"}));
  EXPECT_EQ(verdict_from("").text, "aborted");
  const Verdict odd = verdict_from(
      R"({"kind": "eaten", "ranks": [1, -1, "x", 1e99, 99999999999], "node": 7, "text": "a\u001bb"})");
  EXPECT_EQ(odd, (Verdict{.ranks = {1}, .text = "a b"}));
  EXPECT_EQ(verdict_from(std::string(100000, '[')).kind, VerdictKind::failed);
}

TEST(Verdict, has_the_node_of_the_rank_that_is_to_blame) {
  std::vector<RankReport> reports(2);
  for (int rank = 0; rank < 2; ++rank) {
    reports[static_cast<size_t>(rank)].position =
        RankPosition{.rank = rank, .host = rank == 0 ? "node0" : "node1", .process = 7};
  }
  reports[1].ended = "was killed by signal 9 (SIGKILL)";
  const Verdict verdict = verdict_of(reports, {});
  EXPECT_EQ(verdict.kind, VerdictKind::died);
  EXPECT_EQ(verdict.ranks, std::vector<int>{1});
  EXPECT_EQ(verdict.node, "node1");
  EXPECT_EQ(verdict.cause, "was killed by signal 9 (SIGKILL)");
}

}  // namespace
}  // namespace trireme::comm
