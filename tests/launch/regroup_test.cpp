// SPDX-License-Identifier: Apache-2.0
// A rank is killed, and the others form the next epoch of the run with a new process, in the same
// processes: from the memory of a replica, from copies in memory that outlives the processes, or
// from the newest checkpoint.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/system/descriptor.h"
#include "ckpt/memory/copy_memory.h"
#include "comm/failure/verdict.h"
#include "comm/gloo.h"
#include "comm/store/store.h"
#include "comm/store/store_server.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Words = std::vector<std::string>;

constexpr int regroup_ranks = 4, regroup_steps = 40;
constexpr int64_t step_tokens = 4 * 16;

class Regroup : public testing::Test {
 protected:
  void SetUp() override {
    if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
    write_tiny(scratch_);
  }

  Words settings(const std::string& folder) const {
    Words words = {fmt::format("--training.steps={}", regroup_steps),
                   "--training.local_batch_size=1", "--training.global_batch_size=4",
                   "--job.dump_folder=" + folder, "--system.device=cpu"};
    words.insert(words.end(), layout_.begin(), layout_.end());
    return words;
  }
  std::string quiet_weights() {
    Words words = {"train", "tiny_run.toml"};
    for (const std::string& word : settings("quiet")) words.push_back(word);
    const Outcome outcome = trireme(scratch_, words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return scratch_.read("quiet/weights/final/model.safetensors");
  }

  std::unique_ptr<Running> start(int rank, int64_t epoch) {
    Words words = {TRIREME_RANK_PROGRAM,
                   "epochs",
                   fmt::format("--rank={}", rank),
                   fmt::format("--world={}", regroup_ranks),
                   fmt::format("--epoch={}", epoch),
                   fmt::format("--store=127.0.0.1:{}", server_.port())};
    for (const std::string& word : process_options(rank)) words.push_back(word);
    for (const std::string& word : settings("run")) words.push_back(word);
    return std::make_unique<Running>(scratch_.path(), words);
  }
  virtual Words process_options(int /*rank*/) const { return {}; }
  // The run has gone so far that a rank may be killed.
  virtual bool may_kill(int step) const { return has_step(step); }
  virtual void was_killed() {}
  std::unique_ptr<comm::Store> store() const {
    return comm::open_store(
        {.is_folder = false, .host = "127.0.0.1", .folder = "", .port = server_.port()},
        {.deadline_s = 60, .token = "epochs"});
  }
  // Does the file of metrics have the line of a step?
  bool has_step(int step) const {
    return scratch_.has("run/metrics.jsonl") &&
           scratch_.read("run/metrics.jsonl").find(fmt::format("\"step\":{},", step)) !=
               std::string::npos;
  }
  // Kills a rank after the step, and forms the next epoch with a new process in its place.
  // Returns what every process has printed; the processes of the first epoch are the same.
  std::vector<Outcome> run_with_a_kill(int step, int killed) {
    std::vector<std::unique_ptr<Running>> processes;
    for (int rank = 0; rank < regroup_ranks; ++rank) processes.push_back(start(rank, 0));
    EXPECT_TRUE(processes[0]->wait_for([&] { return may_kill(step); })) << processes[0]->err();
    processes[static_cast<size_t>(killed)]->signal(SIGKILL);
    was_killed();
    const auto first_epoch = store();
    first_epoch->enter(0);
    (void)comm::settle_verdict(
        *first_epoch, {.kind = comm::VerdictKind::died, .ranks = {killed}, .text = "killed"});
    const auto all = store();
    EXPECT_TRUE(wait_until(
        [&] { return all->try_get("left/0").value_or("") == std::to_string(regroup_ranks - 1); }));
    processes[static_cast<size_t>(killed)].reset();  // a zombie still holds the run's folder
    processes[static_cast<size_t>(killed)] = start(killed, 1);
    all->set("formed/1", "1");
    std::vector<Outcome> outcomes;
    for (const auto& process : processes) outcomes.push_back(process->wait());
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcomes;
  }
  // The losses of every step, those of repeated ones as well.
  std::map<int64_t, std::set<double>> losses() const {
    std::map<int64_t, std::set<double>> losses;
    std::istringstream lines(scratch_.read("run/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const base::Json metrics = base::Json::parse(line);
      if (!metrics.contains("loss_metrics/global_avg_loss")) continue;
      losses[metrics.at("step").get<int64_t>()].insert(
          metrics.at("loss_metrics/global_avg_loss").get<double>());
    }
    return losses;
  }
  void expect_each_step_once(const Outcome& first) const {
    EXPECT_NE(
        first.out.find(fmt::format("steps {} attempt {} tokens {} from 0 epoch 1", regroup_steps,
                                   regroup_steps, regroup_steps * step_tokens)),
        std::string::npos)
        << first.out;
    const auto found = losses();
    EXPECT_EQ(found.size(), static_cast<size_t>(regroup_steps));
    for (const auto& [step, values] : found) EXPECT_EQ(values.size(), 1U) << "step " << step;
    const base::Json ledger = base::Json::parse(scratch_.read("run/ledger.json"));
    int64_t tokens = 0;
    for (const char* kind : {"trained", "masked", "padding"}) {
      tokens += ledger.at("tokens").at(kind).get<int64_t>();
    }
    EXPECT_EQ(tokens, regroup_steps * step_tokens) << ledger.dump();
  }

  Scratch scratch_;
  comm::StoreServer server_{{.host = "127.0.0.1", .token = "epochs"}};
  Words layout_;
};

TEST_F(Regroup, replicas_continue_from_the_state_in_their_memory) {
  layout_ = {"--parallelism.data_parallel_replicate_degree=4", "--checkpoint.interval=0"};
  const std::string expected = quiet_weights();
  const std::vector<Outcome> outcomes = run_with_a_kill(6, 2);
  EXPECT_NE(outcomes[0].err.find(" from its own live state"), std::string::npos) << outcomes[0].err;
  EXPECT_NE(outcomes[0].err.find("; 0 steps are repeated"), std::string::npos) << outcomes[0].err;
  EXPECT_TRUE(scratch_.read(final_weights) == expected);
  expect_each_step_once(outcomes[0]);
  // The copy in host memory is as large as predicted, on all ranks and on the new one.
  std::set<std::string> kept;
  std::istringstream lines(outcomes[0].out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("kept ")) kept.insert(line);
  }
  ASSERT_EQ(kept.size(), 1U) << outcomes[0].out;
  const Words words = words_of(*kept.begin());
  EXPECT_EQ(words.at(1), words.at(3));
  EXPECT_NE(words.at(1), "0");
}

TEST_F(Regroup, the_first_rank_is_replaced_as_well) {
  layout_ = {"--parallelism.data_parallel_replicate_degree=4", "--checkpoint.interval=0"};
  const std::string expected = quiet_weights();
  const std::vector<Outcome> outcomes = run_with_a_kill(6, 0);
  EXPECT_NE(outcomes[0].err.find(" from the memory of other ranks"), std::string::npos)
      << outcomes[0].err;
  EXPECT_TRUE(scratch_.read(final_weights) == expected);
}

TEST_F(Regroup, shards_without_a_copy_continue_from_the_newest_checkpoint) {
  layout_ = {"--parallelism.data_parallel_shard_degree=4", "--parallelism.zero_stage=1",
             "--checkpoint.interval=4"};
  const std::string expected = quiet_weights();
  const std::vector<Outcome> outcomes = run_with_a_kill(11, 2);
  EXPECT_NE(outcomes[0].err.find(" from the newest checkpoint"), std::string::npos)
      << outcomes[0].err;
  EXPECT_TRUE(scratch_.read(final_weights) == expected);
  expect_each_step_once(outcomes[0]);
}

// ---- copies in memory that outlives the processes, after steps 1, 3, 5, ... unless a test says
// otherwise

bool is_full() { return std::getenv("TRIREME_FULL") != nullptr; }

class RegroupCopies : public Regroup {
 protected:
  static constexpr int pause = 10, newest = 9, older = 7;

