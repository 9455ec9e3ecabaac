// SPDX-License-Identifier: Apache-2.0
// Commit: a generation exists if the sinks of all ranks have sealed theirs, and only then.
#include "train/checkpointing/save/commit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/error.h"
#include "ckpt/disk/memory_disk.h"
#include "ckpt/generation/file_sink.h"
#include "ckpt/generation/generation.h"
#include "ckpt/generation/small_generation_test.h"
#include "comm/threads.h"
#include "device/cpu/cpu_device.h"
#include "kernels/table.h"

namespace trireme::train {
namespace {

const ckpt::Disk::Path root = "/run";

// A call of a sink that fails on one rank.
struct Fault {
  std::string call;
  int rank = 0;
};

// A file of which one call fails.
class FaultySink final : public ckpt::Sink {
 public:
  FaultySink(const ckpt::FileSink::Parts& parts, std::string call)
      : file_(parts, {.queue_depth = 1}), call_(std::move(call)) {}

 private:
  void fail_at(const std::string& call) const {
    if (call == call_) throw base::IoError("planned: " + call);
  }
  void do_begin() override {
    fail_at("begin");
    file_.begin();
  }
  void do_write(std::span<const std::byte> content) override {
    fail_at("write");
    file_.write(content);
  }
  ckpt::Receipt do_seal() override {
    fail_at("seal");
    return file_.seal();
  }

