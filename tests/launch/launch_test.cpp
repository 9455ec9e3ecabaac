// SPDX-License-Identifier: Apache-2.0
// Ranks as processes: the same bits as threads, and an end with the right verdict after any failure
// of one of them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <regex>
#include <thread>

#include "base/text/json.h"
#include "base/text/pickle.h"
#include "cli/shell/environment.h"
#include "comm/gloo.h"
#include "comm/store/store_wire.h"
#include "tests/launch/launch_rig.h"

namespace trireme::tests {
namespace {

class Launch : public testing::Test {
 protected:
  void SetUp() override {
    if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
  }
  Scratch scratch_;
};

TEST_F(Launch, processes_give_the_same_bits_as_threads) {
  for (const int ranks : {2, 3, 4}) {
    const auto expected = thread_hashes(ranks, device::StreamMode::inline_calls);
    for (const char* mode : {"--inline", "--worker"}) {
      const Outcome outcome =
          Running(scratch_.path(), launch_words(ranks, 30, {"--output", "all", "exercise", mode}))
              .wait();
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::string& hash = expected[static_cast<size_t>(rank)];
        EXPECT_NE(outcome.out.find(fmt::format("rank {} {}\n", rank, hash)), std::string::npos)
            << ranks << " ranks, " << mode << ", rank " << rank << ": not " << hash << "\n"
            << outcome.out;
      }
    }
  }
}

struct InjectedFault {
  std::string fault;
  std::string verdict;  // a regular expression for the first error
  int flights;          // ranks that can still write a flight record
};

TEST_F(Launch, every_fault_ends_all_ranks_with_one_verdict) {
  // Some faults are found at the deadline, which a loaded machine must not reach without a fault.
  const double deadline = 3;
  const std::vector<InjectedFault> all = {
      {"--kill=2@9",
       R"(^rank 2 \(process \d+ on .*\) was killed by signal 9 \(SIGKILL\); .*ranks 0, 1 and 3 wait in all_reduce #\d+ of group 'world')",
       3},
      {"--exit=0@9",
       R"(^rank 0 \(.*\) ended with exit code 3; .*had finished all_reduce #8 of group 'pair'; ranks 1, 2 and 3 wait in all_reduce #\d+ of group 'world')",
       3},
      {"--throw=3@9", R"(^rank 3 \(.*\) ended with exit code 1; )", 3},
      {"--stop=1@9",
       R"(^rank 1 \(.*\) has sent no heartbeat for [\d.]+ s: .*ranks 0, 2 and 3 wait in)", 3},
      {"--sleep=1@9",
       R"(^rank 1 did not enter all_reduce #\d+ of group 'world' within 3 s; ranks 0, 2 and 3 are waiting; the last call that rank 1 finished was all_reduce #8 of group 'pair')",
       4},
      {"--skip=3@9",
       R"(^rank 3 did not enter all_reduce #\d+ of group 'world' within 3 s; ranks 0, 1 and 2 are waiting; rank 3 is in all_reduce #9 of group 'pair')",
       4},
  };
  for (const InjectedFault& injected : all) {
    const Scratch scratch;
    const Outcome outcome =
        Running(scratch.path(), launch_words(4, deadline, {"loop", injected.fault})).wait();
    EXPECT_EQ(outcome.exit_code, 1) << injected.fault;
    std::string verdict = first_error(outcome.err);
    if (injected.fault.starts_with("--throw")) {
      EXPECT_EQ(verdict, "the requested fault");  // it reported the error before it ended
      verdict = first_error(outcome.err.substr(outcome.err.find(verdict)));
    }
    EXPECT_TRUE(std::regex_search(verdict, std::regex(injected.verdict)))
        << injected.fault << ": " << outcome.err;
    EXPECT_EQ(left_over(scratch, 4), Words{}) << injected.fault;
    int flights = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const std::string name = fmt::format("flight/rank_{}.json", rank);
      if (!scratch.has(name)) continue;
      ++flights;
      const base::Json record = only_object(scratch.read(name));
      EXPECT_FALSE(record["entries"].empty()) << name;
      EXPECT_EQ(scratch.read(fmt::format("flight/_dump_{}", rank)), base::pickle(record)) << name;
    }
    EXPECT_EQ(flights, injected.flights) << injected.fault;
  }
}

