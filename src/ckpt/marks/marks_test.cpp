// SPDX-License-Identifier: Apache-2.0
// Lines of marks.jsonl: as text, in a file, and in the hands of processes that are killed.
#include "ckpt/marks/marks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "ckpt/disk/memory_disk.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/small_generation_test.h"
#include "ckpt/marks/mark_file.h"
#include "ckpt/marks/resume_choice.h"

namespace trireme::ckpt {
namespace {

const Marks three = {
    MarkLine{
        .of = {20, 1}, .mark = Mark::good, .detector = "steps", .evidence = "200", .time = 1.5},
    ResumeLine{.epoch = 2, .step = 20, .time = 2},
    MarkLine{
        .of = {40, 2}, .mark = Mark::bad, .detector = "hand", .evidence = "a \"b\"\n", .time = 3}};

std::string lines_text(const Marks& marks) {
  std::string text;
  for (const MarksLine& line : marks) text += to_text(line);
  return text;
}

std::string problem_of(const std::string& text) {
  try {
    (void)parse_marks(text, "marks.jsonl");
    return "";
  } catch (const base::IoError& error) {
    return error.what();
  }
}

TEST(MarksTest, lines_are_read_back) {
  EXPECT_EQ(to_text(three[0]),
            R"({"step":20,"epoch":1,"mark":"good","detector":"steps","evidence":"200","time":1.5})"
            "\n");
  EXPECT_EQ(to_text(three[1]), "{\"epoch\":2,\"resumed_from\":20,\"time\":2.0}\n");
  EXPECT_EQ(parse_marks(lines_text(three), ""), three);
  EXPECT_EQ(parse_marks("", ""), Marks{});
}

TEST(MarksTest, an_incomplete_last_line_is_ignored_wherever_it_ends) {
  const std::string first = to_text(three[0]), second = to_text(three[2]);
  for (size_t cut = 0; cut < second.size(); ++cut) {
    EXPECT_EQ(parse_marks(first + second.substr(0, cut), ""), Marks{three[0]}) << cut;
  }
}

TEST(MarksTest, a_damaged_line_is_named) {
  const std::string good = to_text(three[0]);
  for (const char* damaged :
       {"x", "{}", "[]", "",
        R"({"step":1,"epoch":1,"mark":"fine","detector":"","evidence":"",)"
        R"("time":0})",
        R"({"step":"1","epoch":1,"mark":"bad","detector":"","evidence":"","time":0})"}) {
    const std::string problem = problem_of(good + damaged + "\n" + good);
    EXPECT_EQ(problem.find("marks.jsonl:2: "), 0U) << problem;
    EXPECT_NE(problem.find("trireme ckpt mark"), std::string::npos) << problem;
  }
}

TEST(MarksTest, a_divergence_counts_until_the_run_goes_on) {
  const MarkLine diverged{.of = {30, 1}, .mark = Mark::bad, .detector = divergence_detector};
  const MarkLine alarm{.of = {30, 1}, .mark = Mark::suspect, .detector = divergence_detector};
  const MarkLine by_hand{.of = {10, 1}, .mark = Mark::good, .detector = hand_detector};
  EXPECT_FALSE(ended_in_divergence({}));
  EXPECT_FALSE(ended_in_divergence({alarm}));
  EXPECT_TRUE(ended_in_divergence({diverged}));
  EXPECT_TRUE(ended_in_divergence({ResumeLine{.epoch = 1, .step = 5}, diverged, by_hand}));
  EXPECT_FALSE(ended_in_divergence({diverged, ResumeLine{.epoch = 2, .step = 20}}));
}

// ---- the file

class MarkFileTest : public testing::Test {
 protected:
  MarkFileTest() { std::filesystem::create_directories(root_); }
  ~MarkFileTest() override { std::filesystem::remove_all(root_); }
  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(root_ / marks_name).rdbuf();
    return out.str();
  }