  ckpt::FileSink file_;
  const std::string call_;
};

// Stores the small generation's file of a rank.
ckpt::Receipt store_small(ckpt::Disk& disk, const ckpt::Draft& draft, const Rank& rank,
                          const std::string& fails_at = "") {
  const ckpt::SmallGeneration small{.ranks = rank.ranks()};
  const ckpt::FileLayout layout = plan_file(small.pieces_of(rank.number()));
  ckpt::AlignedBytes memory;
  FaultySink sink({.disk = disk, .folder = draft.folder, .rank = rank.number(), .layout = layout},
                  fails_at);
  sink.begin();
  sink.write(fill_small(draft.step, small, layout, memory));
  return sink.seal();
}

// Calls body(rank, commit) on every rank.
void on_ranks(ckpt::Disk& disk, int ranks, const CommitOptions& options,
              const std::function<void(Rank&, Commit&)>& body) {
  comm::ThreadWorld world(ranks, 60);
  spec::Sizes sizes;
  sizes[spec::Axis::dp] = ranks;
  comm::run_ranks(world, [&](int number) {
    device::CpuDevice device(kernels::cpu_kernels(), {});
    Rank rank(ranks == 1 ? nullptr : world.communicator(number, {.name = "world"}), sizes, device);
    Commit commit(rank, disk, options, ckpt::manifest_of_small(0, {.ranks = ranks}));
    commit.set_writer({.run = rank.is_first() ? "run1" : "", .epoch = rank.is_first() ? 2 : 0});
    body(rank, commit);
  });
}

SaveResult result_of(Commit& commit) {
  while (true) {
    commit.wait();
    if (std::optional<SaveResult> result = commit.poll()) return *std::move(result);
  }
}

SaveResult save(Commit& commit, int64_t step, Commit::Store store) {
  if (std::optional<SaveResult> not_open = commit.open(step)) return *std::move(not_open);
  commit.start({{"step", step}}, std::move(store));
  return result_of(commit);
}

std::vector<std::string> names_in_root(ckpt::Disk& disk) {
  std::vector<std::string> names;
  for (const ckpt::DiskEntry& entry : disk.list(root)) names.push_back(entry.name);
  return names;
}

TEST(CommitTest, what_all_ranks_have_sealed_becomes_a_generation) {
  for (const int ranks : {1, 2, 3}) {
    ckpt::MemoryDisk disk;
    on_ranks(disk, ranks, {.folder = root, .retention = {.latest = 1}},
             [&](const Rank& rank, Commit& commit) {
               for (const int64_t step : {5, 9}) {
                 const SaveResult result = save(commit, step, [&](const ckpt::Draft& draft) {
                   return store_small(disk, draft, rank);
                 });
                 EXPECT_TRUE(result.is_durable) << result.problem;
                 EXPECT_EQ(result.problem, "");
                 if (rank.is_first()) {
                   EXPECT_EQ(std::ssize(result.files), ranks);
                 }
               }
             });
    EXPECT_EQ(names_in_root(disk), (std::vector<std::string>{"step-00000009"}));
    const ckpt::SmallGeneration small{.ranks = ranks};
    const auto generation = ckpt::Generation::open(disk, root / "step-00000009");
    EXPECT_EQ(loaded_small(generation, small), content_of_small(9, small));
    EXPECT_EQ(generation.manifest().writer, (ckpt::Writer{.run = "run1", .epoch = 2}));
    EXPECT_EQ(generation.manifest().state.at("step"), 9);
  }
}

// On every rank in turn, every call of its sink fails.
TEST(CommitTest, a_sink_that_fails_on_one_rank_fails_the_save_on_all_and_no_later_one) {
  for (const int ranks : {1, 2, 3}) {
    for (int bad = 0; bad < ranks; ++bad) {
      for (const std::string call : {"begin", "write", "seal"}) {
        ckpt::MemoryDisk disk;
        on_ranks(disk, ranks, {.folder = root}, [&](const Rank& rank, Commit& commit) {
          const bool is_bad = rank.number() == bad;
          const SaveResult result = save(commit, 5, [&](const ckpt::Draft& draft) {
            return store_small(disk, draft, rank, is_bad ? call : "");
          });
          EXPECT_FALSE(result.is_durable);
          const std::string own = is_bad            ? "planned: " + call
                                  : rank.is_first() ? fmt::format("rank {} could not write", bad)
                                                    : "";
          EXPECT_EQ(result.problem, own) << ranks << " ranks, rank " << rank.number();
          if (rank.is_first()) {
            EXPECT_TRUE(names_in_root(disk).empty()) << "the draft is removed";
          }
          const SaveResult next = save(
              commit, 6, [&](const ckpt::Draft& draft) { return store_small(disk, draft, rank); });
          EXPECT_TRUE(next.is_durable) << next.problem;
        });
        EXPECT_EQ(names_in_root(disk), (std::vector<std::string>{"step-00000006"}));
      }
    }
  }
}

TEST(CommitTest, nothing_is_committed_before_the_last_rank_has_sealed) {
  ckpt::MemoryDisk disk;
  std::atomic<bool> may_store = false;
  on_ranks(disk, 2, {.folder = root}, [&](const Rank& rank, Commit& commit) {
    ASSERT_FALSE(commit.open(5));
    commit.start({{"step", 5}}, [&](const ckpt::Draft& draft) {
      if (!rank.is_first()) may_store.wait(false);
      return store_small(disk, draft, rank);
    });
    for (int round = 0; round < 20; ++round) {
      if (rank.is_first()) commit.wait();
      EXPECT_FALSE(commit.poll());
      EXPECT_TRUE(ckpt::committed_steps(disk, root).empty());
    }
    if (!rank.is_first()) {
      may_store = true;
      may_store.notify_all();
    }
    EXPECT_TRUE(result_of(commit).is_durable);
  });
  EXPECT_EQ(ckpt::committed_steps(disk, root), (std::vector<int64_t>{5}));
}

TEST(CommitTest, a_generation_that_cannot_be_opened_ends_the_save_on_all_ranks) {
  for (const int ranks : {1, 2}) {
    ckpt::MemoryDisk disk;
    std::atomic<int> stored = 0;
    on_ranks(disk, ranks, {.folder = root}, [&](const Rank& rank, Commit& commit) {
      const auto store = [&](const ckpt::Draft& draft) {
        ++stored;
        return store_small(disk, draft, rank);
      };
      EXPECT_TRUE(save(commit, 5, store).is_durable);
      const SaveResult again = save(commit, 5, store);
      EXPECT_FALSE(again.is_durable);
      EXPECT_FALSE(commit.is_active());
      EXPECT_EQ(again.problem.find("step 5 was saved before") != std::string::npos, rank.is_first())
          << again.problem;
    });
    EXPECT_EQ(stored, ranks);
  }
}

// Another process takes the folder over before the generation gets its name.
TEST(CommitTest, a_fenced_commit_stops_all_ranks_and_leaves_the_draft) {
  for (const int ranks : {1, 2}) {
    ckpt::MemoryDisk disk;
    const ckpt::Guard guard = [](const std::function<void()>&) {
      throw base::Fenced("taken over by 7");
    };
    on_ranks(disk, ranks, {.folder = root, .guard = guard}, [&](const Rank& rank, Commit& commit) {
      try {
        (void)save(commit, 5,
                   [&](const ckpt::Draft& draft) { return store_small(disk, draft, rank); });
        ADD_FAILURE() << "rank " << rank.number() << " continued";
      } catch (const base::Fenced& error) {
        EXPECT_EQ(error.what(),
                  std::string(rank.is_first() ? "taken over by 7"
                                              : "another process has taken the run's folder over"));
      }
      EXPECT_FALSE(commit.is_active());
    });
    EXPECT_EQ(names_in_root(disk), (std::vector<std::string>{"step-00000005.tmp-run1-2-0"}));
  }
}

// What the claim throws ends the save before the generation has its name.
TEST(CommitTest, the_first_rank_claims_the_step_before_it_is_visible) {
  for (const int ranks : {1, 2}) {
    ckpt::MemoryDisk disk;
    std::vector<int64_t> claimed;
    const auto claim = [&](int64_t step) {
      EXPECT_TRUE(names_in_root(disk).front().starts_with("step-00000005.tmp"));
      claimed.push_back(step);
      throw base::Fenced("epoch 2 has begun");
    };
    on_ranks(disk, ranks, {.folder = root, .claim = claim}, [&](const Rank& rank, Commit& commit) {
      EXPECT_THROW(
          (void)save(commit, 5,
                     [&](const ckpt::Draft& draft) { return store_small(disk, draft, rank); }),
          base::Fenced);
    });
    EXPECT_EQ(claimed, std::vector<int64_t>{5});
    EXPECT_EQ(names_in_root(disk), (std::vector<std::string>{"step-00000005.tmp-run1-2-0"}));
  }
}

TEST(CommitTest, the_status_of_all_ranks_decides_in_any_order) {
  using enum SavePhase;
  const auto next = [](std::vector<SavePhase> phases) {
    std::vector<SaveStep> found;
    std::ranges::sort(phases);
    do {
      std::vector<SaveStatus> all;
      for (const SavePhase phase : phases) all.push_back({.phase = phase, .receipt = {}});
      found.push_back(next_of(all));
      EXPECT_EQ(found.back(), found.front());
    } while (std::ranges::next_permutation(phases).found);
    return found.front();
  };
  EXPECT_EQ(next({written, written, written}), SaveStep::commit);
  EXPECT_EQ(next({written, writing, written}), SaveStep::wait);
  EXPECT_EQ(next({committing, written, written}), SaveStep::wait);
  EXPECT_EQ(next({durable, written, written}), SaveStep::end);
  // A save ends once no rank writes into the draft any more.
  EXPECT_EQ(next({failed, writing, written}), SaveStep::wait);
  EXPECT_EQ(next({failed, written, written}), SaveStep::end);
  // Fenced ranks wait for none.
  EXPECT_EQ(next({fenced, writing, failed}), SaveStep::stop);
}

}  // namespace
}  // namespace trireme::train