  void SetUp() override {
    Regroup::SetUp();
    // Inherited by the processes.
    for (int rank = 0; rank < regroup_ranks; ++rank) {
      memory_.emplace_back(::memfd_create("copies", 0));
      ASSERT_GE(memory_.back().value(), 0);
    }
  }
  Words process_options(int rank) const override {
    std::vector<int> all;
    for (const base::Descriptor& memory : memory_) all.push_back(memory.value());
    const std::string own = fmt::format("--memory={}", all[static_cast<size_t>(rank)]);
    if (!is_paced_) return {own, "--elastic.peer_interval=1"};
    const int interval = is_open_ ? 1 : 2;
    return {own, fmt::format("--copies={}", fmt::join(all, ",")),
            fmt::format("--interval={}", interval), fmt::format("--pause={}", pause),
            fmt::format("--elastic.peer_interval={}", is_open_ ? 0 : interval)};
  }
  // The first rank waits at the end of step 10, and all have sealed their copies of step 9.
  bool may_kill(int step) const override {
    if (!is_paced_) return has_step(step);
    return scratch_.has("paused") && has_step(step) &&
           std::ranges::all_of(memory_, [](const base::Descriptor& memory) {
             const auto copies = ckpt::CopyMemory::copies_in(memory.value());
             return !copies.empty() && copies.front().label.step == newest;
           });
  }
  void was_killed() override {
    for (const auto& [rank, buffer_of_step, offset, bytes] : damage_) {
      const int descriptor = memory_[static_cast<size_t>(rank)].value();
      for (const ckpt::FoundCopy& copy : ckpt::CopyMemory::copies_in(descriptor)) {
        if (copy.label.step != buffer_of_step) continue;
        struct stat file {};
        ASSERT_EQ(::fstat(descriptor, &file), 0);
        const int64_t at = copy.buffer * (file.st_size / 2) + offset;
        ASSERT_EQ(::pwrite(descriptor, bytes.data(), bytes.size(), at), std::ssize(bytes));
      }
    }
    for (const base::Descriptor& memory : memory_) {
      if (plants_) plant(memory.value());
    }
    scratch_.write("go", "");
  }
  // Changes the newest copy of a rank, and seals it again.
  static void plant(int descriptor) {
    const auto shape = ckpt::CopyMemory::shape_in(descriptor);
    ASSERT_TRUE(shape);
    ckpt::CopyMemory memory(descriptor, *shape);
    const ckpt::FoundCopy copy = memory.copies().front();
    const std::span<std::byte> content = memory.begin(copy.buffer);
    const size_t end = std::min<size_t>(4096, content.size() / 2);  // weights of the first layer
    for (size_t at = 0; at + sizeof(float) <= end; at += sizeof(float)) {
      const float weight = 1;
      std::memcpy(content.data() + at, &weight, sizeof weight);
    }
    memory.seal(copy.buffer, copy.label);
  }
  // Kills the rank, and expects that all continue after `from` with the bits of a quiet run.
  std::vector<Outcome> expect_continues(int killed, int from, const std::string& source) {
    const std::string expected = quiet_weights();
    std::vector<Outcome> outcomes = run_with_a_kill(newest, killed);
    const std::string line = fmt::format("epoch 1 continues after step {} from {}; ", from, source);
    EXPECT_NE(outcomes[0].err.find(line), std::string::npos) << outcomes[0].err;
    EXPECT_TRUE(scratch_.read(final_weights) == expected);
    if (killed != 0) expect_each_step_once(outcomes[0]);
    return outcomes;
  }

