// SPDX-License-Identifier: Apache-2.0
// `trireme train`: the files that it writes, that it is deterministic to the byte, and its reaction
// to signals.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <sstream>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

// The objects of a file of JSON lines.
std::vector<base::Json> lines_of(const Scratch& s, const std::string& file) {
  std::vector<base::Json> objects;
  std::istringstream lines(s.read(file));
  for (std::string line; std::getline(lines, line);) {
    objects.push_back(base::Json::parse(line, nullptr, false));
    EXPECT_TRUE(objects.back().is_object()) << line;
  }
  return objects;
}

// Returns the weights after training with these arguments in a new folder.
std::string weights_after(const std::vector<std::string>& overrides) {
  const Scratch s;
  write_tiny(s);
  std::vector<std::string> args = {"train", "tiny_run.toml"};
  args.insert(args.end(), overrides.begin(), overrides.end());
  const Outcome outcome = trireme(s, args);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return s.has(final_weights) ? s.read(final_weights) : "";
}

TEST(TrainTest, writes_all_files_of_a_run) {
  const Scratch s;
  write_tiny(s);
  const base::Json summary = trireme_json(s, {"train", "tiny_run.toml", "--validation.enable"});
  EXPECT_EQ(summary["steps"], 4);
  EXPECT_EQ(summary["tokens"], 4 * 2 * 16);
  EXPECT_EQ(summary["stopped"], false);
  EXPECT_EQ(summary["run_folder"], "run");
  EXPECT_EQ(summary["weights"], "run/weights/final");
  EXPECT_EQ(summary["memory_predicted_bytes"], summary["memory_measured_bytes"]);
  EXPECT_NEAR(summary["loss"].get<double>(), std::log(256), 1.0);
  EXPECT_NEAR(summary["validation_loss"].get<double>(), std::log(256), 1.0);

  for (const char* name : {"run/run.json", "run/plan.json", "run/weights/final/config.json"}) {
    EXPECT_TRUE(only_object(s.read(name)).is_object()) << name;
  }
  EXPECT_TRUE(s.has(final_weights));
  int event_files = 0;
  for (const auto& entry : s.tree("run/tb")) {
    event_files += entry.first.starts_with("events.out.tfevents.") ? 1 : 0;
  }
  EXPECT_EQ(event_files, 1);

  int losses = 0, validations = 0;
  for (const base::Json& line : lines_of(s, "run/metrics.jsonl")) {
    losses += line.contains("loss_metrics/global_avg_loss") ? 1 : 0;
    validations += line.contains("validation_metrics/loss") ? 1 : 0;
  }
  EXPECT_EQ(losses, 4);
  EXPECT_EQ(validations, 1);
}

