// SPDX-License-Identifier: Apache-2.0
// Runs whose batch and order of sums are left open, resumed on other layouts: they take the saved
// values, and continue with the bits of a run that was not interrupted.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using OpenWords = std::vector<std::string>;

const std::string open_replicate = "--parallelism.data_parallel_replicate_degree=";
const std::string open_shard = "--parallelism.data_parallel_shard_degree=";

// A run of four steps that saves its second one.
OpenWords open_words(int steps, const OpenWords& more) {
  OpenWords words = {"train",
                     "tiny_run.toml",
                     fmt::format("--training.steps={}", steps),
                     "--training.local_batch_size=1",
                     "--lr_scheduler.total_steps=4",
                     "--checkpoint.interval=2",
                     "--checkpoint.keep_latest_k=0",
                     "--validation.enable=false"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

bool has_text(const Outcome& outcome, const std::string& text) {
  return outcome.err.find(text) != std::string::npos;
}

TEST(ResumeOpen, more_and_fewer_ranks_take_the_saved_values) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, open_words(4, {open_shard + "2"})).exit_code, 0);
  const std::string expected = s.read(final_weights);
  // Fewer ranks, as many in another form, and a layout of one rank that has two micro-batches.
  for (const OpenWords& layout : {OpenWords{}, OpenWords{open_replicate + "2"},
                                  OpenWords{"--parallelism.pipeline_parallel_degree=2"}}) {
    std::filesystem::remove(s.at(final_weights));
    OpenWords words = layout;
    words.insert(words.end(), {"--resume", "2"});
    const Outcome outcome = trireme(s, open_words(4, words));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_FALSE(has_text(outcome, "not bit for bit")) << outcome.err;
    EXPECT_TRUE(s.read(final_weights) == expected) << fmt::format("{}", outcome.err);
  }
  // More ranks than the saved run has workers cannot take its values.
  const Outcome more = trireme(s, open_words(4, {open_shard + "4", "--resume", "2"}));
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_TRUE(has_text(more, "samples_a_step: was 2, is 4")) << more.err;
  EXPECT_TRUE(has_text(more,
                       "the saved one needs --parallelism.logical_dp=2 "
                       "--training.global_batch_size=2, which this layout does not allow: "))
      << more.err;
  EXPECT_TRUE(has_text(more, "--allow-batch-change accepts it")) << more.err;
  // A larger batch than ranks: workers that all have several micro-batches.
  const OpenWords large = {open_shard + "2", "--parallelism.zero_stage=1", "--overwrite",
                           "--training.global_batch_size=8"};
  ASSERT_EQ(trireme(s, open_words(4, large)).exit_code, 0);
  const std::string of_eight = s.read(final_weights);
  for (const OpenWords& layout :
       {OpenWords{}, OpenWords{open_replicate + "2"}, OpenWords{open_shard + "2"}}) {
    OpenWords words = layout;
    words.insert(words.end(), {"--resume", "2"});
    const Outcome outcome = trireme(s, open_words(4, words));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    // ZeRO-3 needs reduce = "each" for several micro-batches; the saved run has "once".
    const bool is_equal = layout != OpenWords{open_shard + "2"};
    EXPECT_EQ(!has_text(outcome, "not bit for bit: reduce was \"once\", is \"each\""), is_equal)
        << outcome.err;
    if (is_equal) {
      EXPECT_TRUE(s.read(final_weights) == of_eight) << outcome.err;
    }
  }
}