  std::vector<base::Descriptor> memory_;
  bool is_paced_ = true;  // steps wait for copies
  bool is_open_ = false;  // the interval: it is found by elastic.peer_cost, and is 1
  struct Damage {
    int rank = 0;
    int64_t step = 0;    // of the copy
    int64_t offset = 0;  // in its buffer
    std::string bytes;
  };
  std::vector<Damage> damage_;  // done when a rank was killed
  bool plants_ = false;         // likewise
};

const std::string own_copy = "its own copy in memory";

TEST_F(RegroupCopies, shards_continue_from_copies_in_memory) {
  layout_ = {"--parallelism.data_parallel_shard_degree=4", "--parallelism.zero_stage=1",
             "--checkpoint.interval=4"};
  const std::vector<Outcome> outcomes = expect_continues(2, newest, own_copy);
  // At most as many steps are repeated as lie between two copies.
  EXPECT_TRUE(outcomes[0].err.find("; 1 steps are repeated") != std::string::npos ||
              outcomes[0].err.find("; 2 steps are repeated") != std::string::npos)
      << outcomes[0].err;
  // The memory is as large as predicted, on all ranks.
  int ranks = 0;
  std::istringstream lines(outcomes[0].out);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("copies ")) continue;
    const Words words = words_of(line);
    EXPECT_EQ(words.at(1), words.at(3));
    EXPECT_NE(words.at(1), "0");
    ++ranks;
  }
  EXPECT_EQ(ranks, regroup_ranks) << outcomes[0].out;
}

