// SPDX-License-Identifier: Apache-2.0
// Runs that a fatal signal ends: what stderr and the run's record then have.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/cli/resume/resume_rig.h"

namespace trireme::tests {
namespace {

namespace fs = std::filesystem;

// Builds with a sanitizer report faults themselves.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool has_sanitizer = true;
#else
constexpr bool has_sanitizer = false;
#endif

bool has_trained(const Running& running) {
  return running.err().find("step:  1") != std::string::npos;
}

// Returns the id of the thread of this name; 0: there is none.
pid_t thread_named(pid_t process, const std::string& name) {
  std::error_code ended;
  const fs::path tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : fs::directory_iterator(tasks, ended)) {
    std::ifstream in(task.path() / "comm");
    std::string found;
    std::getline(in, found);
    if (found == name) return std::stoi(task.path().filename());
  }
  return 0;
}

TEST(Crash, of_a_thread_rank_names_rank_step_and_op) {
  if (has_sanitizer) GTEST_SKIP() << "a sanitizer reports faults";
  const Scratch s;
  write_tiny(s);
  Running running(s.path(), trireme_command({"train", "tiny_run.toml", "--training.steps=100000000",
                                             "--metrics.log_freq=1000000", dp + "2"}));
  ASSERT_TRUE(running.wait_for([&] { return has_trained(running); })) << running.err();
  const pid_t rank = thread_named(running.process(), "rank 1");
  ASSERT_GT(rank, 0);
  ASSERT_EQ(::syscall(SYS_tgkill, running.process(), rank, SIGSEGV), 0);
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.exit_code, 128 + SIGSEGV) << outcome.err;
  const std::string begin = "error: signal 11 (SIGSEGV, invalid memory access) sent by process " +
                            std::to_string(::getpid()) + " in rank 1, step ";
  EXPECT_NE(outcome.err.find(begin), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(", last op "), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("last op none"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("beside it: rank 0, step "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("  functions: addr2line -Cfpie "), std::string::npos) << outcome.err;
}

// The only event of kind verdict.
base::Json verdict_of(const Scratch& s) {
  base::Json verdict;
  std::istringstream lines(s.read("run/events.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const base::Json event = base::Json::parse(line);
    if (event.at("kind") != "verdict") continue;
    EXPECT_TRUE(verdict.is_null()) << line;
    verdict = event;
  }
  return verdict;
}

TEST(Crash, is_in_the_record_of_the_run) {
  if (has_sanitizer) GTEST_SKIP() << "a sanitizer reports faults";
  const Scratch s;
  write_tiny(s);
  Running running(s.path(), trireme_command({"train", "tiny_run.toml", "--training.steps=100000000",
                                             "--metrics.log_freq=1000000"}));
  ASSERT_TRUE(running.wait_for([&] { return has_trained(running); })) << running.err();
  running.signal(SIGFPE);
  EXPECT_EQ(running.wait().exit_code, 128 + SIGFPE);
  const base::Json verdict = verdict_of(s);
  ASSERT_FALSE(verdict.is_null());
  EXPECT_EQ(verdict.at("attempt"), 1);
  EXPECT_EQ(verdict.at("severity"), "error");
  EXPECT_EQ(verdict.at("data").at("name"), "SIGFPE");
  const std::string sentence = trireme(s, {"diagnose", "run"}).out;
  EXPECT_NE(sentence.find("signal 8 (SIGFPE, arithmetic error)"), std::string::npos) << sentence;
  EXPECT_EQ(sentence.find("without reporting an error"), std::string::npos) << sentence;
}

TEST(Crash, by_data_that_is_cut_off_has_the_file_in_the_record) {
  for (const char* ranks : {"1", "2"}) {  // as threads
    const Scratch s;
    write_tiny(s);
    Running running(s.path(),
                    trireme_command({"train", "tiny_run.toml", "--training.steps=100000000",
                                     "--metrics.log_freq=1000000", dp + ranks}));
    ASSERT_TRUE(running.wait_for([&] { return has_trained(running); })) << running.err();
    fs::resize_file(s.at("text.txt"), 0);
    EXPECT_EQ(running.wait().exit_code, 1);
    const base::Json verdict = verdict_of(s);
    ASSERT_FALSE(verdict.is_null());
    EXPECT_EQ(verdict.at("text").get<std::string>().rfind("text.txt: byte ", 0), 0U) << verdict;
    EXPECT_GE(verdict.at("rank"), 0);
    const std::string sentence = trireme(s, {"diagnose", "run"}).out;
    EXPECT_NE(sentence.find("failed, step "), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("text.txt: byte "), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("put the file back"), std::string::npos) << sentence;
  }
}

}  // namespace
}  // namespace trireme::tests
