// SPDX-License-Identifier: Apache-2.0
// Runs over several data sets and phases: the same samples, bits and files on any ranks and after
// any stop.
#include <gtest/gtest.h>

#include <csignal>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Words = std::vector<std::string>;

// Twelve steps: a mixture of two sets, then a longer sequence, then a third set and another batch.
void write_mixture(const Scratch& s) {
  write_tiny(s);
  s.write("a.txt", std::string(3000, 'a') + tiny_text(60));
  s.write("b.txt", tiny_text(80) + std::string(500, 'b'));
  s.write("c.txt", std::string(2000, 'c') + tiny_text(40));
  s.write("mix.toml", replaced(s.read("tiny_run.toml"), "dataset_path = \"text.txt\"\n", "") +
                          "[[training.dataset]]\npath = \"a.txt\"\nname = \"a\"\nweight = 2\n"
                          "[[training.dataset]]\npath = \"b.txt\"\nname = \"b\"\nmax_epochs = 1\n"
                          "[[training.dataset]]\npath = \"c.txt\"\nname = \"c\"\nweight = 0\n"
                          "[[phase]]\nname = \"long\"\nfrom_step = 5\nseq_len = 32\n"
                          "global_batch_size = 6\nlr_factor = 0.5\n"
                          "[[phase]]\nfrom_tokens = 1400\nglobal_batch_size = 12\n"
                          "weights = { b = 1, c = 3 }\n");
}