TEST(TrainTest, prints_one_line_per_step_and_a_summary) {
  const Scratch s;
  write_tiny(s);
  const Outcome outcome = trireme(s, {"train", "tiny_run.toml", "--curve"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {"step:  4", "loss:", "grad_norm:", "weights initialised from seed 0"}) {
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << "\n" << outcome.err;
  }
  for (const char* part : {"predicted", "measured", "4 steps", "weights in run/weights/final"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
}

TEST(TrainTest, traces_the_requested_steps) {
  const Scratch s;
  write_tiny(s);
  const base::Json summary = trireme_json(s, {"train", "tiny_run.toml", "--trace-steps", "2:3"});
  EXPECT_EQ(summary["trace"], "run/trace_steps_2-3.json");
  const base::Json trace = only_object(s.read("run/trace_steps_2-3.json"));
  EXPECT_EQ(trace["otherData"]["host_waits_inside_steps"], 0);
  int steps = 0;
  for (const base::Json& event : trace["traceEvents"]) {
    steps += event["name"] == "step 2" || event["name"] == "step 3" ? 1 : 0;
  }
  EXPECT_EQ(steps, 6);  // on the streams compute and copy, and on the host
}

TEST(TrainTest, a_trace_changes_no_bit) {
  EXPECT_TRUE(weights_after({}) == weights_after({"--trace-steps", "2:3"}));
}

TEST(TrainTest, run_json_has_the_dtype_that_was_chosen) {
  const Scratch s;
  write_tiny(s);
  const std::vector<std::string> words = {"train", "tiny_run.toml", "--device", "cpu",
                                          "--training.dtype=auto"};
  ASSERT_EQ(trireme(s, words).exit_code, 0);
  const base::Json config = base::Json::parse(s.read("run/run.json"));
  EXPECT_EQ(config.at("training").at("dtype"), "fp32");
}

TEST(TrainTest, run_json_gives_the_same_weights_again) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, {"train", "tiny_run.toml"}).exit_code, 0);
  const std::string first = s.read(final_weights), config = s.read("run/run.json");
  std::filesystem::remove(s.at("tiny.toml"));  // the model's shape is in run.json
  ASSERT_EQ(trireme(s, {"train", "run/run.json", "--overwrite"}).exit_code, 0);
  EXPECT_TRUE(first == s.read(final_weights));
  EXPECT_EQ(config, s.read("run/run.json"));
  const auto lines = lines_of(s, "run/metrics.jsonl");  // of the second run alone
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const base::Json& line) { return line.at("kind") == "train"; }),
            4);
}

TEST(TrainTest, overrides_are_written_with_equals_or_blank) {
  const Scratch s;
  write_tiny(s);
  const base::Json summary =
      trireme_json(s, {"train", "tiny_run.toml", "--training.steps=2", "--job.dump_folder", "else",
                       "--debug.seed", "7", "--training.document_mask"});
  EXPECT_EQ(summary["steps"], 2);
  EXPECT_EQ(summary["run_folder"], "else");
  const base::Json config = only_object(s.read("else/run.json"));
  EXPECT_EQ(config["debug"]["seed"], 7);
  EXPECT_EQ(config["training"]["document_mask"], true);
  EXPECT_FALSE(s.has("run"));
}

TEST(TrainTest, weights_depend_on_the_seed_and_not_on_threads) {
  const std::string weights = weights_after({});
  ASSERT_FALSE(weights.empty());
  EXPECT_TRUE(weights == weights_after({}));
  EXPECT_TRUE(weights == weights_after({"--system.threads=2"}));
  EXPECT_TRUE(weights == weights_after({"--activation_checkpoint.mode=full"}));
  EXPECT_FALSE(weights == weights_after({"--debug.seed=1"}));
}

TEST(TrainTest, saves_on_a_cadence_and_keeps_the_latest) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, {"train", "tiny_run.toml", "--training.steps=7",
                        "--checkpoint.export_interval=2", "--checkpoint.keep_latest_k=2"})
                .exit_code,
            0);
  EXPECT_FALSE(s.has("run/weights/step-00000002"));
  for (const char* name : {"step-00000004", "step-00000006", "final"}) {
    EXPECT_TRUE(s.has(std::string("run/weights/") + name + "/model.safetensors")) << name;
  }
}

TEST(TrainTest, writes_no_weights_if_export_is_off) {
  const Scratch s;
  write_tiny(s);
  const base::Json summary = trireme_json(
      s, {"train", "tiny_run.toml", "--checkpoint.enable=false", "--checkpoint.interval=2"});
  EXPECT_FALSE(s.has("run/checkpoint"));
  EXPECT_EQ(summary["weights"], "");
  EXPECT_FALSE(s.has("run/weights"));
}

