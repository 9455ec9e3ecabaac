// SPDX-License-Identifier: Apache-2.0
// Every step has one line in metrics.jsonl and one record in layers.bin, and a run writes its
// prediction before the first step.
#include <gtest/gtest.h>

#include <set>

#include "obs/files/table_file.h"
#include "tests/record/record_rig.h"

namespace trireme::tests {
namespace {

TEST(StepMetrics, every_step_has_a_line_and_logged_steps_have_more) {
  const Scratch scratch;
  write_record_run(scratch);
  ASSERT_EQ(trireme(scratch, {"train", "stops.toml", "--training.steps=23"}).exit_code, exit_done);
  const std::vector<base::Json> lines = train_lines(scratch);
  ASSERT_EQ(lines.size(), 23U);
  int64_t tokens = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const base::Json& line = lines[i];
    const int64_t step = line.at("step").get<int64_t>();
    EXPECT_EQ(step, static_cast<int64_t>(i) + 1);
    for (const char* tag :
         {"loss_metrics/global_avg_loss", "loss_metrics/min", "loss_metrics/median",
          "loss_metrics/max", "grad_norm", "lr", "clip_limit", "skipped", "clipped",
          "tokens/trained", "tokens/masked", "tokens/padding", "tokens"}) {
      EXPECT_TRUE(line.contains(tag)) << tag << " of step " << step;
    }
    // The first step of an attempt does not know the update before it.
    EXPECT_EQ(line.contains("update_norm"), step > 1) << step;
    if (step > 1) {
      EXPECT_GT(line.at("update_norm"), 0) << step;
    }
    EXPECT_LE(line.at("loss_metrics/min"), line.at("loss_metrics/max"));
    tokens += 4 * 16;
    EXPECT_EQ(line.at("tokens"), tokens);
    const bool is_logged = step == 1 || step % 5 == 0 || step == 23;
    EXPECT_EQ(line.contains("throughput(tps)"), is_logged) << step;
  }
  std::set<int64_t> steps;
  obs::TableReader reader(scratch.at("run/layers.bin"));
  reader.poll([&](const obs::TableShape& shape, const obs::TableRecord& record) {
    EXPECT_EQ(shape.rows.front(), "embedding");
    EXPECT_EQ(shape.rows.back(), "head");
    EXPECT_EQ(record.values.size(), shape.rows.size());
    steps.insert(record.step);
  });
  EXPECT_EQ(steps.size(), 23U);
}

// Lines wait for a tenth of a second: those of slow steps are due when the next step ends, which
// may be one that is logged.
TEST(StepMetrics, slow_steps_have_one_line_too) {
  const Scratch scratch;
  write_record_run(scratch);
  ASSERT_EQ(
      trireme(scratch, {"train", "stops.toml", "--training.steps=4", "--metrics.log_freq=2",
                        "--training.local_batch_size=512", "--training.global_batch_size=4096"})
          .exit_code,
      exit_done);
  const std::vector<base::Json> lines = train_lines(scratch);
  ASSERT_EQ(lines.size(), 4U);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("step"), i + 1);
    EXPECT_EQ(lines[i].contains("throughput(tps)"), i == 0 || i % 2 == 1) << i + 1;
    EXPECT_TRUE(lines[i].contains("grad_norm")) << i + 1;
  }
}

TEST(StepMetrics, ranks_write_the_norms_of_one_rank_and_its_losses_to_the_last_digits) {
  std::string first;
  std::vector<double> first_losses;
  for (const char* degree : {"1", "2", "4"}) {
    const Scratch scratch;
    write_record_run(scratch);
    ASSERT_EQ(trireme(scratch, {"train", "stops.toml", "--training.steps=7",
                                std::string("--parallelism.data_parallel_shard_degree=") + degree})
                  .exit_code,
              exit_done);
    std::string norms;
    std::vector<double> losses;
    for (const base::Json& line : train_lines(scratch)) {
      norms += line.at("grad_norm").dump() + "\n";
      losses.push_back(line.at("loss_metrics/global_avg_loss").get<double>());
    }
    if (first.empty()) first = norms;
    if (first_losses.empty()) first_losses = losses;
    EXPECT_EQ(norms, first) << degree << " ranks";
    ASSERT_EQ(losses.size(), first_losses.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      // Sums of losses in fp64 are taken by rank first.
      EXPECT_NEAR(losses[i], first_losses[i], 1e-13 * losses[i]) << degree << " ranks";
    }
  }
}

TEST(Prediction, is_written_with_memory_flops_and_the_reason_for_no_time) {
  const Scratch scratch;
  write_record_run(scratch);
  ASSERT_EQ(trireme(scratch, {"train", "stops.toml", "--training.steps=2",
                              "--activation_checkpoint.mode=full", "--system.price_per_hour=2"})
                .exit_code,
            exit_done);
  const base::Json prediction = base::Json::parse(scratch.read("run/prediction.json"));
  EXPECT_TRUE(prediction.at("seconds").is_null());
  EXPECT_NE(prediction.at("why"), "");
  EXPECT_EQ(prediction.at("price_per_hour"), 2.0);
  EXPECT_EQ(prediction.at("tokens_per_step"), 4 * 16);
  EXPECT_EQ(prediction.at("recompute"), "full");
  const base::Json& memory = prediction.at("memory");
  int64_t sum = 0;
  for (const auto& [name, bytes] : memory.at("items").items()) sum += bytes.get<int64_t>();
  EXPECT_EQ(sum, memory.at("total_bytes"));
  EXPECT_GT(prediction.at("memory_without_recompute_bytes"), memory.at("total_bytes"));
}

TEST(Prediction, of_a_named_machine_has_terms_that_sum_to_the_time) {
  const Scratch scratch;
  write_record_run(scratch);
  const std::string machine = std::string(TRIREME_SOURCE_DIR) + "/machines/h100-500w.toml";
  for (const char* degree : {"1", "2"}) {
    ASSERT_EQ(trireme(scratch, {"train", "stops.toml", "--training.steps=2", "--overwrite",
                                "--system.machine=" + machine, "--training.dtype=bf16",
                                std::string("--parallelism.pipeline_parallel_degree=") + degree})
                  .exit_code,
              exit_done);
    const base::Json prediction = base::Json::parse(scratch.read("run/prediction.json"));
    ASSERT_TRUE(prediction.at("seconds").is_number()) << prediction.dump(2);
    double sum = 0;
    for (const auto& [name, seconds] : prediction.at("terms").items()) sum += seconds.get<double>();
    EXPECT_NEAR(sum, prediction.at("seconds").get<double>(), 1e-9 * sum);
    EXPECT_EQ(prediction.at("stage_seconds").size(), std::stoul(degree));
  }
}

}  // namespace
}  // namespace trireme::tests