TEST(ResumeOpen, a_refused_batch_names_the_keys_that_restore_it) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, open_words(4, {open_shard + "2"})).exit_code, 0);
  const Outcome refused =
      trireme(s, open_words(4, {"--resume", "2", "--training.global_batch_size=4"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(has_text(refused,
                       "another batch (--allow-batch-change accepts it):\n"
                       "  samples_a_step: was 2, is 4\n"
                       "  set --training.global_batch_size=2 to continue with the saved one"))
      << refused.err;
  const Outcome one = trireme(s, open_words(4, {"--resume", "2", "--parallelism.logical_dp=1",
                                                "--training.global_batch_size=1"}));
  EXPECT_TRUE(has_text(one,
                       "set --parallelism.logical_dp=2 --training.global_batch_size=2 to continue "
                       "with the saved one"))
      << one.err;
  // What the message names is accepted.
  const Outcome set = trireme(s, open_words(4, {"--resume", "2", "--parallelism.logical_dp=2",
                                                "--training.global_batch_size=2"}));
  EXPECT_EQ(set.exit_code, 0) << set.err;
}

// Other spellings of a value are no change, and checkpoints that are moved aside are named as what
// they are.
TEST(ResumeOpen, what_did_not_change_is_not_listed) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, open_words(4, {"--parallelism.pipeline_parallel_schedule=1f1b"})).exit_code,
            0);
  const Outcome own =
      trireme(s, open_words(4, {"--resume", "2", "--parallelism.pipeline_parallel_schedule=1F1B"}));
  ASSERT_EQ(own.exit_code, 0) << own.err;
  EXPECT_FALSE(has_text(own, "resume    changed")) << own.err;
  EXPECT_TRUE(has_text(own, "step-00000004.aside-0: this run continues from step 2")) << own.err;
  std::filesystem::resize_file(s.at("run/checkpoint/step-00000004/data-00000"), 8);
  const Outcome damaged = trireme(s, open_words(4, {"--resume", "auto"}));
  ASSERT_EQ(damaged.exit_code, 0) << damaged.err;
  EXPECT_TRUE(has_text(damaged, "step-00000004.aside-1: it is damaged: ")) << damaged.err;
  const Outcome other = trireme(s, open_words(4, {"--overwrite"}));
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_TRUE(has_text(other, "step-00000002.aside-0: it belongs to another run")) << other.err;
}

// run.json stands for its run: in any current folder, and after the run's folder was moved.
TEST(ResumeOpen, run_json_continues_its_run_from_any_folder) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, open_words(4, {})).exit_code, 0);
  const base::Json written = base::Json::parse(s.read("run/run.json"));
  EXPECT_EQ(written.at("training").at("dataset_path"), s.at("text.txt").string());
  EXPECT_EQ(written.at("job").at("dump_folder"), s.at("run").string());
  std::filesystem::create_directories(s.at("else/where"));
  const auto resume = [&](const std::string& config, int steps) {
    Running run(s.at("else/where"), trireme_command({"train", config, "--resume", "auto",
                                                     fmt::format("--training.steps={}", steps)}));
    return run.wait();
  };
  const Outcome first = resume("../../run/run.json", 5);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(has_text(first, "resume    step 4 of ")) << first.err;
  EXPECT_FALSE(has_text(first, "changed: training.dataset_path")) << first.err;
  EXPECT_FALSE(has_text(first, "changed: job.dump_folder")) << first.err;
  EXPECT_TRUE(s.has("run/checkpoint/step-00000005"));
  std::filesystem::rename(s.at("run"), s.at("moved"));
  const Outcome moved = resume("../../moved/run.json", 6);
  ASSERT_EQ(moved.exit_code, 0) << moved.err;
  EXPECT_TRUE(has_text(moved, "resume    step 5 of ")) << moved.err;
  EXPECT_TRUE(s.has("moved/checkpoint/step-00000006"));
  EXPECT_FALSE(s.has("run"));
  EXPECT_TRUE(std::filesystem::is_empty(s.at("else/where")));
}

// ---- random pairs of layouts

struct OpenLayout {
  int replicate = 1, shard = 1, pp = 1, tp = 1, cp = 1;
  OpenWords words;
};

// A layout of at most eight ranks. Every key that may be open is left open, some of the time also
// the ZeRO stage.
OpenLayout drawn_layout(std::mt19937& random, const OpenLayout* like) {
  const auto pick = [&random](std::initializer_list<int> of) {
    return *(of.begin() + random() % of.size());
  };
  OpenLayout l;
  do {
    l.replicate = pick({1, 1, 2, 4});
    l.shard = pick({1, 2, 2, 4});
    l.pp = pick({1, 1, 2});
    // Bits are promised for equal degrees of these: most pairs have them.
    const bool is_alike = like != nullptr && random() % 8 != 0;
    l.tp = is_alike ? like->tp : pick({1, 1, 2});
    l.cp = is_alike ? like->cp : pick({1, 1, 2});
  } while (l.replicate * l.shard * l.pp * l.tp * l.cp > 8);
  l.words = {open_replicate + std::to_string(l.replicate), open_shard + std::to_string(l.shard),
             fmt::format("--parallelism.pipeline_parallel_degree={}", l.pp),
             fmt::format("--parallelism.tensor_parallel_degree={}", l.tp),
             fmt::format("--parallelism.context_parallel_degree={}", l.cp)};
  int zero_stage = l.shard * l.cp > 1 ? 3 : 0;
  if (zero_stage > 0 && random() % 2 == 0) {
    zero_stage = pick({1, 2, 3});
    l.words.push_back(fmt::format("--parallelism.zero_stage={}", zero_stage));
  }
  if (l.tp > 1 && random() % 2 == 0) l.words.push_back("--parallelism.sequence_parallel=true");
  // Sharded gradients of one micro-batch must be complete before those of the next begin.
  if (l.pp > 1 && zero_stage < 2) {
    const std::initializer_list<const char*> schedules = {"1F1B", "gpipe", "zb-h1"};
    l.words.push_back(fmt::format("--parallelism.pipeline_parallel_schedule={}",
                                  *(schedules.begin() + random() % schedules.size())));
  }
  if (random() % 3 == 0) l.words.push_back("--activation_checkpoint.mode=full");
  return l;
}