TEST_F(RegroupCopies, a_damaged_copy_is_refused_and_an_older_one_used) {
  layout_ = {"--parallelism.data_parallel_shard_degree=4", "--parallelism.zero_stage=1",
             "--checkpoint.interval=0"};
  damage_ = {{.rank = 1, .step = newest, .offset = 4096 + 100, .bytes = "x"}};
  const std::vector<Outcome> outcomes = expect_continues(2, older, own_copy);
  EXPECT_NE(outcomes[1].err.find("the copy in memory of step 9 is damaged"), std::string::npos)
      << outcomes[1].err;
}

// Damage that no hash detects: another content, sealed as it is. The repeated step shows it.
TEST_F(RegroupCopies, a_step_that_is_repeated_with_another_loss_is_reported) {
  if (!is_full()) GTEST_SKIP() << "TRIREME_FULL=1 runs it";
  layout_ = {"--parallelism.data_parallel_shard_degree=4", "--parallelism.zero_stage=1",
             "--checkpoint.interval=0"};
  plants_ = true;
  (void)run_with_a_kill(newest, 2);
  std::vector<base::Json> found;
  std::istringstream lines(scratch_.read("run/events.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const base::Json event = base::Json::parse(line);
    if (event.at("kind") == "hardware") found.push_back(event);
  }
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].at("severity"), "error");
  EXPECT_EQ(found[0].at("step"), newest + 1);
  EXPECT_TRUE(found[0].at("text").get<std::string>().starts_with(
      "step 10 was repeated with another loss: "))
      << found[0];
}

// What a process leaves that is killed while it writes: an empty header, and other bytes.
TEST_F(RegroupCopies, copies_that_were_being_written_are_not_used) {
  if (!is_full()) GTEST_SKIP() << "TRIREME_FULL=1 runs it";
  layout_ = {"--parallelism.data_parallel_shard_degree=4", "--parallelism.zero_stage=1",
             "--checkpoint.interval=4"};
  for (const int64_t step : {newest, older}) {
    damage_.push_back({.rank = 2, .step = step, .offset = 0, .bytes = std::string(4096, '\0')});
  }
  (void)expect_continues(2, 8, "the newest checkpoint");
}

TEST_F(RegroupCopies, replicas_keep_no_copies_by_default) {
  if (!is_full()) GTEST_SKIP() << "TRIREME_FULL=1 runs it";
  layout_ = {"--parallelism.data_parallel_replicate_degree=2",
             "--parallelism.data_parallel_shard_degree=2", "--parallelism.zero_stage=1",
             "--checkpoint.interval=0"};
  is_paced_ = false;
  const std::string expected = quiet_weights();
  const std::vector<Outcome> outcomes = run_with_a_kill(6, 2);
  EXPECT_NE(outcomes[0].err.find("every part of the state is on several ranks"), std::string::npos)
      << outcomes[0].err;
  EXPECT_NE(outcomes[0].err.find(" from its own live state"), std::string::npos) << outcomes[0].err;
  EXPECT_TRUE(scratch_.read(final_weights) == expected);
  for (const base::Descriptor& memory : memory_) {
    EXPECT_EQ(ckpt::CopyMemory::reserved_bytes(memory.value()), 0);
  }
}

