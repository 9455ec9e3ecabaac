// SPDX-License-Identifier: Apache-2.0
// Runs that resume from checkpoints: what is compared, skipped, refused and printed. The weights
// must equal those of an uninterrupted run, byte by byte.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/cli/resume/resume_rig.h"

namespace trireme::tests {
namespace {

TEST(Resume, steps_are_run_again_and_compared) {
  const Scratch s;
  write_tiny(s);
  (void)weights_of(s, 8, {"--checkpoint.interval=2", "--checkpoint.keep_latest_k=0"});
  for (const Words& layout : {Words{}, Words{zero + "2", stage + "3"}, Words{pp + "2"}}) {
    std::filesystem::remove(s.at(final_weights));
    Words words = layout;
    words.insert(words.end(), {"--resume", "6", "--resume-verify", "--checkpoint.interval=2",
                               "--checkpoint.keep_latest_k=0"});
    const Outcome outcome = trireme(s, train_words(8, words));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("replayed: same bits as step 6"), std::string::npos) << outcome.err;
    EXPECT_TRUE(s.read(final_weights) == straight(8));
  }
  // Another learning rate would give other bits, so it is refused before the steps are run again.
  const Outcome other = trireme(s, train_words(8, {"--resume-verify", "--optimizer.lr=2e-2"}));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("cannot give the same bits"), std::string::npos) << other.err;
  EXPECT_NE(other.err.find("optimizer.lr: was 0.01, is 0.02"), std::string::npos) << other.err;
  const Outcome first = trireme(s, train_words(8, {"--resume", "2", "--resume-verify"}));
  EXPECT_NE(first.err.find("no checkpoint before step 2"), std::string::npos) << first.err;
}

