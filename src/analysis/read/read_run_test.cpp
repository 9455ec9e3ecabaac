// SPDX-License-Identifier: Apache-2.0
// Folders of runs that are complete, damaged, empty, of older builds, or being written.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "analysis/diagnosis.h"
#include "analysis/ledger.h"
#include "analysis/made_run_test.h"
#include "analysis/read/metric_lines.h"
#include "analysis/run_record.h"
#include "base/error.h"
#include "obs/clock.h"
#include "obs/run_owner.h"
#include "obs/scratch_folder_test.h"

namespace trireme::analysis {
namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

Series loss_of(const obs::ScratchFolder& folder) {
  return read_metrics(folder / "metrics.jsonl", read_tags()).series["loss_metrics/global_avg_loss"];
}

TEST(MetricLinesTest, values_of_steps_become_columns) {
  const obs::ScratchFolder folder;
  write(folder / "metrics.jsonl",
        R"({"kind":"start","attempt":1,"step":0,"time":10.5,"name":"a \"quoted\" name"}
{"kind":"train","attempt":1,"step":1,"time":11,"loss_metrics/global_avg_loss":5.25,"lr":1e-3}
{"kind": "train", "attempt": 1, "step": 2, "time": 12, "other": [1,{"a":"}"}], "grad_norm": "NaN"}
{"kind":"train","attempt":1,"step":3,"time":13,"grad_norm":"-Infinity","skipped":true}
{"kind":"train","attempt":1,"step":4,"time":14,"grad_norm":null}
{"kind":"validation","attempt":1,"step":4,"time":15,"loss_metrics/global_avg_loss":1}
)");
  MetricLines found = read_metrics(folder / "metrics.jsonl", read_tags());
  EXPECT_EQ(found.damaged, 0);
  EXPECT_EQ(found.last_step, 4);
  EXPECT_EQ(found.begin_time, 10.5);
  EXPECT_EQ(found.last_time, 15);
  EXPECT_EQ(found.series["loss_metrics/global_avg_loss"].values, (std::vector<double>{5.25}));
  EXPECT_EQ(found.series["lr"].values, (std::vector<double>{1e-3}));
  EXPECT_EQ(found.series["grad_norm"].steps, (std::vector<int64_t>{2, 3, 4}));
  EXPECT_TRUE(std::isnan(found.series["grad_norm"].values[0]));
  EXPECT_TRUE(std::isinf(found.series["grad_norm"].values[1]));
  EXPECT_EQ(found.series["skipped"].values, (std::vector<double>{1}));
}

