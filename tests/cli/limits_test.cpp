// SPDX-License-Identifier: Apache-2.0
// Files that change or are not regular files, and limits of the system: each case ends with one
// message, not with a crash or a hang.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "tests/cli/resume/resume_rig.h"

namespace trireme::tests {
namespace {

namespace fs = std::filesystem;

Words shell(const std::string& before, const Words& args) {
  std::string line = before + "; exec";
  for (const std::string& word : trireme_command(args)) line += " '" + word + "'";
  return {"/bin/sh", "-c", line};
}

void make_pipe(const Scratch& s, const std::string& name) {
  fs::create_directories(s.at(name).parent_path());
  ASSERT_EQ(::mkfifo(s.at(name).c_str(), 0600), 0) << name;
}

TEST(Limits, data_that_is_cut_off_while_training_is_named) {
  for (const char* ranks : {"1", "2"}) {  // as threads
    const Scratch s;
    write_tiny(s);
    Running running(s.path(),
                    trireme_command({"train", "tiny_run.toml", "--training.steps=100000000",
                                     "--metrics.log_freq=1000000", dp + ranks}));
    ASSERT_TRUE(running.wait_for([&] {
      return s.has("run/metrics.jsonl") && fs::file_size(s.at("run/metrics.jsonl")) > 0;
    })) << running.err();
    fs::resize_file(s.at("text.txt"), 0);
    const Outcome outcome = running.wait();
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    EXPECT_NE(outcome.err.find("error: text.txt: byte "), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("was truncated while it was in use"), std::string::npos)
        << outcome.err;
  }
}

TEST(Limits, a_bus_error_without_a_file_keeps_its_default_action) {
  const Scratch s;
  write_tiny(s);
  Running running(s.path(), trireme_command({"train", "tiny_run.toml", "--training.steps=100000000",
                                             "--metrics.log_freq=1000000"}));
  ASSERT_TRUE(running.wait_for([&] { return s.has("run/metrics.jsonl"); })) << running.err();
  running.signal(SIGBUS);
  EXPECT_EQ(running.wait().exit_code, 128 + SIGBUS);
}

TEST(Limits, pipes_in_a_checkpoint_are_skipped) {
  for (const char* file : {"manifest", "data-00000", "index-00000"}) {
    const Scratch s;
    write_tiny(s);
    ASSERT_EQ(trireme(s, {"train", "tiny_run.toml", "--checkpoint.interval=2"}).exit_code, 0);
    const std::string name = std::string("run/checkpoint/step-00000004/") + file;
    fs::remove(s.at(name));
    make_pipe(s, name);
    const Outcome outcome =
        trireme(s, {"train", "tiny_run.toml", "--checkpoint.interval=2", "--resume", "auto"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("checkpoint of step 4 skipped"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("is not a file"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("resume    step 2"), std::string::npos) << outcome.err;
  }
}

TEST(Limits, pipes_in_the_place_of_files_are_refused) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, {"train", "tiny_run.toml", "--checkpoint.interval=4"}).exit_code, 0);
  make_pipe(s, "pipe");
  fs::copy(s.at("run"), s.at("other"));
  fs::remove(s.at("other/metrics.jsonl"));
  make_pipe(s, "other/metrics.jsonl");
  fs::create_directories(s.at("w"));
  fs::copy_file(s.at("run/weights/final/config.json"), s.at("w/config.json"));
  make_pipe(s, "w/model.safetensors");
  fs::create_directories(s.at("i"));
  fs::copy_file(s.at("run/weights/final/config.json"), s.at("i/config.json"));
  make_pipe(s, "i/model.safetensors.index.json");
  for (const Words& args :
       {Words{"train", "tiny_run.toml", "--model.name=./pipe"},
        Words{"train", "tiny_run.toml", "--training.dataset_path=pipe", "--job.dump_folder=new"},
        Words{"train", "tiny_run.toml", "--job.dump_folder=other", "--resume", "auto"},
        Words{"generate", "w", "--prompt", "x"}, Words{"generate", "i", "--prompt", "x"},
        Words{"ckpt", "reshard", "run", "--into", "new", "--plan", "pipe"}}) {
    const Outcome outcome = trireme(s, args, {.deadline_seconds = 120});
    EXPECT_GT(outcome.exit_code, 0) << args[1];
    const bool is_named = outcome.err.find("pipe") != std::string::npos ||
                          outcome.err.find("model.safetensors") != std::string::npos;
    EXPECT_TRUE(is_named) << args[1] << outcome.err;
  }
}

TEST(Limits, threads_that_cannot_be_started_are_named) {
  rlimit stack{};
  ASSERT_EQ(::getrlimit(RLIMIT_STACK, &stack), 0);
  if (stack.rlim_max != RLIM_INFINITY) GTEST_SKIP() << "the limit of the stack cannot be raised";
  const Scratch s;
  write_tiny(s);
  // Stacks of new threads have the size of this limit, which exceeds the address space.
  const Outcome outcome =
      Running(s.path(), shell("export OPENBLAS_NUM_THREADS=1; ulimit -s 400000000000",
                              {"train", "tiny_run.toml", "--system.threads=4"}))
          .wait();
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("warning: only 1 of 4 threads could be started"), std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("error: the thread of stream 'checkpoint' cannot be started"),
            std::string::npos)
      << outcome.err;
}

// Returns whether this build can run ranks as processes on a CPU.
bool has_processes(const Scratch& s) {
  const base::Json doctor = trireme_json(s, {"doctor"});  // must outlive the loop
  for (const base::Json& ranks : doctor["ranks"]) {
    if (ranks["name"] == "gloo") return ranks["available"] == true;
  }
  return false;
}

TEST(Limits, descriptors_are_counted_before_ranks_start) {
  const Scratch s;
  write_tiny(s);
  if (!has_processes(s)) GTEST_SKIP() << "this build has no Gloo";
  const Outcome outcome =
      Running(s.path(), shell("ulimit -n 60", {"launch", "-n", "16", "tiny_run.toml"})).wait();
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("launching 16 ranks of 16 needs"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("may have 60"), std::string::npos) << outcome.err;
}

TEST(Limits, a_soft_limit_of_descriptors_is_raised) {
  const Scratch s;
  write_tiny(s);
  if (!has_processes(s)) GTEST_SKIP() << "this build has no Gloo";
  const Outcome outcome =
      Running(s.path(), shell("ulimit -Sn 14", {"launch", "-n", "2", "tiny_run.toml", dp + "2"}))
          .wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

// Each degree is legal, but their product is above 2^31.
TEST(Limits, more_ranks_than_threads_are_refused) {
  const Scratch s;
  write_tiny(s);
  s.write("wide.toml",
          "family = \"llama\"\nlayers = 1\nhidden = 65536\nheads = 32768\nffn = 32768\n"
          "vocab = 1048576\nmax_seq = 32\n");
  const Outcome outcome = trireme(
      s, {"train", "tiny_run.toml", "--model.name=wide.toml", "--training.local_batch_size=1",
          "--training.global_batch_size=65536", "--parallelism.logical_dp=65536", dp + "65536",
          "--parallelism.tensor_parallel_degree=32768"});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("multiply to 2147483648 ranks"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace trireme::tests