// What the saved run has, by its checkpoint.
OpenWords saved_values(const Scratch& s) {
  const base::Json saved = trireme_json(s, {"ckpt", "inspect", "run/checkpoint/step-00000002"});
  const base::Json& layout = saved.at("plan").at("layout");
  return {fmt::format("--parallelism.logical_dp={}", layout.at("logical_dp").get<int>()),
          "--parallelism.reduce=" + layout.at("reduce").get<std::string>(),
          fmt::format("--training.global_batch_size={}",
                      saved.at("state").at("samples_a_step").get<int>())};
}

// Each pair: a run on one layout, and its second half on another, with open keys and with the saved
// values given. Where the values can be given, open keys must take them.
TEST(ResumeOpen, random_pairs_of_layouts_continue_with_the_saved_values) {
  const bool is_full = std::getenv("TRIREME_FULL") != nullptr;
  const char* const given = std::getenv("TRIREME_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : 11;
  std::mt19937 random(seed);  // NOLINT(cert-msc51-cpp): a fixed seed
  const int pairs = is_full ? 100 : 3;
  int taken = 0, equal = 0, refused = 0;
  for (int pair = 0; pair < pairs; ++pair) {
    const OpenLayout from = drawn_layout(random, nullptr), to = drawn_layout(random, &from);
    SCOPED_TRACE(fmt::format("TRIREME_SEED={}, pair {}: {} to {}", seed, pair,
                             fmt::join(from.words, " "), fmt::join(to.words, " ")));
    OpenWords start = from.words;
    // A batch of several micro-batches of a worker, some of the time.
    if (random() % 2 == 0) start.push_back("--training.global_batch_size=16");
    const Scratch s;
    write_tiny(s);
    const Outcome straight = trireme(s, open_words(4, start));
    ASSERT_EQ(straight.exit_code, 0) << straight.err;
    const std::string expected = s.read(final_weights);
    OpenWords open = to.words, closed = to.words;
    open.insert(open.end(), {"--resume", "2"});
    closed.insert(closed.end(), {"--resume", "2"});
    const OpenWords values = saved_values(s);
    closed.insert(closed.end(), values.begin(), values.end());
    const Outcome explicit_values = trireme(s, open_words(4, closed));
    const bool is_allowed = explicit_values.exit_code == 0;
    const std::string of_explicit = is_allowed ? s.read(final_weights) : "";
    const Outcome outcome = trireme(s, open_words(4, open));
    if (!is_allowed) {
      ASSERT_EQ(explicit_values.exit_code, 2) << explicit_values.err;
      ++refused;
      // Refused with the keys, or continued with another order of sums and a line about it.
      const bool is_named = has_text(outcome, "which this layout does not allow: ");
      EXPECT_TRUE(outcome.exit_code == 2 ? is_named : has_text(outcome, "not bit for bit: "))
          << outcome.err;
      continue;
    }
    ++taken;
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(s.read(final_weights) == of_explicit) << outcome.err;
    const bool is_promised =
        from.tp == to.tp && from.cp == to.cp && !has_text(outcome, "sequence_parallel was");
    EXPECT_EQ(has_text(outcome, "not bit for bit: "), !is_promised) << outcome.err;
    EXPECT_FALSE(has_text(outcome, "logical_dp was")) << outcome.err;
    EXPECT_FALSE(has_text(outcome, "reduce was")) << outcome.err;
    if (!is_promised) continue;
    ++equal;
    EXPECT_TRUE(s.read(final_weights) == expected) << outcome.err;
  }
  EXPECT_GT(equal, 0);
  std::cout << fmt::format(
      "{} pairs: {} continued with the saved values, {} of them with promised and equal bits; {} "
      "layouts do not allow the values\n",
      pairs, taken, equal, refused);
}

}  // namespace
}  // namespace trireme::tests