  const std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("trireme-marks-" + std::to_string(::getpid()));
  const std::unique_ptr<Disk> disk_ = posix_disk();
};

TEST_F(MarkFileTest, lines_are_appended_behind_what_a_killed_process_left) {
  EXPECT_EQ(read_marks(*disk_, root_), Marks{});
  add_marks(root_, {three[0]});
  for (const char* rest : {"{\"step\":4", "x", "{}"}) {
    std::ofstream(root_ / marks_name, std::ios::app) << rest;
    EXPECT_EQ(read_marks(*disk_, root_).size(), 1U);
  }
  add_marks(root_, {three[1], three[2]});
  EXPECT_EQ(read_marks(*disk_, root_), three);
  EXPECT_EQ(text(), lines_text(three));
}

TEST_F(MarkFileTest, writers_at_the_same_time_lose_no_line) {
  constexpr int writers = 4, lines = 20;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < writers; ++writer) {
    threads.emplace_back([this, writer] {
      for (int i = 0; i < lines; ++i) add_marks(root_, {MarkLine{.of = {i, writer}}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::ssize(read_marks(*disk_, root_)), writers * lines);
}

TEST_F(MarkFileTest, a_folder_that_does_not_exist_is_named) {
  try {
    add_marks(root_ / "gone", three);
    FAIL() << "written";
  } catch (const base::IoError& error) {
    EXPECT_NE(std::string(error.what()).find("gone/marks.jsonl"), std::string::npos)
        << error.what();
  }
}

TEST(MarkedGenerationsTest, manifests_give_the_epoch_and_damaged_ones_none) {
  MemoryDisk disk;
  const std::filesystem::path root = "/run";
  for (const int64_t step : {10, 20}) save_small(disk, root, step);
  disk.remove_file(root / "step-00000020/manifest");
  const auto all = marked_generations(
      disk, root, {MarkLine{.of = {10, 0}, .mark = Mark::good, .detector = "hand"}});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].id, (GenerationId{20, -1}));
  EXPECT_FALSE(all[0].mark);
  EXPECT_TRUE(all[1].is(Mark::good));
}

// ---- the choice

std::vector<MarkedGeneration> generations(std::vector<std::pair<int64_t, std::string>> all) {
  std::vector<MarkedGeneration> list;
  for (const auto& [step, name] : all) {
    MarkedGeneration one{.id = {step, 1}, .mark = {}};
    if (const auto mark = mark_from(name)) {
      one.mark = MarkLine{.of = one.id, .mark = *mark, .detector = "hand", .evidence = "why"};
    }
    list.push_back(one);
  }
  return list;
}

TEST(ResumeChoiceTest, auto_takes_what_is_not_bad_and_good_what_is_good) {
  const auto all = generations({{50, "bad"}, {40, "suspect"}, {30, ""}, {20, "good"}, {10, ""}});
  const ResumeChoice newest = choose_resume(all, false, WantedMark::not_bad);
  EXPECT_EQ(newest.steps, (std::vector<int64_t>{40, 30, 20, 10}));
  EXPECT_EQ(newest.note, "from the checkpoint of step 40: step 50 is bad (hand: why)");
  const ResumeChoice good = choose_resume(all, false, WantedMark::good);
  EXPECT_EQ(good.steps, (std::vector<int64_t>{20}));
  const ResumeChoice diverged = choose_resume(all, true, WantedMark::not_bad);
  EXPECT_EQ(diverged.steps, (std::vector<int64_t>{20, 40, 30, 10}));
  EXPECT_EQ(diverged.note,
            "the last attempt diverged: from the newest good checkpoint, of step 20");
}

TEST(ResumeChoiceTest, without_a_good_one_a_diverged_run_takes_the_newest_before_its_onset) {
  const auto all = generations({{50, "bad"}, {40, "bad"}, {30, "suspect"}, {20, ""}});
  const ResumeChoice choice = choose_resume(all, true, WantedMark::not_bad);
  EXPECT_EQ(choice.steps, (std::vector<int64_t>{30, 20}));
  EXPECT_EQ(choice.note,
            "the last attempt diverged, and no checkpoint is marked good: from the newest before "
            "the divergence, of step 30");
  EXPECT_TRUE(choose_resume(all, true, WantedMark::good).steps.empty());
}

TEST(ResumeChoiceTest, without_marks_there_is_nothing_to_tell) {
  const auto all = generations({{20, ""}, {10, ""}});
  const ResumeChoice choice = choose_resume(all, false, WantedMark::not_bad);
  EXPECT_EQ(choice.steps, (std::vector<int64_t>{20, 10}));
  EXPECT_EQ(choice.note, "");
  const ResumeChoice none = choose_resume({}, true, WantedMark::not_bad);
  EXPECT_TRUE(none.steps.empty());
  EXPECT_EQ(none.note, "");
  EXPECT_EQ(marks_text(all), "step 20 is not marked; step 10 is not marked");
}

}  // namespace
}  // namespace trireme::ckpt
