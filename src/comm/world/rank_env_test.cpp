// SPDX-License-Identifier: Apache-2.0
#include "comm/world/rank_env.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::comm {
namespace {

using Nodes = std::vector<std::string>;

std::string refusal(const Environment& environment) {
  try {
    detect_rank(environment);
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "";
}

bool mentions(const std::vector<std::string>& texts, const std::string& word) {
  for (const std::string& text : texts) {
    if (text.find(word) != std::string::npos) return true;
  }
  return false;
}

Environment torchrun(const std::string& rank, const std::string& world) {
  return {{"RANK", rank},          {"WORLD_SIZE", world},
          {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "2"},
          {"GROUP_RANK", "1"},     {"MASTER_ADDR", "node1"},
          {"MASTER_PORT", "29500"}};
}

Environment slurm() {
  return {{"SLURM_PROCID", "5"},
          {"SLURM_NTASKS", "10"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_JOB_ID", "4711"},
          {"SLURM_TASKS_PER_NODE", "4(x2),2"},
          {"SLURM_JOB_NODELIST", "gpu[001-003]"}};
}

TEST(RankEnv, an_empty_environment_is_one_rank) {
  const RankInfo info = detect_rank({{"HOME", "x"}});
  EXPECT_EQ(info.world, 1);
  EXPECT_EQ(info.source, RankSource::none);
  EXPECT_TRUE(info.store.empty());
  EXPECT_TRUE(info.warnings.empty());
}

TEST(RankEnv, one_rank_has_a_store_if_its_launcher_watches_it) {
  RankInfo alone;
  alone.store = "127.0.0.1:4000";
  alone.token = "secret";
  const RankInfo info = detect_rank(environment_for(alone));
  EXPECT_EQ(info.world, 1);
  EXPECT_TRUE(info.is_watched);
  EXPECT_EQ(info.store, "127.0.0.1:4000");
  EXPECT_EQ(info.token, "secret");
  EXPECT_FALSE(info.hosts_store);
}

TEST(RankEnv, debug_mode_is_0_or_1) {
  EXPECT_FALSE(detect_rank({}).debug);
  EXPECT_FALSE(detect_rank({{"TRIREME_COMM_DEBUG", "0"}}).debug);
  EXPECT_TRUE(detect_rank({{"TRIREME_COMM_DEBUG", "1"}}).debug);
  EXPECT_EQ(refusal({{"TRIREME_COMM_DEBUG", "yes"}}), "TRIREME_COMM_DEBUG=yes: expected 0 or 1");
}

TEST(RankEnv, threads_are_those_of_openmp) {
  EXPECT_EQ(detect_rank({}).cpu_threads, 0);
  EXPECT_EQ(detect_rank({{"OMP_NUM_THREADS", "3"}}).cpu_threads, 3);
  EXPECT_EQ(detect_rank({{"OMP_NUM_THREADS", "4,2"}}).cpu_threads, 4);
  for (const char* wrong : {"0", "-1", "x", "4x", ",", "99999", "99999999999999999999"}) {
    const RankInfo info = detect_rank({{"OMP_NUM_THREADS", wrong}});
    EXPECT_EQ(info.cpu_threads, 0) << wrong;
    EXPECT_TRUE(mentions(info.warnings, std::string("OMP_NUM_THREADS=") + wrong)) << wrong;
  }
}

TEST(RankEnv, torchrun_is_read) {
  const RankInfo info = detect_rank(torchrun("3", "4"));
  EXPECT_EQ(info.text(),
            "rank 3 of 4, local rank 1 of 2 on node 1, from torchrun; store at "
            "node1:29500");
  EXPECT_FALSE(info.hosts_store);
  Environment zero = torchrun("0", "4");
  zero["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(detect_rank(zero).store, "node1:29501");
  EXPECT_TRUE(detect_rank(zero).hosts_store);
  EXPECT_EQ(detect_rank(zero).more_ports, 3);
  EXPECT_EQ(info.more_ports, 0);
  zero["TORCHELASTIC_RUN_ID"] = "none";
  zero["TORCHELASTIC_ERROR_FILE"] = "/logs/0/error.json";
  EXPECT_EQ(detect_rank(zero).token, "/none//29500");
  EXPECT_EQ(detect_rank(zero).error_file, "/logs/0/error.json");
  zero["TRIREME_STORE"] = "/shared/run7";
  EXPECT_EQ(detect_rank(zero).store, "/shared/run7");
  EXPECT_FALSE(detect_rank(zero).hosts_store);
}

TEST(RankEnv, slurm_is_read) {
  const RankInfo info = detect_rank(slurm());
  EXPECT_EQ(info.nodes, (std::vector<std::string>{"gpu001", "gpu002", "gpu003"}));
  EXPECT_NE(info.text().find("; 3 nodes: gpu001, gpu002, gpu003"), std::string::npos);
  EXPECT_EQ(info.rank, 5);
  EXPECT_EQ(info.world, 10);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_world, 4);
  EXPECT_EQ(info.node, 1);
  EXPECT_EQ(info.store.substr(0, 7), "gpu001:");
  Environment last = slurm();
  last["SLURM_PROCID"] = "9";
  last["SLURM_NODEID"] = "2";
  EXPECT_EQ(detect_rank(last).local_world, 2);
  EXPECT_EQ(detect_rank(last).store, info.store);
  last["SLURM_STEP_ID"] = "1";
  EXPECT_NE(detect_rank(last).store, info.store);
}

TEST(RankEnv, slurm_allocation_without_srun_is_one_process_and_a_warning) {
  Environment batch = slurm();
  batch.erase("SLURM_STEP_ID");
  batch["SLURM_PROCID"] = "0";
  const RankInfo info = detect_rank(batch);
  EXPECT_EQ(info.world, 1);
  EXPECT_TRUE(mentions(info.warnings, "not started by srun"));
}

TEST(RankEnv, open_mpi_is_read) {
  Environment mpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                     {"OMPI_COMM_WORLD_SIZE", "4"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                     {"PMIX_NAMESPACE", "prterun-host-1"}};
  const RankInfo info = detect_rank(mpi);
  EXPECT_EQ(info.source, RankSource::open_mpi);
  EXPECT_EQ(info.local_rank, 2);
  EXPECT_EQ(info.store.substr(0, 10), "127.0.0.1:");
  // Inside an allocation its daemons are a Slurm step on the other nodes.
  Environment allocation = mpi;
  for (const auto& [name, value] : slurm()) allocation[name] = value;
  const std::string store = detect_rank(allocation).store;
  EXPECT_EQ(store.substr(0, 7), "gpu001:");
  allocation["SLURM_STEP_NODELIST"] = "gpu[002-003]";
  allocation["SLURM_STEP_ID"] = "7";
  EXPECT_EQ(detect_rank(allocation).store, store);
  mpi["OMPI_COMM_WORLD_LOCAL_SIZE"] = "3";
  EXPECT_NE(detect_rank(mpi).store_problem.find("TRIREME_STORE=host:port"), std::string::npos);
  EXPECT_TRUE(detect_rank(mpi).store.empty());
  mpi["MASTER_ADDR"] = "::1";
  mpi["MASTER_PORT"] = "5";
  EXPECT_EQ(detect_rank(mpi).store, "[::1]:5");
}

Environment mpich() {
  return {{"PMI_RANK", "2"},        {"PMI_SIZE", "4"},
          {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"},
          {"PMI_FD", "7"},          {"MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "node2"}};
}

TEST(RankEnv, mpich_is_read_and_uses_pmi) {
  Environment mpi = mpich();
  const RankInfo info = detect_rank(mpi);
  EXPECT_EQ(info.text(), "rank 2 of 4, local rank 0 of 2 on node 0, from MPI (PMI)");
  EXPECT_EQ(info.pmi_descriptor, 7);
  EXPECT_EQ(info.host_name, "node2");
  EXPECT_FALSE(info.hosts_store);
  // Inside an allocation of Slurm, too.
  for (const auto& [name, value] : slurm()) mpi[name] = value;
  EXPECT_EQ(detect_rank(mpi).pmi_descriptor, 7);
  // Explicit variables have priority.
  mpi["MASTER_ADDR"] = "node1";
  mpi["MASTER_PORT"] = "5";
  EXPECT_EQ(detect_rank(mpi).store, "node1:5");
  EXPECT_EQ(detect_rank(mpi).pmi_descriptor, -1);
  mpi["PMI_FD"] = "x";
  EXPECT_EQ(detect_rank(mpi).store, "node1:5");
  mpi.erase("MASTER_ADDR");
  EXPECT_EQ(refusal(mpi), "PMI_FD=x in the environment: expected an integer >= 0");
}

TEST(RankEnv, pmi_is_used_only_by_processes_that_mpirun_started) {
  Environment grandchild = mpich();
  for (const auto& [name, value] : torchrun("3", "4")) grandchild[name] = value;
  EXPECT_EQ(detect_rank(grandchild).pmi_descriptor, -1);
  EXPECT_EQ(detect_rank({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"PMI_FD", "7"}}).pmi_descriptor,
            -1);
  EXPECT_EQ(refusal({{"PMI_PORT", "host:99"}, {"PMI_ID", "0"}}),
            "MPI's launcher sets PMI_PORT=host:99 instead of PMI_RANK, PMI_SIZE and PMI_FD: start "
            "mpirun without -pmi-port");
}

TEST(RankEnv, under_srun_slurm_variables_replace_pmi) {
  Environment pmi2 = slurm();
  pmi2["PMI_RANK"] = "5";
  pmi2["PMI_SIZE"] = "10";
  pmi2["PMI_FD"] = "4";
  const RankInfo info = detect_rank(pmi2);
  EXPECT_EQ(info.source, RankSource::slurm);
  EXPECT_EQ(info.text(), detect_rank(slurm()).text());
  EXPECT_EQ(info.pmi_descriptor, -1);
  EXPECT_EQ(info.token, detect_rank(slurm()).token);
  EXPECT_TRUE(info.warnings.empty());
  pmi2["PMI_SIZE"] = "20";  // of another launcher
  EXPECT_EQ(detect_rank(pmi2).source, RankSource::pmi);
  EXPECT_TRUE(mentions(detect_rank(pmi2).warnings, "using MPI (PMI)"));
}

TEST(RankEnv, trireme_launch_is_read_back) {
  RankInfo info{.rank = 3, .world = 4, .local_rank = 1, .local_world = 2, .node = 1};
  info.store = "host:77";
  info.deadline_s = 2.5;
  info.flight_folder = "runs/x/flight";
  info.memory_fd = 9;
  info.peer_memory_fd = 11;
  const RankInfo found = detect_rank(environment_for(info));
  EXPECT_EQ(found.source, RankSource::trireme);
  EXPECT_TRUE(found.is_watched);
  EXPECT_EQ(found.deadline_s, 2.5);
  EXPECT_EQ(found.flight_folder, info.flight_folder);
  EXPECT_EQ(found.memory_fd, 9);
  EXPECT_EQ(found.peer_memory_fd, 11);
  EXPECT_EQ(environment_for(found), environment_for(info));
}

TEST(RankEnv, contradictions_between_launchers_become_warnings) {
  Environment both = slurm();
  for (const auto& [name, value] : torchrun("3", "4")) both[name] = value;
  const RankInfo info = detect_rank(both);
  EXPECT_EQ(info.source, RankSource::torchrun);
  EXPECT_TRUE(mentions(info.warnings,
                       "torchrun sets rank 3 of 4, but Slurm sets rank 5 of 10: using torchrun"));
  both["SLURM_PROCID"] = "12";
  EXPECT_TRUE(mentions(detect_rank(both).warnings, "SLURM_PROCID=12"));
}

TEST(RankEnv, impossible_ranks_are_refused_with_the_values_found) {
  EXPECT_NE(refusal(torchrun("4", "4")).find("RANK=4 and WORLD_SIZE=4"), std::string::npos);
  EXPECT_NE(refusal(torchrun("0", "0")).find("WORLD_SIZE=0"), std::string::npos);
  EXPECT_NE(refusal(torchrun("x", "4")).find("RANK=x"), std::string::npos);
  EXPECT_NE(refusal(torchrun("-1", "4")).find("RANK=-1"), std::string::npos);
  EXPECT_NE(refusal(torchrun("99999999999", "4")).find("RANK="), std::string::npos);
  EXPECT_NE(refusal({{"TRIREME_RANK", "1"}}).find("TRIREME_WORLD is not"), std::string::npos);
  Environment local = torchrun("1", "4");
  local["LOCAL_RANK"] = "2";
  EXPECT_NE(refusal(local).find("local rank 2 of 2"), std::string::npos);
  local["LOCAL_RANK"] = "1";
  local.erase("MASTER_ADDR");
  EXPECT_NE(detect_rank(local).store_problem.find("MASTER_ADDR"), std::string::npos);
  EXPECT_TRUE(mentions(detect_rank({{"RANK", "1"}}).warnings, "RANK is set and WORLD_SIZE is not"));
}

TEST(NodeList, expands_what_slurm_compresses) {
  EXPECT_EQ(expand_node_list("gpu[001-003,007],login1"),
            (Nodes{"gpu001", "gpu002", "gpu003", "gpu007", "login1"}));
  EXPECT_EQ(expand_node_list("n1"), (Nodes{"n1"}));
  EXPECT_EQ(expand_node_list("a,b"), (Nodes{"a", "b"}));
  EXPECT_EQ(expand_node_list("n[9-11]-ib"), (Nodes{"n9-ib", "n10-ib", "n11-ib"}));
  EXPECT_EQ(expand_node_list("r[1-2]n[01,3]"), (Nodes{"r1n01", "r1n3", "r2n01", "r2n3"}));
}

TEST(NodeList, reports_what_is_wrong) {
  for (const char* wrong : {"", "a,", ",a", "a[", "a]", "a[1", "a[]", "a[1-]", "a[3-1]", "a[x]",
                            "a[[1]]", "a[1-999999999]", "a[1-1000000][1-1000000]", "a[1,,2]"}) {
    EXPECT_THROW(expand_node_list(wrong), base::ConfigError) << wrong;
  }
}

}  // namespace
}  // namespace trireme::comm