TEST(TrainTest, starts_from_exported_weights) {
  const Scratch s;
  write_tiny(s);
  // The learning rate ends at 0, so the last loss is nearly that of the weights; both are means of
  // batches of one narrow source.
  const base::Json first =
      trireme_json(s, {"train", "tiny_run.toml", "--training.steps=120", "--optimizer.lr=0.02",
                       "--training.local_batch_size=8", "--lr_scheduler.min_lr_factor=0"});
  ASSERT_EQ(
      trireme(s, {"train", "tiny_run.toml", "--init-from", "run/weights/final",
                  "--job.dump_folder=second", "--training.local_batch_size=8", "--model.name="})
          .exit_code,
      0);
  const auto lines = lines_of(s, "second/metrics.jsonl");
  ASSERT_GT(lines.size(), 1U);
  EXPECT_EQ(lines[0]["kind"], "start");
  const double last = first["loss"].get<double>();
  EXPECT_LT(last, 3.0);
  EXPECT_NEAR(lines[1]["loss_metrics/global_avg_loss"].get<double>(), last, 0.3);
}

TEST(TrainTest, learns_a_synthetic_source) {
  const Scratch s;
  write_tiny(s);
  const base::Json source = trireme_json(s, {"data", "synth", "--output", "markov", "--vocab", "16",
                                             "--documents", "20", "--tokens", "200"});
  const double entropy = source["entropy_rate_nats"].get<double>();
  EXPECT_GT(entropy, 0);
  EXPECT_LT(entropy, std::log(16));
  const base::Json summary =
      trireme_json(s, {"train", "tiny_run.toml", "--training.dataset_path=markov",
                       "--model.vocab_size=16", "--training.steps=10"});
  EXPECT_EQ(summary["steps"], 10);
  EXPECT_LT(summary["loss"].get<double>(), std::log(16) + 0.2);
}

TEST(TrainTest, terminate_finishes_the_step_and_saves) {
  const Scratch s;
  write_tiny(s);
  Running running(s.path(), trireme_command({"train", "tiny_run.toml", "--training.steps=1000000",
                                             "--metrics.log_freq=1000000", "--json"}));
  ASSERT_TRUE(running.wait_for([&] { return s.has("run/metrics.jsonl"); }));
  running.signal(SIGTERM);
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.exit_code, 75) << outcome.err;
  const base::Json summary = only_object(outcome.out);
  EXPECT_EQ(summary["ok"], false);
  EXPECT_EQ(summary["stopped"], true);
  EXPECT_EQ(summary["saved_step"], summary["steps"]);
  EXPECT_GE(summary["steps"], 1);
  EXPECT_LT(summary["steps"], 1000000);
  const std::string name = fmt::format("run/weights/step-{:08}", summary["steps"].get<int64_t>());
  EXPECT_EQ(summary["weights"], name);
  EXPECT_EQ(lines_of(s, "run/metrics.jsonl").back()["step"], summary["steps"]);
  EXPECT_EQ(trireme(s, {"generate", name, "--tokens", "1"}).exit_code, 0);
}

TEST(TrainTest, user_signal_saves_and_continues) {
  const Scratch s;
  write_tiny(s);
  Running running(s.path(), trireme_command({"train", "tiny_run.toml", "--training.steps=1000000",
                                             "--metrics.log_freq=1000000", "--json"}));
  ASSERT_TRUE(running.wait_for([&] { return s.has("run/metrics.jsonl"); }));
  running.signal(SIGUSR1);
  std::string saved;
  ASSERT_TRUE(running.wait_for([&] {
    if (!s.has("run/weights")) return false;
    for (const auto& entry : std::filesystem::directory_iterator(s.at("run/weights"))) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("step-") && name.find(".tmp") == std::string::npos) saved = name;
    }
    return !saved.empty();
  }));
  EXPECT_TRUE(s.has("run/weights/" + saved + "/model.safetensors"));
  EXPECT_FALSE(s.has("run/weights/final"));
  running.signal(SIGINT);
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.exit_code, 75) << outcome.err;
  EXPECT_GT(only_object(outcome.out)["steps"], std::stoll(saved.substr(5)));
  EXPECT_FALSE(s.has(final_weights));
}

}  // namespace
}  // namespace trireme::tests
