// SPDX-License-Identifier: Apache-2.0
#include "base/system/fatal_signals.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/system/line_writer.h"
#include "base/system/mapped_ranges.h"
#include "base/system/rank_activity.h"
#include "base/system/start_thread.h"
#include "base/system/threads.h"
#include "base/text/json.h"

namespace trireme::base {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool reports_itself = true;
#else
constexpr bool reports_itself = false;
#endif

// Not a constant, so that the compiler cannot know what happens.
int* volatile nowhere = nullptr;

[[gnu::noinline]] void planted_crash() { *nowhere = 1; }

// Ends with the stack, long before the largest number.
[[gnu::noinline]] int endless(int depth) {
  std::array<volatile char, 4096> use = {};
  use[static_cast<size_t>(depth) % use.size()] = 1;
  return depth < 0 ? 0 : endless(depth + 1) + use[0];
}

struct Ended {
  int status = 0;
  std::string err;
};

// Runs `body` in a child process with the handlers.
Ended run_child(const std::function<void()>& body) {
  std::array<int, 2> ends = {};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::dup2(ends[1], STDERR_FILENO);
    report_fatal_signals(::_exit);
    const SignalStack stack;
    body();
    ::_exit(99);
  }
  ::close(ends[1]);
  Ended ended;
  std::array<char, 4096> part;
  for (ssize_t count = 0; (count = ::read(ends[0], part.data(), part.size())) > 0;) {
    ended.err.append(part.data(), static_cast<size_t>(count));
  }
  ::close(ends[0]);
  ::waitpid(child, &ended.status, 0);
  return ended;
}

bool was_killed_by(const Ended& ended, int number) {
  return WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == number;
}

bool has(const Ended& ended, const std::string& text) {
  return ended.err.find(text) != std::string::npos;
}

std::string output_of(const std::string& command) {
  std::string text;
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> part;
  while (const size_t count = std::fread(part.data(), 1, part.size(), pipe)) {
    text.append(part.data(), count);
  }
  ::pclose(pipe);
  return text;
}

class FatalSignals : public ::testing::Test {
 protected:
  void SetUp() override {
    if (reports_itself) GTEST_SKIP() << "a sanitizer reports faults";
  }
};

TEST_F(FatalSignals, a_crash_of_a_thread_names_its_rank_step_and_op) {
  const Ended ended = run_child([] {
    const RankActivityScope other(0);
    RankActivity::current().set_step(6);
    start_thread("of a rank", [] {
      const RankActivityScope scope(3);
      RankActivity::current().set_step(57);
      RankActivity::current().set_op("gemm", 256, 64, 128);
      planted_crash();
    }).join();
  });
  EXPECT_TRUE(was_killed_by(ended, SIGSEGV)) << ended.status << ended.err;
  EXPECT_TRUE(has(ended,
                  "error: signal 11 (SIGSEGV, invalid memory access) at address 0x0 in rank 3, "
                  "step 57, last op gemm 256 x 64 x 128, process "))
      << ended.err;
  EXPECT_TRUE(has(ended, "beside it: rank 0, step 6, last op none")) << ended.err;
}

TEST_F(FatalSignals, addr2line_names_the_function_by_the_printed_command) {
  const Ended ended = run_child(planted_crash);
  const std::string label = "  functions: ";
  const size_t at = ended.err.find(label);
  ASSERT_NE(at, std::string::npos) << ended.err;
  const std::string command = ended.err.substr(at + label.size());
  EXPECT_EQ(command.rfind("addr2line ", 0), 0U) << command;
  const std::string functions = output_of(command);
  EXPECT_EQ(functions.substr(0, functions.find('\n'))
                .find("trireme::base::(anonymous namespace)::"
                      "planted_crash()"),
            0U)
      << functions << ended.err;
  EXPECT_NE(functions.find("run_child"), std::string::npos) << functions;
}

TEST_F(FatalSignals, every_fatal_signal_keeps_its_exit_status) {
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    const Ended ended = run_child([number] { std::raise(number); });
    EXPECT_TRUE(was_killed_by(ended, number)) << number << ended.err;
    EXPECT_TRUE(has(ended, "in a thread of no rank, last op none")) << ended.err;
  }
  const Ended aborted = run_child([] { std::abort(); });
  EXPECT_TRUE(was_killed_by(aborted, SIGABRT)) << aborted.err;
  EXPECT_TRUE(has(aborted, "error: signal 6 (SIGABRT, abort) in ")) << aborted.err;
}

