// SPDX-License-Identifier: Apache-2.0
// One run started in every way that docs/ranks.md lists: the weights are those of one rank. By
// default it is started by mpirun of MPICH and of Open MPI, with TRIREME_FULL=1 in all ways.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>

#include "comm/gloo.h"
#include "tests/stops/stops_rig.h"

namespace trireme::tests {
namespace {

constexpr int64_t table_steps = 20;

struct Way {
  std::string name;
  std::vector<LauncherKind> needs;
  // Commands that run side by side; "@TRAIN" stands for `trireme train` with its words, "@LAUNCH"
  // for `trireme launch`, "@WORDS" for the words of both, @PORT for a free port, @HOST for this
  // host.
  std::vector<std::string> commands;
  std::vector<std::string> log;  // what the log of the first must contain
  bool is_ordinary = false;
};

const std::string torchrun_words = "-r 9:1 -t 9:1 --no_python @TRAIN";
const std::string openmpi_words =
    "/usr/bin/mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none";

std::vector<Way> all_ways() {
  using enum LauncherKind;
  const std::string c10d =
      "/usr/bin/torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_id table "
      "--rdzv_endpoint ";
  return {
      {.name = "launch -n 4",
       .needs = {launch},
       .commands = {"@LAUNCH -n 4 @WORDS"},
       .log = {"rank 0 of 4, local rank 0 of 4 on node 0, from trireme launch"}},
      {.name = "launch 2 x 2",
       .needs = {launch},
       .commands = {"@LAUNCH -n 2 --nnodes 2 --node-rank 0 --rdzv 127.0.0.1:@PORT @WORDS",
                    "@LAUNCH -n 2 --nnodes 2 --node-rank 1 --rdzv 127.0.0.1:@PORT @WORDS"},
       .log = {"rank 0 of 4, local rank 0 of 2 on node 0, from trireme launch"}},
      {.name = "Open MPI",
       .needs = {openmpi},
       .commands = {openmpi_words + " -n 4 @TRAIN"},
       .log = {"rank 0 of 4, local rank 0 of 4 on node 0, from Open MPI"},
       .is_ordinary = true},
      {.name = "MPICH",
       .needs = {mpich},
       .commands = {"/usr/bin/mpirun.mpich -n 4 @TRAIN"},
       .log = {"rank 0 of 4, local rank 0 of 4 on node 0, from MPI (PMI); store at 127.0.0.1:"},
       .is_ordinary = true},
      {.name = "MPICH, two proxies",
       .needs = {mpich},
       .commands =
           {"/usr/bin/mpirun.mpich -launcher fork -hosts @HOST,localhost -ppn 2 -n 4 @TRAIN"},
       .log = {"rank 0 of 4, local rank 0 of 2 on node 0, from MPI (PMI)"}},
      {.name = "MPICH with MASTER_ADDR",
       .needs = {mpich},
       .commands =
           {"/usr/bin/mpirun.mpich -genv MASTER_ADDR 127.0.0.1 -genv MASTER_PORT @PORT -n 4 "
            "@TRAIN"},
       .log = {"store at 127.0.0.1:@PORT"}},
      {.name = "torchrun 4",
       .needs = {torchrun},
       .commands = {"/usr/bin/torchrun --nproc_per_node 4 --master_port @PORT " + torchrun_words},
       .log = {"rank 0 of 4, local rank 0 of 4 on node 0, from torchrun"}},
      {.name = "torchrun 2 x 2, static",
       .needs = {torchrun},
       .commands = {"/usr/bin/torchrun --nnodes 2 --node_rank 0 --nproc_per_node 2 --master_addr "
                    "127.0.0.1 --master_port @PORT " +
                        torchrun_words,
                    "/usr/bin/torchrun --nnodes 2 --node_rank 1 --nproc_per_node 2 --master_addr "
                    "127.0.0.1 --master_port @PORT " +
                        torchrun_words}},
      {.name = "torchrun 2 x 2, c10d",
       .needs = {torchrun},
       .commands = {c10d + "127.0.0.1:@PORT " + torchrun_words,
                    c10d + "127.0.0.1:@PORT " + torchrun_words}},
      {.name = "srun -n 4",
       .needs = {srun},
       .commands = {"/usr/bin/srun -N 1 -n 4 @TRAIN"},
       .log = {"rank 0 of 4, local rank 0 of 4 on node 0, from Slurm"}},
      {.name = "srun -N 2 -n 4, block",
       .needs = {srun},
       .commands = {"/usr/bin/srun -N 2 -n 4 --ntasks-per-node 2 -m block @TRAIN"},
       .log = {"rank 0 of 4, local rank 0 of 2 on node 0, from Slurm"}},
      {.name = "srun -N 2 -n 4, cyclic",
       .needs = {srun},
       .commands = {"/usr/bin/srun -N 2 -n 4 --ntasks-per-node 2 -m cyclic @TRAIN"},
       .log = {"rank 0 of 4, local rank 0 of 2 on node 0, from Slurm"}},
      {.name = "srun 3 + 1",
       .needs = {srun},
       .commands = {"/usr/bin/srun -N 2 -n 4 -m plane=3 @TRAIN"},
       .log = {"rank 0 of 4, local rank 0 of 3 on node 0, from Slurm"}},
      {.name = "srun --mpi=pmi2",
       .needs = {srun},
       .commands = {"/usr/bin/srun --mpi=pmi2 -N 2 -n 4 --ntasks-per-node 2 @TRAIN"},
       .log = {"rank 0 of 4, local rank 0 of 2 on node 0, from Slurm"}},
      {.name = "srun torchrun",
       .needs = {srun, torchrun},
       .commands = {"/usr/bin/srun -N 2 -n 2 --ntasks-per-node 1 " + c10d + "@HOST:@PORT " +
                    torchrun_words},
       .log = {"rank 0 of 4, local rank 0 of 2 on node 0, from torchrun", "using torchrun"}},
      {.name = "srun launch",
       .needs = {srun},
       .commands =
           {"/usr/bin/srun -N 2 -n 2 --ntasks-per-node 1 /bin/sh -c '@LAUNCH -n 2 --nnodes 2 "
            "--node-rank $SLURM_NODEID --rdzv @HOST:@PORT @WORDS'"},
       .log = {"rank 0 of 4, local rank 0 of 2 on node 0, from trireme launch"}},
      {.name = "salloc mpirun of MPICH",
       .needs = {srun, mpich},
       .commands = {"/usr/bin/salloc -N 2 -n 4 --ntasks-per-node 2 /usr/bin/mpirun.mpich -n 4 "
                    "@TRAIN"},
       .log = {"rank 0 of 4, local rank 0 of 2 on node 0, from MPI (PMI)"}},
      {.name = "salloc mpirun of Open MPI",
       .needs = {srun, openmpi},
       .commands = {"/usr/bin/salloc -N 2 -n 4 --ntasks-per-node 2 " + openmpi_words +
                    " -n 4 @TRAIN"},
       .log = {"rank 0 of 4, local rank 0 of 2 on node 0, from Open MPI"}},
  };
}

std::string with_all_replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string this_host() {
  std::array<char, 256> name{};
  EXPECT_EQ(::gethostname(name.data(), name.size() - 1), 0);
  return std::string(name.data()).substr(0, std::string(name.data()).find('.'));
}

class LauncherTable : public testing::Test {
 protected:
  // Returns the command with its placeholders replaced.
  static std::string filled(std::string text, int port) {
    const std::string words =
        fmt::format("stops.toml --training.steps={} --overwrite", table_steps);
    const std::string program = TRIREME_PROGRAM;
    text = with_all_replaced(text, "@TRAIN", program + " train @WORDS");
    text = with_all_replaced(text, "@LAUNCH", program + " launch");
    text = with_all_replaced(text, "@WORDS", words);
    text = with_all_replaced(text, "@PORT", std::to_string(port));
    return with_all_replaced(text, "@HOST", this_host());
  }

