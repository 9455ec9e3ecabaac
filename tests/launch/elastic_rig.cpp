// SPDX-License-Identifier: Apache-2.0
#include "tests/launch/elastic_rig.h"

#include <fmt/format.h>
#include <signal.h>

#include <map>
#include <set>
#include <sstream>

#include "base/text/json.h"
#include "comm/gloo.h"

namespace trireme::tests {

Words together(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void ElasticTest::SetUp() {
  if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
  write_tiny(scratch_);
}

Words ElasticTest::settings(int steps, const std::string& folder) const {
  return together(
      {"tiny_run.toml", fmt::format("--training.steps={}", steps), "--training.local_batch_size=1",
       "--training.global_batch_size=4", "--parallelism.logical_dp=4",
       "--job.dump_folder=" + folder, "--system.device=cpu"},
      layout_);
}

std::string ElasticTest::quiet_weights(int steps) {
  static std::map<int, std::string> all;
  std::string& weights = all[steps];
  if (!weights.empty()) return weights;
  const Outcome outcome = trireme(scratch_, together({"train"}, settings(steps, "quiet")));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return weights = scratch_.read("quiet/" + weights_file);
}

std::unique_ptr<Running> ElasticTest::launch(int steps, const Words& more) const {
  return std::make_unique<Running>(
      scratch_.path(),
      trireme_command(together(together({"launch", "-n", "4"}, more), settings(steps, "run"))));
}

pid_t ElasticTest::process_of(int rank, int64_t epoch, const std::string& list) const {
  if (!scratch_.has("run/" + list)) return 0;
  const base::Json processes = base::Json::parse(scratch_.read("run/" + list));
  if (processes.at("epoch").get<int64_t>() < epoch) return 0;
  for (const base::Json& one : processes.at("ranks")) {
    if (one.at("rank").get<int>() == rank) return one.at("pid").get<pid_t>();
  }
  return 0;
}

pid_t ElasticTest::launcher_part(const std::string& name, const std::string& list) const {
  if (!scratch_.has("run/" + list)) return 0;
  return base::Json::parse(scratch_.read("run/" + list)).value(name, pid_t{0});
}

bool ElasticTest::has_step(int step) const {
  return scratch_.has("run/metrics.jsonl") &&
         scratch_.read("run/metrics.jsonl").find(fmt::format("\"step\":{},", step)) !=
             std::string::npos;
}

void ElasticTest::disturb(Running& running, int number, int rank, int step, int64_t epoch) {
  ASSERT_TRUE(running.wait_for([&] { return has_step(step) && process_of(rank, epoch) > 0; }))
      << running.err();
  ASSERT_EQ(::kill(process_of(rank, epoch), number), 0);
}

void ElasticTest::expect_each_step_once(int steps) const {
  std::map<int64_t, std::set<double>> losses;
  std::istringstream lines(scratch_.read("run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const base::Json metrics = base::Json::parse(line);
    if (!metrics.contains("loss_metrics/global_avg_loss")) continue;
    losses[metrics.at("step").get<int64_t>()].insert(
        metrics.at("loss_metrics/global_avg_loss").get<double>());
  }
  EXPECT_EQ(losses.size(), static_cast<size_t>(steps));
  for (const auto& [step, values] : losses) EXPECT_EQ(values.size(), 1U) << "step " << step;
}

}  // namespace trireme::tests