TEST_F(FatalSignals, of_threads_that_crash_together_one_reports_all) {
  const Ended ended = run_child([] {
    std::atomic<int> ready = 0;
    const auto crash = [&ready] {
      ++ready;
      while (ready < 4) std::this_thread::yield();
      planted_crash();
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.push_back(start_thread("that crashes", crash));
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_TRUE(was_killed_by(ended, SIGSEGV)) << ended.err;
  const std::string begin = "error: signal ";
  EXPECT_EQ(ended.err.find(begin), ended.err.rfind(begin)) << ended.err;
  EXPECT_TRUE(has(ended, "  functions: addr2line")) << ended.err;
  EXPECT_EQ(ended.err.back(), '\n');
}

TEST_F(FatalSignals, a_stack_that_overflows_is_reported) {
  const Ended ended =
      run_child([] { start_thread("that overflows", [] { ::_exit(endless(0)); }).join(); });
  EXPECT_TRUE(was_killed_by(ended, SIGSEGV)) << ended.err;
  EXPECT_TRUE(has(ended, "error: signal 11 (SIGSEGV")) << ended.err;
}

TEST_F(FatalSignals, workers_of_a_pool_work_for_the_rank_of_the_caller) {
  const Ended ended = run_child([] {
    ThreadPool pool(2);
    const RankActivityScope scope(5);
    RankActivity::current().set_op("muon");
    const std::thread::id caller = std::this_thread::get_id();
    while (true) {
      pool.for_each(64, [&](int64_t /*task*/) {
        if (std::this_thread::get_id() != caller) planted_crash();
      });
    }
  });
  EXPECT_TRUE(has(ended, "in rank 5, last op muon, ")) << ended.err;
}

// A file that exists, and is removed.
class LogFile {
 public:
  LogFile() : name_(::testing::TempDir() + "fatal_signals_" + std::to_string(::getpid())) {
    std::ofstream(name_) << "{}\n";
  }
  ~LogFile() { std::filesystem::remove(name_); }
  const std::string& name() const { return name_; }
  // Returns the object of the second line, which is the last one.
  Json second_line() const {
    std::ifstream in(name_);
    std::string first, second, third;
    std::getline(in, first);
    std::getline(in, second);
    EXPECT_FALSE(std::getline(in, third)) << third;
    return Json::parse(second);
  }

 private:
  std::string name_;
};

TEST_F(FatalSignals, a_line_is_appended_to_the_log) {
  const LogFile file;
  const Ended ended = run_child([&] {
    const RankActivityScope scope(2);
    RankActivity::current().set_step(9);
    RankActivity::current().set_op("all_reduce", 4096);
    { const FatalSignalLog ended_log("/nowhere/else", "{"); }
    const FatalSignalLog log(file.name(), "{\"kind\":\"verdict\",");
    planted_crash();
  });
  const Json line = file.second_line();
  const std::string text =
      "signal 11 (SIGSEGV, invalid memory access) at address 0x0 in rank 2, step 9, last op "
      "all_reduce 4096";
  EXPECT_EQ(line.at("kind"), "verdict");
  EXPECT_EQ(line.at("rank"), 2);
  EXPECT_EQ(line.at("step"), 9);
  EXPECT_EQ(line.at("text"), text);
  EXPECT_GT(line.at("time").get<double>(), 1e9);
  const Json data = {
      {"reason", text}, {"signal", SIGSEGV}, {"name", "SIGSEGV"}, {"op", "all_reduce 4096"}};
  EXPECT_EQ(line.at("data"), data);
}

TEST(LostFile, is_named_in_the_log_and_is_no_signal) {
  const LogFile file;
  const Ended ended = run_child([&] {
    std::FILE* const empty = std::tmpfile();
    void* const memory = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, ::fileno(empty), 0);
    const MappedRange range({static_cast<const std::byte*>(memory), 4096}, "a \"b\".bin");
    const FatalSignalLog log(file.name(), "{");
    ::_exit(*static_cast<const volatile char*>(memory) + 50);
  });
  EXPECT_TRUE(WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == 1) << ended.err;
  EXPECT_EQ(ended.err.rfind("error: a \"b\".bin: byte 0 of 4096 cannot be read any more", 0), 0U)
      << ended.err;
  const Json line = file.second_line();
  EXPECT_EQ(line.at("data").at("exit_code"), 1);
  EXPECT_EQ(line.at("text").get<std::string>().rfind("a \"b\".bin: byte 0 of 4096", 0), 0U);
  EXPECT_FALSE(line.contains("rank"));
}

TEST(LineWriterTest, cuts_text_and_writes_every_number) {
  std::array<char, 64> buffer;
  LineWriter line(buffer);
  line.add_signed(INT64_MIN);
  line.add(" ");
  line.add_number(0);
  line.add(" ");
  line.add_hex(0xdeadbeef01);
  EXPECT_EQ(line.text(), "-9223372036854775808 0 0xdeadbeef01");
  LineWriter small(std::span<char>(buffer).first(4));
  small.add("ab");
  small.add("cde");
  EXPECT_EQ(small.text(), "abcd");
}

}  // namespace
}  // namespace trireme::base