  // Returns the hash of the weights; empty if the run failed.
  static std::string run(const Way& way) {
    const Scratch scratch;
    write_stops_run(scratch);
    const int port = free_port_pair();
    std::vector<std::unique_ptr<Running>> jobs;
    for (const std::string& command : way.commands) {
      Words words = {"/usr/bin/env"};
      if (std::count(way.needs.begin(), way.needs.end(), LauncherKind::srun) > 0) {
        words.push_back(slurm_setting());
      }
      const Words rest = words_of(filled(command, port));
      words.insert(words.end(), rest.begin(), rest.end());
      jobs.push_back(
          std::make_unique<Running>(scratch.path(), words, RunOptions{.deadline_seconds = 300}));
    }
    for (const auto& job : jobs) {
      const Outcome outcome = job->wait();
      EXPECT_EQ(outcome.exit_code, exit_done) << way.name << "\n" << outcome.err;
    }
    for (const std::string& expected : way.log) {
      const std::string log = jobs[0]->out() + jobs[0]->err();
      EXPECT_NE(log.find(filled(expected, port)), std::string::npos) << way.name << "\n" << log;
    }
    if (!scratch.has(final_weights)) return "";
    return sha256_of(scratch.read(final_weights));
  }
};

TEST_F(LauncherTable, every_launcher_produces_the_weights_of_one_rank) {
  if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
  const std::string one = sha256_of(quiet_weights(table_steps));
  for (const Way& way : all_ways()) {
    if (!way.is_ordinary && !is_full()) continue;
    std::string problem;
    for (const LauncherKind launcher : way.needs) {
      if (problem.empty()) problem = problem_of(launcher);
    }
    if (!problem.empty()) {
      std::cout << fmt::format("{:<28} skipped: {}\n", way.name, problem);
      continue;
    }
    const std::string weights = run(way);
    EXPECT_EQ(weights, one) << way.name;
    std::cout << fmt::format("{:<28} {}\n", way.name, weights.substr(0, 16)) << std::flush;
  }
}

}  // namespace
}  // namespace trireme::tests