Words mixture_words(const Words& more) {
  Words words = {"train",
                 "mix.toml",
                 "--training.steps=12",
                 "--training.local_batch_size=1",
                 "--training.global_batch_size=12",
                 "--parallelism.logical_dp=6",
                 "--parallelism.reduce=once",
                 "--validation.enable",
                 "--validation.samples=6",
                 "--checkpoint.interval=1",
                 "--checkpoint.keep_latest_k=0"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct MixtureResult {
  std::string weights;
  base::Json summary;
};
MixtureResult mixture_result(const Scratch& s, const Words& more) {
  const base::Json summary = trireme_json(s, mixture_words(more));
  return {s.has(final_weights) ? s.read(final_weights) : "", summary};
}

const std::string replicate = "--parallelism.data_parallel_replicate_degree=";
const std::string shard = "--parallelism.data_parallel_shard_degree=";
const std::string zero_stage = "--parallelism.zero_stage=";
const std::string pipeline = "--parallelism.pipeline_parallel_degree=";

TEST(Mixture, layouts_read_the_same_samples_and_give_the_same_bits) {
  const Scratch first;
  write_mixture(first);
  const MixtureResult one = mixture_result(first, {});
  ASSERT_FALSE(one.weights.empty());
  EXPECT_EQ(one.summary["tokens"], 4 * 12 * 16 + 4 * 6 * 32 + 4 * 12 * 32);
  EXPECT_EQ(one.summary["validation"].size(), 3U);
  for (const Words& layout : std::vector<Words>{{replicate + "2"},
                                                {replicate + "3"},
                                                {shard + "6", zero_stage + "1"},
                                                {pipeline + "2"},
                                                {replicate + "2", pipeline + "2"}}) {
    const Scratch s;
    write_mixture(s);
    const MixtureResult several = mixture_result(s, layout);
    EXPECT_TRUE(several.weights == one.weights) << layout.front();
    EXPECT_EQ(several.summary["first_batch"], one.summary["first_batch"]);
    EXPECT_EQ(several.summary["validation"], one.summary["validation"]);
    for (const base::Json& rank : several.summary["ranks"]) {
      EXPECT_EQ(rank["memory_predicted_bytes"], rank["memory_measured_bytes"]) << layout.front();
      EXPECT_EQ(rank["traffic_predicted_bytes"], rank["traffic_counted_bytes"]) << layout.front();
      EXPECT_EQ(rank["buffers_predicted_bytes"], rank["buffers_measured_bytes"]) << layout.front();
      EXPECT_GT(rank["rebuild_predicted_bytes"], 0) << layout.front();
      EXPECT_EQ(rank["rebuild_predicted_bytes"], rank["rebuild_measured_bytes"]) << layout.front();
    }
  }
}

TEST(Mixture, a_run_continues_after_every_step_on_other_ranks) {
  const Scratch straight;
  write_mixture(straight);
  const MixtureResult one = mixture_result(straight, {});
  const Scratch s;
  write_mixture(s);
  // Every attempt does one or two steps, on other ranks than the one before; phases change between
  // attempts and inside of them.
  const Words layouts = {replicate + "1", replicate + "2", replicate + "3", replicate + "6"};
  for (int step = 1, attempt = 0; step <= 12; step += 1 + attempt % 2, ++attempt) {
    const int last = std::min(12, step + attempt % 2);
    const Outcome outcome =
        trireme(s, mixture_words({"--training.steps=" + std::to_string(last), "--resume", "auto",
                                  "--lr_scheduler.total_steps=12",
                                  layouts[static_cast<size_t>(attempt) % 4]}));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    // The engine is built for the phase of the first step: only a later phase replaces it.
    const bool has_border = last > step && (last == 5 || last == 9);
    EXPECT_EQ(outcome.err.find("the engine is rebuilt") != std::string::npos, has_border)
        << outcome.err;
  }
  EXPECT_TRUE(s.read(final_weights) == one.weights);
}

// Checkpoints of several phases are kept: the steps before the newest belong to its own phase, or
// to two phases, and are replayed with engines of theirs.
TEST(Mixture, steps_of_any_phase_are_replayed) {
  const Scratch s;
  write_mixture(s);
  (void)mixture_result(s, {});
  for (const char* step : {"8", "7", "6", "5", "4"}) {
    const Outcome outcome =
        trireme(s, mixture_words({"--resume", step, "--resume-verify", "--checkpoint.enable=false",
                                  "--training.steps=" + std::string(step),
                                  "--lr_scheduler.total_steps=12", replicate + "2"}));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("replayed: same bits as step " + std::string(step)),
              std::string::npos)
        << outcome.err;
  }
}

TEST(Mixture, a_later_phase_may_be_added_and_an_earlier_one_may_not_be_changed) {
  const Scratch s;
  write_mixture(s);
  const Outcome half = trireme(s, mixture_words({"--training.steps=6"}));
  ASSERT_EQ(half.exit_code, 0) << half.err;
  const Outcome changed =
      trireme(s, mixture_words({"--resume", "auto", "--phase[0].weights=a=1,b=1"}));
  EXPECT_NE(changed.exit_code, 0);
  EXPECT_NE(changed.err.find("data.phases"), std::string::npos) << changed.err;
  const Outcome later = trireme(s, mixture_words({"--resume", "auto", "--phase[1].weights=c=1"}));
  EXPECT_EQ(later.exit_code, 0) << later.err;
}

TEST(Mixture, metrics_have_the_loss_of_every_data_set) {
  const Scratch s;
  write_mixture(s);
  ASSERT_EQ(trireme(s, mixture_words({})).exit_code, 0);
  const std::string metrics = s.read("run/metrics.jsonl");
  for (const char* name :
       {"loss_metrics/by_data/a", "loss_metrics/by_data/b", "loss_metrics/by_data/c",
        "validation_metrics/loss/c", "validation_metrics/bits_per_byte"}) {
    EXPECT_NE(metrics.find(name), std::string::npos) << name;
  }
}

TEST(Mixture, a_source_that_runs_out_ends_the_run_before_it_begins) {
  const Scratch s;
  write_mixture(s);
  const Outcome outcome = trireme(s, mixture_words({"--training.dataset[0].max_tokens=64",
                                                    "--training.dataset[1].max_tokens=64"}));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.err.find("all its sources are exhausted"), std::string::npos) << outcome.err;
  EXPECT_FALSE(s.has("run"));
}

TEST(Mixture, packed_documents_train_with_masks) {
  const Scratch s;
  write_tiny(s);
  s.write("lines.txt", tiny_text(300));
  ASSERT_EQ(
      trireme(s, {"data", "build", "lines.txt", "--output", "lines", "--split-lines"}).exit_code,
      0);
  const base::Json summary = trireme_json(
      s, {"train", "tiny_run.toml", "--training.dataset_path=lines", "--training.packing=best_fit",
          "--training.document_mask", "--training.seq_len=32", "--validation.enable"});
  EXPECT_EQ(summary["steps"], 4);
  const std::string metrics = s.read("run/metrics.jsonl");
  EXPECT_NE(metrics.find("bits_per_byte"), std::string::npos);
}

}  // namespace
}  // namespace trireme::tests
