// SPDX-License-Identifier: Apache-2.0
// Ranks as processes: the same bits as threads, and an end with the right verdict after any failure
// of one of them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <regex>
#include <thread>

#include "base/text/json.h"
#include "base/text/pickle.h"
#include "cli/shell/environment.h"
#include "comm/clock.h"
#include "comm/gloo.h"
#include "comm/store/store_server.h"
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
      Words words = {"--output", "all", "exercise", mode};
      // Sums and gathers in two levels.
      if (ranks == 4 && mode == std::string("--worker")) words.emplace_back("--ranks-a-node=2");
      const Outcome outcome = Running(scratch_.path(), launch_words(ranks, 30, words)).wait();
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
      asked == environment.end() ? 4 : comm::integer_from(asked->second).value_or(10);
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

// A rank of either node ends: both launchers decide the same, and start again only what may be.
TEST_F(Launch, two_nodes_decide_the_same_however_a_rank_ends) {
  struct Case {
    Words fault;
    bool restarts;
    int exit_code;
  };
  std::vector<Case> all = {{{"--exit=3@9", "--code=2"}, false, 2}, {{"--kill=1@9"}, true, 1}};
  if (std::getenv("TRIREME_FULL") != nullptr) {
    for (const char* rank : {"0", "1", "2", "3"}) {
      for (const int code : {1, 2, 75, 93}) {
        const bool restarts = code == 1 || code == 75;  // ranks that did not save were killed
        all.push_back({{fmt::format("--exit={}@9", rank), fmt::format("--code={}", code)},
                       restarts,
                       restarts ? 1 : code});
      }
      all.push_back({{fmt::format("--kill={}@9", rank)}, true, 1});
    }
  }
  double longest = 0;
  for (const Case& one : all) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(one.fault, " ")));
    const Scratch here, there;
    const int port = comm::StoreServer({.host = "127.0.0.1"}).port();
    const auto words = [&](int node) {
      Words more = {"--nnodes",           "2",      "--node-rank",
                    std::to_string(node), "--rdzv", fmt::format("127.0.0.1:{}", port),
                    "--restarts",         "1",      "loop"};
      more.insert(more.end(), one.fault.begin(), one.fault.end());
      return launch_words(2, 30, more);
    };
    Running zero(here.path(), words(0)), other(there.path(), words(1));
    ASSERT_TRUE(zero.wait_for([&] {
      return all_loop(here, 2) && process_of(there, 2) != 0 && process_of(there, 3) != 0;
    })) << zero.err();
    const auto begun = comm::Clock::now();
    for (Running* node : {&zero, &other}) {  // until it starts again, or ends
      (void)node->wait_for([&] { return node->err().find("restart 1 of 1") != std::string::npos; });
    }
    const double seconds = comm::seconds_since(begun);
    longest = std::max(longest, seconds);
    const Outcome first = zero.wait(), second = other.wait();
    for (const Outcome* outcome : {&first, &second}) {
      EXPECT_EQ(outcome->exit_code, one.exit_code) << outcome->err;
      const bool has_restarted = outcome->err.find("restart 1 of 1") != std::string::npos;
      EXPECT_EQ(has_restarted, one.restarts) << outcome->err;
    }
    const std::string verdict = first_error(first.err);
    EXPECT_NE(verdict, "");
    fmt::print("{}: decided after {:.2f} s: {}\n", fmt::join(one.fault, " "), seconds, verdict);
    EXPECT_NE(second.err.find("error: " + verdict), std::string::npos) << second.err;
  }
  fmt::print("{} ends of a rank: decided after {:.2f} s at most\n", all.size(), longest);
}

// A rank whose heartbeats go on does not move.
TEST_F(Launch, a_rank_that_hangs_is_named_at_the_limit_of_its_phase) {
  const Outcome outcome =
      Running(scratch_.path(), launch_words(3, 120, {"loop", "--phases", "--sleep=1@300"})).wait();
  EXPECT_EQ(outcome.exit_code, 1);
  const std::regex verdict(
      R"(^rank 1 \(process \d+ on .*\) hangs in phase 'step': nothing has moved for [\d.]+ s, and )"
      R"(the limit of the phase is [\d.]+ s; .*ranks 0 and 2 wait in all_reduce #\d+ of group 'world')");
  EXPECT_TRUE(std::regex_search(first_error(outcome.err), verdict)) << outcome.err;
  EXPECT_EQ(left_over(scratch_, 3), Words{});
}

TEST_F(Launch, a_rank_that_compiles_or_waits_for_data_is_not_named) {
  if (std::getenv("TRIREME_FULL") == nullptr) GTEST_SKIP() << "only with TRIREME_FULL";
  for (const char* phase : {"data", "compile"}) {
    const Outcome outcome = Running(scratch_.path(),
                                    launch_words(2, 120,
                                                 {"loop", "--phases", "--steps=310", "--busy=1@300",
                                                  fmt::format("--busy-phase={}", phase)}),
                                    {.deadline_seconds = 200})
                                .wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
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