// Parameters are sharded, too, and masters are split: bf16 and the 16 bits that it lacks.
TEST_F(RegroupCopies, sharded_parameters_and_split_masters) {
  if (!is_full()) GTEST_SKIP() << "TRIREME_FULL=1 runs it";
  layout_ = {"--parallelism.data_parallel_shard_degree=4", "--parallelism.zero_stage=3",
             "--training.dtype=bf16", "--optimizer.master_dtype=u16", "--checkpoint.interval=0"};
  (void)expect_continues(0, newest, own_copy);
}

TEST_F(RegroupCopies, stages_of_a_pipeline) {
  if (!is_full()) GTEST_SKIP() << "TRIREME_FULL=1 runs it";
  layout_ = {"--parallelism.pipeline_parallel_degree=2",
             "--parallelism.data_parallel_shard_degree=2", "--parallelism.zero_stage=1",
             "--checkpoint.interval=0"};
  (void)expect_continues(2, newest, own_copy);
}

// Replicas with Muon trust no live state after an abort, so they keep copies.
TEST_F(RegroupCopies, muon) {
  if (!is_full()) GTEST_SKIP() << "TRIREME_FULL=1 runs it";
  layout_ = {"--parallelism.data_parallel_replicate_degree=4", "--optimizer.name=Muon",
             "--checkpoint.interval=0"};
  (void)expect_continues(1, newest, own_copy);
}

// With an open interval, which any cost allows to be 1, and a third buffer.
TEST_F(RegroupCopies, experts) {
  if (!is_full()) GTEST_SKIP() << "TRIREME_FULL=1 runs it";
  is_open_ = true;
  scratch_.write("tiny.toml", std::string(tiny_model) +
                                  "[moe]\n"
                                  "experts = 4\n"
                                  "experts_per_token = 2\n"
                                  "expert_ffn = 16\n"
                                  "renormalize = true\n");
  layout_ = {"--parallelism.data_parallel_shard_degree=4",
             "--parallelism.zero_stage=1",
             "--parallelism.expert_parallel_degree=2",
             "--checkpoint.interval=0",
             "--checkpoint.export_folder=weights",
             "--moe.row_budget=4",
             "--elastic.peer_cost=1000000",
             "--elastic.peer_buffers=3"};
  (void)expect_continues(2, newest, own_copy);
}

// A rank is killed whenever it happens to be: in a step, in a copy or between them.
class RegroupAnytime : public RegroupCopies, public testing::WithParamInterface<int> {};

TEST_P(RegroupAnytime, the_bits_are_those_of_a_quiet_run) {
  if (!is_full()) GTEST_SKIP() << "TRIREME_FULL=1 runs it";
  layout_ = {"--parallelism.data_parallel_shard_degree=4", "--parallelism.zero_stage=2",
             "--checkpoint.interval=4"};
  is_paced_ = false;
  const std::string expected = quiet_weights();
  const int step = 2 + 3 * GetParam();
  const std::vector<Outcome> outcomes = run_with_a_kill(step, GetParam() % regroup_ranks);
  EXPECT_NE(outcomes[0].err.find("epoch 1 continues after step "), std::string::npos)
      << outcomes[0].err;
  EXPECT_TRUE(scratch_.read(final_weights) == expected);
  EXPECT_EQ(losses().size(), static_cast<size_t>(regroup_steps));
  for (const auto& [at, values] : losses()) EXPECT_EQ(values.size(), 1U) << "step " << at;
}

INSTANTIATE_TEST_SUITE_P(Kills, RegroupAnytime, testing::Range(0, 8));

}  // namespace
}  // namespace trireme::tests