TEST(Resume, a_damaged_checkpoint_is_named_and_the_one_before_used) {
  const Scratch s;
  write_tiny(s);
  (void)weights_of(s, 12, {"--checkpoint.interval=4", "--checkpoint.keep_latest_k=0"});
  std::string data = s.read("run/checkpoint/step-00000012/data-00000");
  data[data.size() / 2] = static_cast<char>(data[data.size() / 2] ^ 4);
  s.write("run/checkpoint/step-00000012/data-00000", data);
  s.write("run/checkpoint/step-00000008/manifest", "trireme checkpoint 9\n{}\n");
  const Outcome outcome =
      trireme(s, train_words(12, {"--resume", "auto", "--checkpoint.interval=4"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("checkpoint of step 12 skipped"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("checkpoint of step 8 skipped"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("resume    step 4"), std::string::npos) << outcome.err;
  EXPECT_TRUE(s.read(final_weights) == straight(12));
  EXPECT_TRUE(s.has("run/checkpoint/step-00000012.aside-0"));  // nothing is lost
}

// A new run in the folder of an old one does not use its checkpoints; they are moved aside.
TEST(Resume, a_new_run_does_not_resume_from_an_old_one) {
  const Scratch s;
  write_tiny(s);
  (void)weights_of(s, 14, {"--checkpoint.interval=7", "--debug.seed=9"});
  (void)weights_of(s, 12, {"--checkpoint.interval=7", "--overwrite"});
  for (const char* name :
       {"step-00000007", "step-00000012", "step-00000007.aside-0", "step-00000014.aside-0"}) {
    EXPECT_TRUE(s.has(std::string("run/checkpoint/") + name)) << name;
  }
  EXPECT_FALSE(s.has("run/checkpoint/step-00000014"));
  EXPECT_TRUE(weights_of(s, 12, {"--resume", "7"}) == straight(12));
}

// Another reduction order: the run resumes and prints that it will not have the same bits.
TEST(Resume, a_changed_numerical_identity_is_printed) {
  const Scratch s;
  write_tiny(s);
  (void)weights_of(s, 2, {"--checkpoint.interval=2"});
  const Outcome outcome =
      trireme(s, train_words(4, {"--resume", "auto", "--parallelism.logical_dp=12"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("not bit for bit: logical_dp was 24, is 12"), std::string::npos)
      << outcome.err;
  const Outcome micro = trireme(s, train_words(4, {"--resume", "2", "--training.local_batch_size=2",
                                                   "--parallelism.logical_dp=12"}));
  EXPECT_EQ(micro.exit_code, 0) << micro.err;
  EXPECT_NE(micro.err.find("; local_batch_size was 1, is 2"), std::string::npos) << micro.err;
}

// Split fp32 master weights are saved as fp32: a run resumes with the same bits, also with fp32
// masters.
TEST(Resume, split_masters_are_resumed) {
  const Words halves = {"--training.dtype=bf16", "--optimizer.master_dtype=u16"};
  const auto with = [&](Words words) {
    words.insert(words.end(), halves.begin(), halves.end());
    return words;
  };
  const Scratch s;
  write_tiny(s);
  const std::string expected = weights_of(s, 6, with({"--checkpoint.interval=3"}));
  std::filesystem::remove(s.at(final_weights));
  EXPECT_TRUE(weights_of(s, 6, with({"--resume", "3", zero + "2", stage + "3"})) == expected);
  const Outcome other = trireme(s, train_words(6, {"--resume", "3", "--training.dtype=bf16"}));
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_NE(other.err.find("not bit for bit: optimizer.master was \"u16\", is \"f32\""),
            std::string::npos)
      << other.err;
}

TEST(Resume, impossible_resumes_are_refused) {
  const Scratch s;
  write_tiny(s);
  (void)weights_of(s, 4, {"--checkpoint.interval=2"});
  const Tree before = s.tree("run");
  const auto expect = [&](const Words& more, const std::string& part) {
    const Outcome outcome = trireme(s, train_words(6, more));
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  };
  expect({"--resume", "soon"},
         "--resume soon: must be auto, good, never, or the step of a checkpoint");
  expect({"--resume", "3"}, "there is no checkpoint of step 3");
  expect({"--resume", "auto", "--training.global_batch_size=48"}, "samples_a_step: was 24, is 48");
  expect({"--resume", "auto", "--debug.seed=5"}, "data.seed: was 0, is 5");
  expect({"--resume", "2", "--debug.seed=5", "--checkpoint.interval=2"}, "data.seed: was 0, is 5");
  expect({"--resume", "auto", "--overwrite"}, "give one of them");
  expect({}, "run");                 // the folder holds a run
  EXPECT_EQ(s.tree("run"), before);  // run.json too
}

// Metrics contain the time of every save, and its memory beside the prediction.
TEST(Resume, figures_of_every_save_are_kept) {
  for (const Words& layout : {Words{}, Words{zero + "2", stage + "3"}, Words{pp + "2"}}) {
    const Scratch s;
    write_tiny(s);
    Words words = layout;
    words.insert(words.end(), {"--checkpoint.interval=2", "--checkpoint.keep_latest_k=0",
                               "--checkpoint.reread=true", "--metrics.enable_tensorboard=true"});
    const base::Json summary = trireme_json(s, train_words(6, words));
    const base::Json& checkpoints = summary.at("checkpoints");
    EXPECT_EQ(checkpoints.at("saved"), 3);
    EXPECT_GT(checkpoints.at("memory_predicted_bytes").get<int64_t>(), 1 << 20);
    EXPECT_EQ(checkpoints.at("memory_measured_bytes"), checkpoints.at("memory_predicted_bytes"));
    for (const base::Json& rank : summary.at("ranks")) {
      EXPECT_GT(rank.at("checkpoints_predicted_bytes").get<int64_t>(), 1 << 20);
      EXPECT_EQ(rank.at("checkpoints_measured_bytes"), rank.at("checkpoints_predicted_bytes"));
      EXPECT_GT(rank.at("buffers_predicted_bytes"), 0);
      EXPECT_EQ(rank.at("buffers_measured_bytes"), rank.at("buffers_predicted_bytes"));
    }
    std::vector<int64_t> saved;
    std::istringstream lines(s.read("run/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const base::Json json = base::Json::parse(line);
      if (!json.contains("checkpoint/durable_seconds")) continue;
      saved.push_back(json.at("step").get<int64_t>());
      const auto durable = json.at("checkpoint/durable_seconds").get<double>();
      EXPECT_GT(json.at("checkpoint/stall_seconds").get<double>(), 0);
      double bytes = 0;
      const std::string folder = "run/checkpoint/step-0000000" + std::to_string(saved.back());
      for (const auto& [name, content] : s.tree(folder)) {
        if (name != "manifest") bytes += static_cast<double>(content.size());
      }
      EXPECT_NEAR(json.at("checkpoint/bytes_per_second").get<double>() * durable, bytes, 1e-3);
    }
    EXPECT_EQ(saved, (std::vector<int64_t>{2, 4, 6}));
    std::string events;
    for (const auto& [name, content] : s.tree("run/tb")) events += content;
    for (const char* tag : {"checkpoint/stall_seconds", "checkpoint/durable_seconds",
                            "checkpoint/bytes_per_second"}) {
      EXPECT_NE(events.find(tag), std::string::npos) << tag;
    }
  }
  const Scratch s;
  write_tiny(s);
  const Outcome outcome = trireme(s, train_words(2, {"--checkpoint.interval=2"}));
  for (const char* part : {"batches and signals, on the host", "checkpoints, on the host"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
  for (const char* part : {"of the host on each rank: batches and signals", ", checkpoints "}) {
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << "\n" << outcome.err;
  }
}

}  // namespace
}  // namespace trireme::tests