TEST(MetricLinesTest, the_last_attempt_of_a_step_is_valid) {
  const obs::ScratchFolder folder;
  std::string text;
  for (const auto& [attempt, first, last] : {std::tuple{1, 1, 8}, {2, 5, 6}}) {
    for (int step = first; step <= last; ++step) {
      text += fmt::format(
          "{{\"kind\":\"train\",\"attempt\":{},\"step\":{},\"time\":1,"
          "\"loss_metrics/global_avg_loss\":{}}}\n",
          attempt, step, 10 * attempt + step);
    }
  }
  write(folder / "metrics.jsonl", text);
  const Series loss = loss_of(folder);
  EXPECT_EQ(loss.steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(loss.values, (std::vector<double>{11, 12, 13, 14, 25, 26}));
  EXPECT_EQ(read_metrics(folder / "metrics.jsonl", read_tags()).last_step, 6);
}

TEST(MetricLinesTest, damaged_and_incomplete_lines_are_left_out) {
  const obs::ScratchFolder folder;
  const std::string good =
      R"({"kind":"train","attempt":1,"step":1,"time":1,"loss_metrics/global_avg_loss":2})";
  write(folder / "metrics.jsonl",
        good + "\n{\"kind\":\"train\",\"step\"\nnonsense\n[1,2]\n{}\n\n{\"kind\":\"train\"}\n" +
            std::string(9000000, 'x') + "\n" + good.substr(0, 40));
  MetricLines found = read_metrics(folder / "metrics.jsonl", read_tags());
  EXPECT_EQ(found.damaged, 6);
  EXPECT_EQ(found.series["loss_metrics/global_avg_loss"].values, (std::vector<double>{2}));
  // Every prefix of a line is left out without a fault.
  for (size_t size = 0; size < good.size(); ++size) {
    write(folder / "metrics.jsonl", good.substr(0, size) + "\n");
    EXPECT_EQ(read_metrics(folder / "metrics.jsonl", read_tags()).series.size(), 0U) << size;
  }
}

TEST(ReadRunTest, a_folder_without_a_run_is_refused) {
  const obs::ScratchFolder folder;
  EXPECT_THROW(read_run(folder.path(), 0), base::IoError);
  EXPECT_THROW(read_run(folder / "gone", 0), base::IoError);
}

TEST(ReadRunTest, missing_files_are_named) {
  const obs::ScratchFolder folder;
  write(folder / "metrics.jsonl", "{\"kind\":\"train\",\"attempt\":1,\"step\":7,\"time\":5}\n");
  const RunRecord run = read_run(folder.path(), 0);
  EXPECT_EQ(run.last_step, 7);
  EXPECT_EQ(run.state, RunState::unknown);
  for (const char* name : {"run.json", "plan.json", "prediction.json", "events.jsonl",
                           "phases.jsonl", "ranks.bin", "owner.json"}) {
    EXPECT_TRUE(std::any_of(run.problems.begin(), run.problems.end(), [&](const std::string& line) {
      return line.starts_with(name);
    })) << name;
  }
}

TEST(ReadRunTest, all_files_of_a_run_are_read) {
  const obs::ScratchFolder folder;
  write(folder / "run.json", R"({"job":{"name":"n","group":"g"},"training":{"steps":40}})");
  write(folder / "plan.json", "{}");
  write(folder / "prediction.json", R"({"seconds":1.5})");
  write(folder / "metrics.jsonl", "{\"kind\":\"train\",\"attempt\":2,\"step\":40,\"time\":5}\n");
  obs::Event event{.time = 9, .step = 40, .attempt = 2, .kind = obs::EventKind::end};
  event.data["reason"] = "done";
  write(folder / "events.jsonl", obs::to_json(event).dump() +
                                     "\n{\"kind\":\"of a newer build\"}\n" +
                                     obs::to_json(event).dump().substr(0, 20));
  write(
      folder / "phases.jsonl",
      R"({"attempt":2,"begin":1,"end":4,"first_step":1,"last_step":9,"seconds":{"useful":2,"startup":1}})"
      "\nnot a span\n");
  const RunRecord made = made_run({.records = 5});
  {
    obs::TableWriter writer(folder / "ranks.bin");
    writer.begin(made.ranks_shape);
    for (const obs::TableRecord& record : made.ranks) writer.add(record);
    obs::TableRecord later = made.ranks.back();
    later.attempt = 2;
    writer.begin(made.ranks_shape);
    writer.add(later);
  }
  const RunRecord run = read_run(folder.path(), 0);
  EXPECT_EQ(run.name, "n");
  EXPECT_EQ(run.group, "g");
  EXPECT_EQ(run.total_steps, 40);
  EXPECT_EQ(run.attempt, 2);
  EXPECT_EQ(run.state, RunState::done);
  EXPECT_EQ(run.events.size(), 1U);
  ASSERT_EQ(run.phases.size(), 1U);
  EXPECT_EQ(run.phases[0].seconds[static_cast<size_t>(obs::Phase::useful)], 2);
  EXPECT_EQ(run.ranks.size(), 1U) << "only those of the last attempt";
  EXPECT_EQ(run.prediction["seconds"], 1.5);
  EXPECT_TRUE(std::any_of(run.problems.begin(), run.problems.end(), [](const std::string& line) {
    return line == "phases.jsonl: 1 line cannot be read";
  }));
}

TEST(ReadRunTest, the_state_follows_from_the_owner_and_its_lease) {
  const obs::ScratchFolder folder;
  write(folder / "run.json", R"({"training":{"steps":40}})");
  write(folder / "metrics.jsonl", "{\"kind\":\"train\",\"attempt\":1,\"step\":7,\"time\":5}\n");
  const double now = obs::wall_seconds();
  {
    const auto owner = obs::RunOwner::hold(folder.path());
    owner->begin("");
    owner->begun();
    EXPECT_EQ(read_run(folder.path(), now).state, RunState::running);
  }
  EXPECT_EQ(read_run(folder.path(), now).state, RunState::stopped);
  base::Json record = base::Json::parse(obs::content_of(folder / "owner.json"));
  record["released"] = false;
  record["process_start"] = 1;
  write(folder / "owner.json", record.dump());
  EXPECT_EQ(read_run(folder.path(), now).state, RunState::died) << "the process is gone";
  record["machine"] = "another";
  write(folder / "owner.json", record.dump());
  EXPECT_EQ(read_run(folder.path(), now).state, RunState::running) << "its lease is new";
  EXPECT_EQ(read_run(folder.path(), now + 100).state, RunState::died) << "its lease is old";
  write(folder / "owner.json", "{");
  EXPECT_EQ(read_run(folder.path(), now).state, RunState::unknown);
}

TEST(ReadRunTest, special_files_are_problems_and_never_waited_for) {
  for (const bool are_pipes : {true, false}) {
    const obs::ScratchFolder folder;
    for (const char* name : {"run.json", "plan.json", "prediction.json", "owner.json",
                             "metrics.jsonl", "events.jsonl", "phases.jsonl", "ranks.bin"}) {
      if (are_pipes) {
        ASSERT_EQ(::mkfifo((folder / name).c_str(), 0600), 0);
      } else {
        std::filesystem::create_directory(folder / name);
      }
    }
    std::filesystem::create_directory(folder / "flight");
    ASSERT_EQ(::mkfifo((folder / "flight/rank0.json").c_str(), 0600), 0);
    const RunRecord run = read_run(folder.path(), 0);
    EXPECT_EQ(run.problems.size(), 8U);
    for (const std::string& problem : run.problems) {
      EXPECT_NE(problem.find("is no regular file"), std::string::npos) << problem;
    }
    EXPECT_TRUE(diagnose(run).findings.empty());
    RunRecord died = run;
    died.state = RunState::died;  // reads flight records
    EXPECT_FALSE(diagnose(died).findings.empty());
    EXPECT_TRUE(read_ledger(folder.path()).attempts.empty());
  }
}

TEST(ReadRunTest, files_without_an_end_are_read_in_part) {
  const obs::ScratchFolder folder;
  write(folder / "metrics.jsonl", "{\"kind\":\"train\",\"attempt\":1,\"step\":7,\"time\":1}\n");
  for (const char* name :
       {"run.json", "owner.json", "metrics.jsonl", "events.jsonl", "phases.jsonl", "ranks.bin"}) {
    std::ofstream(folder / name, std::ios::app).close();
    std::filesystem::resize_file(folder / name, uintmax_t{40} << 30);
  }
  std::filesystem::create_symlink("/dev/zero", folder / "plan.json");
  const RunRecord run = read_run(folder.path(), 0);
  EXPECT_EQ(run.last_step, 7);
  std::string problems;
  for (const std::string& problem : run.problems) problems += problem + "\n";
  for (const char* part : {"run.json has 42949672960 bytes; at most 67108864 are read",
                           "metrics.jsonl is read in part", "events.jsonl is read in part",
                           "phases.jsonl is read in part", "plan.json is no regular file",
                           "owner.json: has 42949672960 bytes"}) {
    EXPECT_NE(problems.find(part), std::string::npos) << part << "\n" << problems;
  }
  EXPECT_TRUE(read_ledger(folder.path()).attempts.empty());
}

TEST(ReadRunTest, a_header_of_ranks_with_other_types_is_a_problem) {
  const obs::ScratchFolder folder;
  write(folder / "run.json", "{}");
  RunRecord made = made_run({.ranks_per_stage = 2});
  made.ranks_shape.about = R"({"nodes":5,"devices":null,"coords":"x"})";
  obs::TableWriter writer(folder / "ranks.bin");
  writer.begin(made.ranks_shape);
  for (const obs::TableRecord& record : made.ranks) writer.add(record);
  const RunRecord run = read_run(folder.path(), 0);
  const auto found =
      std::find(run.problems.begin(), run.problems.end(),
                "ranks.bin: \"coords\" of its header is string instead of a list by rank, and is "
                "not used");
  EXPECT_NE(found, run.problems.end());
  EXPECT_TRUE(diagnose(run).findings.empty());
}

TEST(ReadRunTest, an_end_event_with_any_reason_is_read) {
  const obs::ScratchFolder folder;
  write(folder / "run.json", "{}");
  write(folder / "events.jsonl",
        "{\"time\":1,\"attempt\":1,\"kind\":\"end\",\"data\":{\"reason\":[3]}}\n");
  EXPECT_EQ(read_run(folder.path(), 0).state, RunState::failed);
}

}  // namespace
}  // namespace trireme::analysis
