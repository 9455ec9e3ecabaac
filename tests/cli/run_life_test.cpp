// SPDX-License-Identifier: Apache-2.0
// A run from start to end as its user sees it: errors before it starts, stops that save, what a
// resumed run compares and records, and that its folder has one writer.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>

#include "tests/cli/resume/resume_rig.h"

namespace trireme::tests {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<base::Json> lines_of_kind(const Scratch& s, const std::string& kind) {
  std::vector<base::Json> found;
  std::istringstream lines(s.read("run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const base::Json json = base::Json::parse(line);
    EXPECT_TRUE(json.contains("kind") && json.contains("attempt") && json.contains("step")) << line;
    if (json.at("kind") == kind) found.push_back(json);
  }
  return found;
}

const Words endless = {"train",
                       "tiny_run.toml",
                       "--training.steps=100000000",
                       "--lr_scheduler.total_steps=1000",
                       "--metrics.log_freq=1000000",
                       "--validation.enable=false"};
Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
bool is_training(const Running& running) { return has(running.err(), "step: "); }

// ---- before the start

TEST(RunLife, a_model_that_cannot_be_exported_is_refused_at_the_start) {
  const std::string own =
      "family = \"llama\"\nlayers = 1\nhidden = 16\nheads = 2\nffn = 32\n"
      "vocab = 256\nmax_seq = 32\n";
  for (const char* more :
       {"qk_norm = true\nqk_norm_eps = 1e-6\n", "qkv_bias = true\nqk_norm = true\n"}) {
    const Scratch s;
    write_tiny(s);
    s.write("own.toml", own + more);
    const Words words = {"train", "tiny_run.toml", "--model.name=./own.toml"};
    const Outcome refused = trireme(s, words);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_TRUE(has(refused.err, "no Hugging Face form")) << refused.err;
    EXPECT_FALSE(s.has("run"));
    const Outcome kept = trireme(s, with(words, {"--checkpoint.export_folder="}));
    EXPECT_EQ(kept.exit_code, 0) << kept.err;
    EXPECT_TRUE(s.has("run/checkpoint/step-00000004/manifest"));
    EXPECT_FALSE(s.has("run/weights"));
  }
  // Without its own value, the norm of q and k has the model's eps.
  const Scratch s;
  write_tiny(s);
  s.write("own.toml", own + "qk_norm = true\n");
  const Outcome outcome = trireme(s, {"train", "tiny_run.toml", "--model.name=./own.toml"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(s.has(final_weights));
}

// The state is saved before the weights are exported, so a failed export does not lose it.
TEST(RunLife, a_failing_export_leaves_the_run_and_its_checkpoint) {
  for (const Words& layout : {Words{}, Words{zero + "2"}}) {
    const Scratch s;
    write_tiny(s);
    const Words words =
        with({"train", "tiny_run.toml", "--training.steps=300", "--lr_scheduler.total_steps=1000",
              "--metrics.log_freq=1000", "--checkpoint.export_interval=100", "--json"},
             layout);
    Running running(s.path(), trireme_command(words));
    ASSERT_TRUE(running.wait_for([&] { return s.has("run/run.json"); }));
    s.write("run/weights", "a file where the folder should be");
    const Outcome outcome = running.wait();
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    EXPECT_TRUE(has(outcome.err, "weights   not exported: ")) << outcome.err;
    const base::Json summary = only_object(outcome.out);
    EXPECT_EQ(summary.at("ok"), false);
    EXPECT_EQ(summary.at("steps"), 300);
    EXPECT_EQ(summary.at("saved_step"), 300);
    EXPECT_TRUE(has(summary.at("error"), "the weights were not exported"));
    EXPECT_EQ(trireme(s, {"ckpt", "verify", "run"}).exit_code, 0);
  }
}

// ---- stops

TEST(RunLife, every_request_to_stop_saves_the_step) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGXCPU}) {
    const Scratch s;
    write_tiny(s);
    Running running(s.path(),
                    trireme_command(with(endless, {"--checkpoint.interval=0", "--json"})));
    ASSERT_TRUE(running.wait_for([&] { return is_training(running); })) << running.err();
    for (int i = 0; i < 3; ++i) running.signal(number);  // launchers deliver it more than once
    const Outcome outcome = running.wait();
    EXPECT_EQ(outcome.exit_code, 75) << number << outcome.err;
    const base::Json summary = only_object(outcome.out);
    const auto step = summary.at("steps").get<int64_t>();
    EXPECT_TRUE(has(outcome.err, fmt::format("stopped   step {} is saved", step))) << outcome.err;
    EXPECT_TRUE(s.has(fmt::format("run/checkpoint/step-{:08}/manifest", step)));
    EXPECT_FALSE(s.has("run/weights/final"));
    const Outcome more = trireme(
        s, with({"train", "tiny_run.toml"},
                {"--resume", "auto", "--validation.enable=false", "--lr_scheduler.total_steps=1000",
                 fmt::format("--training.steps={}", step + 1)}));
    EXPECT_EQ(more.exit_code, 0) << more.err;
    EXPECT_TRUE(has(more.err, fmt::format("resume    step {} of", step))) << more.err;
  }
}

TEST(RunLife, a_log_without_a_reader_does_not_end_the_run) {
  const Scratch s;
  write_tiny(s);
  std::string line = "set -o pipefail;";
  for (const std::string& word :
       trireme_command({"train", "tiny_run.toml", "--training.steps=40", "--metrics.log_freq=1",
                        "--lr_scheduler.warmup_steps=0"})) {
    line += " '" + word + "'";
  }
  Running running(s.path(), {"/bin/bash", "-c", line + " 2>&1 | head -n 3"});
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_EQ(lines_of_kind(s, "train").size(), 40U);
  EXPECT_TRUE(s.has(final_weights));
}

// ---- what a resumed run compares and records

TEST(RunLife, attempts_are_recorded_and_nothing_is_overwritten) {
  const Scratch s;
  write_tiny(s);
  (void)weights_of(s, 4, {"--checkpoint.interval=2"});
  const Outcome outcome = trireme(
      s, train_words(6, {"--resume", "2", "--optimizer.lr=2e-2", "--checkpoint.interval=2"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(has(outcome.err, "resume    changed: optimizer.lr: was 0.01, is 0.02"))
      << outcome.err;
  EXPECT_FALSE(has(outcome.err, "weights initialised")) << outcome.err;
  EXPECT_TRUE(has(outcome.out, "done: 6 steps (4 in this attempt)")) << outcome.out;
  EXPECT_EQ(base::Json::parse(s.read("run/run-1.json")).at("optimizer").at("lr"), 0.01);
  EXPECT_EQ(base::Json::parse(s.read("run/run.json")).at("optimizer").at("lr"), 0.02);
  const auto resumed = lines_of_kind(s, "resume");
  ASSERT_EQ(resumed.size(), 1U);
  EXPECT_EQ(resumed[0].at("resumed_from"), 2);
  EXPECT_EQ(resumed[0].at("attempt"), 2);
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (const base::Json& line : lines_of_kind(s, "train")) {
    steps.emplace_back(line.at("attempt"), line.at("step"));
    EXPECT_FALSE(line.contains("loss_metrics/global_max_loss"));
  }
  EXPECT_EQ(steps, (std::vector<std::pair<int64_t, int64_t>>{
                       {1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 3}, {2, 4}, {2, 5}, {2, 6}}));
}

TEST(RunLife, a_finished_run_has_nothing_to_do) {
  const Scratch s;
  write_tiny(s);
  const std::string weights = weights_of(s, 4, {});
  const Outcome outcome = trireme(s, train_words(3, {"--resume", "auto", "--json"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(has(outcome.err, "nothing to do: the run is at step 4, training.steps is 3"))
      << outcome.err;
  const base::Json summary = only_object(outcome.out);
  EXPECT_EQ(summary.at("steps"), 4);
  EXPECT_EQ(summary.at("attempt_steps"), 0);
  EXPECT_FALSE(summary.contains("loss"));
  EXPECT_TRUE(s.read(final_weights) == weights);
}

TEST(RunLife, another_batch_size_continues_with_the_next_samples) {
  const Scratch s;
  write_tiny(s);
  (void)weights_of(s, 4, {});
  const Words half = {"--resume", "auto", "--training.global_batch_size=12",
                      "--parallelism.logical_dp=12"};
  const Outcome refused = trireme(s, train_words(6, half));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(has(refused.err, "samples_a_step: was 24, is 12")) << refused.err;
  const Outcome outcome = trireme(s, train_words(6, with(half, {"--allow-batch-change"})));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const base::Json state = trireme_json(s, {"ckpt", "inspect", "run"}).at("state");
  EXPECT_EQ(state.at("samples"), 4 * 24 + 2 * 12);
}

// Writes in place: a truncated file, even for a moment, is another case.
void overwrite(const Scratch& s, const std::string& name, const std::string& bytes) {
  std::fstream file(s.at(name), std::ios::in | std::ios::out | std::ios::binary);
  file.write(bytes.data(), std::ssize(bytes));
}

TEST(RunLife, data_that_changes_under_a_run_ends_it) {
  const Scratch s;
  write_tiny(s);
  Running running(s.path(), trireme_command(with(endless, {"--metrics.log_freq=10"})));
  ASSERT_TRUE(running.wait_for([&] { return is_training(running); })) << running.err();
  const std::string text = s.read("text.txt");
  overwrite(s, "text.txt", text);  // the same again
  const size_t lines = s.read("run/metrics.jsonl").size();
  ASSERT_TRUE(running.wait_for([&] { return s.read("run/metrics.jsonl").size() > 2 * lines; }));
  std::string other = text;
  std::reverse(other.begin(), other.end());
  overwrite(s, "text.txt", other);
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_TRUE(has(outcome.err, "may have used other data")) << outcome.err;
}

// Between two logged steps: a checkpoint has no step with the other data, so that a resume with the
// data put back continues as if nothing had happened.
TEST(RunLife, no_checkpoint_holds_steps_of_data_that_changed) {
  for (const char* ranks : {"1", "2"}) {  // as threads
    const Scratch s;
    write_tiny(s);
    const Words saving = with(
        endless, {"--checkpoint.interval=2", "--checkpoint.keep_latest_k=0",
                  "--training.global_batch_size=2", dp + ranks, "--training.local_batch_size=1"});
    Running running(s.path(), trireme_command(saving));
    ASSERT_TRUE(running.wait_for([&] { return s.has("run/checkpoint/step-00000004"); }))
        << running.err();
    const std::string text = s.read("text.txt");
    overwrite(s, "text.txt", std::string(text.rbegin(), text.rend()));
    const Outcome outcome = running.wait();
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    EXPECT_TRUE(has(outcome.err, "checkpoints hold none of them. Put the data back"))
        << outcome.err;
    overwrite(s, "text.txt", text);
    const int64_t newest = trireme_json(s, {"ckpt", "inspect", "run"}).at("step");
    const std::string steps = fmt::format("--training.steps={}", newest);
    ASSERT_EQ(
        trireme(s, with(saving, {steps, "--job.dump_folder=quiet", "--checkpoint.keep_latest_k=1"}))
            .exit_code,
        0);
    const Outcome difference = trireme(s, {"ckpt", "diff", "run", "quiet"});
    EXPECT_EQ(difference.exit_code, 0) << ranks << difference.out << difference.err;
  }
}

// ---- one writer

TEST(RunLife, a_second_writer_is_refused_and_can_take_over) {
  const Scratch s;
  write_tiny(s);
  Running first(s.path(), trireme_command(with(endless, {"--checkpoint.interval_seconds=0.05"})));
  ASSERT_TRUE(first.wait_for([&] { return s.has("run/checkpoint") && is_training(first); }));
  const auto has_checkpoint = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(s.at("run/checkpoint"))) {
      if (entry.path().filename().string().find('.') == std::string::npos) return true;
    }
    return false;
  };
  ASSERT_TRUE(first.wait_for(has_checkpoint));
  first.signal(SIGSTOP);
  const Words resume = with(endless, {"--resume", "auto"});
  for (const Words& words : {resume, with(endless, {"--overwrite"})}) {
    const Outcome refused = trireme(s, words);
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_TRUE(has(refused.err, "is being written by process ")) << refused.err;
    EXPECT_TRUE(has(refused.err, "--take-over")) << refused.err;
  }
  Running second(s.path(), trireme_command(with(resume, {"--take-over"})));
  ASSERT_TRUE(second.wait_for([&] { return is_training(second); })) << second.err();
  first.signal(SIGCONT);
  const Outcome fenced = first.wait();
  EXPECT_EQ(fenced.exit_code, 93) << fenced.err;
  EXPECT_TRUE(has(fenced.err, "was fenced")) << fenced.err;
  second.signal(SIGTERM);
  EXPECT_EQ(second.wait().exit_code, 75);
  EXPECT_EQ(trireme(s, {"ckpt", "verify", "run"}).exit_code, 0);
}

// ---- the guard

TEST(RunLife, a_run_that_skipped_nearly_everything_is_not_ok) {
  const Scratch s;
  write_tiny(s);
  const Outcome outcome =
      trireme(s, train_words(30, {"--optimizer.lr=1000", "--training.clip=none",
                                  "--metrics.log_freq=1", "--lr_scheduler.warmup_steps=0",
                                  "--lr_scheduler.decay_type=constant", "--json"}));
  EXPECT_EQ(outcome.exit_code, 93) << outcome.err;
  EXPECT_TRUE(has(outcome.err, "guard     step ")) << outcome.err;
  EXPECT_TRUE(has(outcome.err, "skipped: the gradient norm is not finite")) << outcome.err;
  const base::Json summary = only_object(outcome.out);
  EXPECT_EQ(summary.at("ok"), false);
  EXPECT_TRUE(has(summary.at("error"), "this run has not trained"));
  // Its record says so, and so does every reader, also beside a folder that cannot be read.
  const std::string events = s.read("run/events.jsonl");
  const size_t last = events.rfind('\n', events.size() - 2) + 1;
  EXPECT_EQ(base::Json::parse(events.substr(last)).at("data").at("reason"), "diverged") << events;
  std::filesystem::create_directories(s.at("bad/run.json"));
  const base::Json runs = only_object(trireme(s, {"runs", "run", "bad", "--json"}).out).at("runs");
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].at("lamp"), "bad");
  EXPECT_TRUE(has(runs[0].at("sentence"), "this run has not trained")) << runs[0];
  const Outcome diagnosis = trireme(s, {"diagnose", "run"});
  EXPECT_TRUE(has(diagnosis.out, "ended, step 30 of 30: diverged since step ")) << diagnosis.out;
  EXPECT_TRUE(has(diagnosis.out, "skipped_steps")) << diagnosis.out;
}

}  // namespace
}  // namespace trireme::tests
