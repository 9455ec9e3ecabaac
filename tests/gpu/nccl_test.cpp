// SPDX-License-Identifier: Apache-2.0
// Ranks as processes over NCCL, all on the first GPU: the bits of thread ranks with sums in the
// fixed order, results close to them with NCCL's reductions, training, and the right verdict when a
// rank is lost.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <regex>
#include <thread>

#include "comm/nccl.h"
#include "tests/launch/launch_rig.h"
#include "tests/launch/lives.h"
#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {
namespace {

// The deadline of one launch: a hang becomes a failure.
constexpr RunOptions run_options = {.deadline_seconds = 100};

class NcclTest : public testing::Test {
 protected:
  void SetUp() override {
    static const std::string problem = comm::nccl_status();
    if (problem.empty()) return;
    if (std::getenv("TRIREME_GPU_REQUIRED") != nullptr) FAIL() << problem;
    GTEST_SKIP() << problem;
  }
  // The command line of a launch, with NCCL's warnings and further environment variables.
  static Words words(int ranks, double deadline_s, const Words& more, const Words& settings = {}) {
    Words all = {"/usr/bin/env", "NCCL_DEBUG=WARN"};
    all.insert(all.end(), settings.begin(), settings.end());
    const Words launch = launch_words(ranks, deadline_s, more);
    all.insert(all.end(), launch.begin(), launch.end());
    all.insert(all.end(), {"--output", "all", "--nccl"});
    return all;
  }
  static Outcome run(const Words& command) {
    const Scratch scratch;
    const Outcome outcome = Running(scratch.path(), command, run_options).wait();
    EXPECT_EQ(outcome.exit_code, 0) << fmt::format(
        "{}\n-- stdout\n{}\n-- stderr\n{}", fmt::join(command, " "), outcome.out, outcome.err);
    return outcome;
  }
};

void expect_line(const Outcome& outcome, const std::string& line) {
  EXPECT_NE(outcome.out.find(line + "\n"), std::string::npos)
      << "not found: " << line << "\n-- stdout\n"
      << outcome.out << "\n-- stderr\n"
      << outcome.err;
}

TEST_F(NcclTest, every_call_gives_the_bits_of_threads_in_the_fixed_order) {
  for (const int ranks : {2, 3, 4}) {
    const auto expected = thread_hashes(ranks, device::StreamMode::inline_calls);
    const Outcome outcome = run(words(ranks, 60, {"exercise", "--fixed"}));
    for (int rank = 0; rank < ranks; ++rank) {
      expect_line(outcome, fmt::format("rank {} {}", rank, expected[static_cast<size_t>(rank)]));
    }
    if (HasFailure()) return;
  }
}

// Sums in two levels have the same bits.
TEST_F(NcclTest, every_call_gives_the_bits_of_threads_on_two_nodes_of_two_ranks) {
  const auto expected = thread_hashes(4, device::StreamMode::inline_calls);
  const Outcome outcome = run(words(4, 60, {"exercise", "--fixed", "--ranks-a-node=2"}));
  for (int rank = 0; rank < 4; ++rank) {
    expect_line(outcome, fmt::format("rank {} {}", rank, expected[static_cast<size_t>(rank)]));
  }
}

TEST_F(NcclTest, every_call_agrees_in_debug_mode) {
  run(words(2, 60, {"exercise", "--fixed"}, {"TRIREME_COMM_DEBUG=1"}));
}

TEST_F(NcclTest, reductions_of_nccl_are_close_to_those_in_the_fixed_order) {
  for (const int ranks : {2, 4}) run(words(ranks, 60, {"sums", "--fixed"}));
}

struct Trained {
  std::vector<double> losses;
  std::string hash;
};

Trained train_as_threads(Layout layout) {
  Trained trained;
  layout.on_gpu = true;
  run_layout(layout, [&](RankRig& rig) {
    for (int step = 0; step < 10; ++step) {
      rig.engine.step(rig.source, 1e-3);
      rig.next_step();
      const double loss = rig.engine.report().mean_loss;
      if (rig.mesh.world().rank() == 0) trained.losses.push_back(loss);
    }
    const std::string hash = rig.engine.weights_sha256();
    if (rig.mesh.world().rank() == 0) trained.hash = hash;
  });
  return trained;
}

TEST_F(NcclTest, ten_steps_give_the_loss_of_thread_ranks) {
  struct Case {
    int dp, zero, stage;
    const char* recipe;
    int cp = 1;
    spec::ContextKind kind = spec::ContextKind::gather;
  };
  for (const Case& c : {Case{2, 1, 0, "fp32"}, Case{1, 2, 2, "bf16"}, Case{2, 2, 3, "fp32"},
                        Case{1, 1, 0, "fp32", 2, spec::ContextKind::ulysses},
                        Case{1, 1, 1, "bf16", 2, spec::ContextKind::gather},
                        Case{1, 2, 3, "fp32", 2, spec::ContextKind::ring}}) {
    const int ranks = c.dp * c.zero * c.cp;
    const Layout layout{.dims = tiny_llama(),
                        .dp = c.dp,
                        .zero = c.zero,
                        .stage = c.stage,
                        .cp = c.cp,
                        .context_kind = c.kind,
                        .recipe = c.recipe,
                        .logical_dp = c.dp * c.zero,
                        .seq_len = c.cp > 1 ? 8 : 6};
    const Trained expected = train_as_threads(layout);
    const Words train = {"train",
                         fmt::format("--dp={}", c.dp),
                         fmt::format("--zero={}", c.zero),
                         fmt::format("--stage={}", c.stage),
                         fmt::format("--recipe={}", c.recipe),
                         fmt::format("--cp={}", c.cp),
                         fmt::format("--kind={}", spec::name_of(c.kind)),
                         fmt::format("--seq-len={}", layout.seq_len)};
    Words fixed = train;
    fixed.emplace_back("--fixed");
    const Outcome same = run(words(ranks, 60, fixed));
    for (int rank = 0; rank < ranks; ++rank) {
      expect_line(same, fmt::format("rank {} weights {}", rank, expected.hash));
    }
    Words replayed = fixed;
    replayed.emplace_back("--capture");
    if (ranks == 4) replayed.emplace_back("--ranks-a-node=2");  // sums in two levels are captured
    const Outcome captured = run(words(ranks, 60, replayed));
    for (int rank = 0; rank < ranks; ++rank) {
      expect_line(captured, fmt::format("rank {} captured", rank));
      expect_line(captured, fmt::format("rank {} weights {}", rank, expected.hash));
    }
    const Outcome near = run(words(ranks, 60, train));
    for (size_t step = 0; step < expected.losses.size(); ++step) {
      const std::regex line(fmt::format("rank 0 step {} loss ([-+.e0-9]+)", step));
      std::smatch found;
      ASSERT_TRUE(std::regex_search(near.out, found, line)) << near.out << near.err;
      // Only the order of two or four additions differs; the difference grows with the steps.
      const double tolerance = std::string(c.recipe) == "fp32" ? 1e-4 : 1e-2;
      EXPECT_NEAR(std::stod(found[1]), expected.losses[step], tolerance * expected.losses[step])
          << to_string(layout) << ", step " << step;
    }
    if (HasFailure()) return;
  }
}

TEST_F(NcclTest, a_rank_that_is_killed_or_stopped_is_named_and_all_end) {
  struct Case {
    int ranks, rank, number;
  };
  for (const Case& c :
       {Case{2, 1, SIGKILL}, Case{4, 0, SIGKILL}, Case{2, 0, SIGSTOP}, Case{4, 2, SIGSTOP}}) {
    const std::string what = fmt::format("signal {} to rank {} of {}", c.number, c.rank, c.ranks);
    const Scratch scratch;
    Running running(scratch.path(), words(c.ranks, 4, {"loop"}), run_options);
    ASSERT_TRUE(running.wait_for([&] { return all_loop(scratch, c.ranks); })) << what << "\n"
                                                                              << running.err();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ASSERT_EQ(::kill(process_of(scratch, c.rank), c.number), 0);
    const Outcome outcome = running.wait();
    EXPECT_EQ(outcome.exit_code, 1) << what;
    const std::string expected =
        fmt::format("^rank {} \\(.*\\) {}", c.rank,
                    c.number == SIGSTOP ? "has sent no heartbeat" : "was killed by signal 9");
    EXPECT_TRUE(std::regex_search(first_error(outcome.err), std::regex(expected)))
        << what << "\n-- stderr\n"
        << outcome.err;
    EXPECT_EQ(left_over(scratch, c.ranks), Words{}) << what;
    if (HasFailure()) return;
  }
}

// The rank is alive and reports so, but does not enter: the kernels of the other ranks wait on the
// GPU, and their host threads wait for the kernels.
TEST_F(NcclTest, a_rank_that_does_not_enter_is_named) {
  const Scratch scratch;
  const Outcome outcome =
      Running(scratch.path(), words(2, 4, {"loop", "--sleep=1@9"}), run_options).wait();
  EXPECT_EQ(outcome.exit_code, 1);
  const std::string expected =
      R"(^rank 1 did not enter all_reduce #\d+ of group 'world' within 4 s; rank 0 is waiting; )"
      R"(the last call that rank 1 finished was all_reduce #8 of group 'pair')";
  EXPECT_TRUE(std::regex_search(first_error(outcome.err), std::regex(expected))) << outcome.err;
  EXPECT_EQ(left_over(scratch, 2), Words{});
  EXPECT_TRUE(scratch.has("flight/rank_0.json"));
}

// Kernels are ended at random, captured or not, updates deferred or not: the state that a rank then
// claims to have is that of a quiet run.
TEST_F(NcclTest, fifty_aborts_at_random_kernels_seal_no_wrong_state) {
  const std::string lines = lives_of(2, "--nccl --lives=50 --aborted-of-ten=10 --seed=45", 150);
  fmt::print("{}{:.0f} % of aborted lives sealed\n", lines, 100 * expect_lives(lines, 2, 50, true));
}

// No process may be ended by its budget (ProcessWorld::count_ended_by_budget): all end with 0.
TEST_F(NcclTest, fifty_lives_half_of_them_aborted_leave_nothing_behind) {
  const std::string lines = lives_of(2, "--nccl --lives=50 --aborted-of-ten=5 --seed=46", 150);
  expect_lives(lines, 2, 50, true);
  fmt::print("{}", lines);
}

}  // namespace
}  // namespace trireme::tests
