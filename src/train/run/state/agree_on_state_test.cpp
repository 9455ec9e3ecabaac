// SPDX-License-Identifier: Apache-2.0
// Ranks, as threads, agree on the state that an epoch continues with, where one of them has lost
// its memory with its node.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/system/descriptor.h"
#include "comm/threads.h"
#include "device/cpu/cpu_device.h"
#include "kernels/table.h"
#include "train/run/state/copied_state.h"
#include "train/run/state/epoch_state.h"
#include "train/setup/rank.h"

namespace trireme::train {
namespace {

constexpr int agreeing_ranks = 2, agreed_buffers = 2;

// What a rank was left with.
struct Left {
  KeptState::Point point;
  StateSource source = StateSource::none;
  std::vector<int> fetched;
  float first_value = 0;
  std::vector<std::string> reports;
};

class AgreeOnState : public testing::Test {
 protected:
  // A copy of a rank after a step: all its values are step + rank / 8.
  ckpt::CopyLabel write_copy(int rank, int64_t step, std::span<std::byte> to) const {
    std::ranges::fill(to, std::byte{0});
    const CopyLayout layout = copy_layout(model_, plan_, rank);
    const float value = static_cast<float>(step) + static_cast<float>(rank) / 8;
    for (size_t at = 0; at + sizeof value <= static_cast<size_t>(layout.table);
         at += sizeof value) {
      std::memcpy(to.data() + at, &value, sizeof value);
    }
    ckpt::CopyLabel label;
    label.run = {'r', 'u', 'n'};
    write_note(label, {.step = step, .samples = 4 * step, .tokens = 32 * step}, {}, {});
    return label;
  }
  ckpt::CopyShape shape(int rank) const {
    return shape_of(copy_layout(model_, plan_, rank), rank, agreed_buffers);
  }
  // Rank 0 has its copies of the steps, and keeps those of rank 1, which has none. Fetches of the
  // steps `damaged` fail. Returns by rank what is left.
  std::vector<std::optional<Left>> agree(const std::vector<int64_t>& steps,
                                         const std::set<int64_t>& damaged) {
    const base::Descriptor descriptor(::memfd_create("copies", MFD_CLOEXEC));
    ckpt::CopyMemory memory(descriptor.value(), shape(0));
    std::vector<KeptStore::Kept> kept;
    for (size_t i = 0; i < steps.size(); ++i) {
      const int buffer = static_cast<int>(i);
      memory.seal(buffer, write_copy(0, steps[i], memory.begin(buffer)));
      memory.mark_held(buffer);
      ckpt::FoundCopy found{.buffer = buffer, .is_held = true, .label = {.step = steps[i]}};
      found.label.run = {'r', 'u', 'n'};
      kept.push_back({shape(1), found});
    }
    comm::ThreadWorld world(agreeing_ranks, 60);
    std::vector<std::optional<Left>> left(agreeing_ranks);
    comm::run_ranks(world, [&](int number) {
      device::CpuDevice device(kernels::cpu_kernels(), {});
      Rank rank(world.communicator(number, {.name = "world"}), plan_.mesh, device);
      Left own;
      const CopiesOfRank copies{
          .memory = number == 0 ? &memory : nullptr,
          .report = [&own](const std::string& text) { own.reports.push_back(text); },
          .kept = number == 0 ? kept : std::vector<KeptStore::Kept>{},
          .fetch =
              [&](int keeper, const ckpt::CopyShape& asked, int64_t step) {
                EXPECT_EQ(number, 1);
                EXPECT_EQ(keeper, 0);
                EXPECT_EQ(asked, shape(1));
                if (damaged.contains(step)) throw comm::PeerLost("the copy is damaged");
                const auto bytes = static_cast<size_t>(asked.bytes);
                FetchedCopy fetched{.memory = std::make_unique<std::byte[]>(bytes)};
                const std::span<std::byte> content(fetched.memory.get(), bytes);
                fetched.label = write_copy(1, step, content);
                fetched.content = content;
                return fetched;
              },
          .buffers = agreed_buffers};
      std::optional<KeptState> state;
      agree_on_state(rank, model_, plan_, copies, state);
      if (state) {
        own.point = state->point;
        own.source = state->source;
        own.fetched = state->fetched;
        own.first_value = state->state.parts.at(0).values.at(0);
      }
      if (state || !own.reports.empty()) left[static_cast<size_t>(number)] = own;
      rank.close(comm::End::finish);
    });
    return left;
  }

  const spec::ModelSpec model_ = spec::make_model({.family = spec::Family::llama,
                                                   .layers = 1,
                                                   .hidden = 16,
                                                   .heads = 2,
                                                   .ffn = 32,
                                                   .vocab = 256,
                                                   .max_seq = 8});
  const spec::Plan plan_ = spec::solve_or_throw(
      model_, {.seq_len = 8}, {.dp_shard = agreeing_ranks, .zero_stage = 1}, spec::cpu_backend());
};

TEST_F(AgreeOnState, a_rank_without_memory_fetches_its_copy) {
  const auto left = agree({6, 7}, {});
  for (const auto& of_rank : left) {
    ASSERT_TRUE(of_rank);
    EXPECT_EQ(of_rank->point.step, 7);
    EXPECT_EQ(of_rank->point.tokens, 32 * 7);
    EXPECT_EQ(of_rank->fetched, std::vector<int>{1});
    EXPECT_TRUE(of_rank->reports.empty());
  }
  EXPECT_EQ(left[0]->source, StateSource::memory_copy);
  EXPECT_EQ(left[1]->source, StateSource::kept_copy);
  EXPECT_EQ(left[0]->first_value, 7);
  EXPECT_EQ(left[1]->first_value, 7.125F);
}

TEST_F(AgreeOnState, a_damaged_copy_makes_all_ranks_use_the_next_one) {
  const auto left = agree({6, 7}, {7});
  for (const auto& of_rank : left) {
    ASSERT_TRUE(of_rank);
    EXPECT_EQ(of_rank->point.step, 6);
    EXPECT_EQ(of_rank->fetched, std::vector<int>{1});
  }
  EXPECT_EQ(left[1]->first_value, 6.125F);
  ASSERT_EQ(left[1]->reports.size(), 1U);
  EXPECT_EQ(left[1]->reports[0],
            "the copy of step 7 that rank 0 keeps is not used: the copy is damaged");
}

TEST_F(AgreeOnState, without_a_copy_to_fetch_no_rank_has_a_state) {
  const auto left = agree({6, 7}, {6, 7});
  EXPECT_FALSE(left[0]);
  ASSERT_TRUE(left[1]);
  EXPECT_EQ(left[1]->source, StateSource::none);
  EXPECT_EQ(left[1]->reports.size(), 2U);
}

}  // namespace
}  // namespace trireme::train