// SIGKILL or SIGSTOP from outside, to any rank at any time, TRIREME_LAUNCH_CHAOS times.
TEST_F(Launch, random_kills_and_stops_are_blamed_on_the_right_rank) {
  const comm::Environment environment = cli::process_environment();
  const auto asked = environment.find("TRIREME_LAUNCH_CHAOS");
  const int64_t rounds =
      asked == environment.end() ? 8 : comm::integer_from(asked->second).value_or(10);
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  const double deadline = 4;  // on a loaded machine a slow rank must not be taken for a silent one
  for (int64_t round = 0; round < rounds; ++round) {
    const int rank = static_cast<int>(random() % 4);
    const bool stops = random() % 2 == 0;
    const std::string what =
        fmt::format("seed {}, round {}: {} rank {}", seed, round, stops ? "stop" : "kill", rank);
    const Scratch scratch;
    Running running(scratch.path(), launch_words(4, deadline, {"loop"}));
    ASSERT_TRUE(running.wait_for([&] { return all_loop(scratch, 4); })) << running.err();
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 600));
    ASSERT_EQ(::kill(process_of(scratch, rank), stops ? SIGSTOP : SIGKILL), 0);
    const Outcome outcome = running.wait();
    EXPECT_EQ(outcome.exit_code, 1) << what;
    const std::string expected = fmt::format("^rank {} \\(.*\\) {}", rank,
                                             stops ? "has sent no heartbeat" : "was killed by");
    EXPECT_TRUE(std::regex_search(first_error(outcome.err), std::regex(expected))) << what << "\n"
                                                                                   << outcome.err;
    EXPECT_EQ(left_over(scratch, 4), Words{}) << what;
  }
}

TEST_F(Launch, signals_are_passed_on) {
  for (const int number : {SIGINT, SIGTERM}) {
    const Scratch scratch;
    Running running(scratch.path(), launch_words(3, 30, {"loop"}));
    ASSERT_TRUE(running.wait_for([&] { return all_loop(scratch, 3); })) << running.err();
    running.signal(number);
    EXPECT_EQ(running.wait().exit_code, 75);
    EXPECT_EQ(left_over(scratch, 3), Words{});
  }
}

TEST_F(Launch, ranks_do_not_outlive_their_launcher) {
  Running running(scratch_.path(), launch_words(3, 30, {"loop"}));
  ASSERT_TRUE(running.wait_for([&] { return all_loop(scratch_, 3); })) << running.err();
  running.signal(SIGKILL);
  running.wait();
  EXPECT_TRUE(wait_until([&] { return left_over(scratch_, 3).empty(); }));
}

TEST_F(Launch, json_has_the_verdict_and_the_ranks) {
  const Outcome good =
      Running(scratch_.path(), launch_words(2, 30, {"loop", "--steps=5", "--json"})).wait();
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_EQ(only_object(good.out)["ok"], true);
  const Scratch scratch;
  const Outcome bad =
      Running(scratch.path(), launch_words(2, 30, {"loop", "--kill=1@3", "--json"})).wait();
  EXPECT_EQ(bad.exit_code, 1);
  base::Json object = only_object(bad.out);
  EXPECT_EQ(object["ok"], false);
  EXPECT_EQ(object["ranks"][1]["signal"], SIGKILL);
  EXPECT_EQ(object["error"].get<std::string>(), first_error(bad.err));
}

TEST_F(Launch, two_nodes_share_one_verdict) {
  const Scratch other;
  const int port = 20000 + static_cast<int>(::getpid() % 10000);
  const auto words = [&](int node) {
    return launch_words(2, 30,
                        {"--nnodes", "2", "--node-rank", std::to_string(node), "--rdzv",
                         fmt::format("127.0.0.1:{}", port), "loop"});
  };
  Running zero(scratch_.path(), words(0)), one(other.path(), words(1));
  ASSERT_TRUE(one.wait_for([&] {
    return process_of(other, 2) != 0 && process_of(other, 3) != 0 && all_loop(scratch_, 2);
  })) << one.err();
  ASSERT_EQ(::kill(process_of(other, 3), SIGKILL), 0);
  const Outcome first = zero.wait(), second = one.wait();
  EXPECT_EQ(first.exit_code, 1);
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_TRUE(first_error(first.err).starts_with("rank 3 ")) << first.err;
  EXPECT_NE(first_error(first.err).find("SIGKILL"), std::string::npos) << first.err;
  EXPECT_EQ(first_error(first.err), first_error(second.err));
}

TEST_F(Launch, invalid_calls_are_refused) {
  const std::vector<std::pair<Words, std::string>> all = {
      {{"-n", "0", "x"}, "-n 0: at least 1"},
      {{"-n", "2", "--nnodes", "2", "x"}, "--nnodes needs --rdzv"},
      {{"-n", "2", "--nnodes", "2", "--node-rank", "2", "--rdzv", "a:1", "x"}, "--node-rank 2"},
      {{"-n", "2", "--deadline", "0", "x"}, "--deadline 0"},
      {{"-n", "1000000", "x"}, "at most"},
  };
  for (const auto& [words, message] : all) {
    Words command = {"launch"};
    command.insert(command.end(), words.begin(), words.end());
    const Outcome outcome = trireme(scratch_, command);
    EXPECT_EQ(outcome.exit_code, 2) << message;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace trireme::tests
