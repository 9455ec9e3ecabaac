// SPDX-License-Identifier: Apache-2.0
#include "ckpt/memory/copy_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/system/descriptor.h"

namespace trireme::ckpt {
namespace {

base::Descriptor memory() {
  base::Descriptor made(::memfd_create("copies", MFD_CLOEXEC));
  EXPECT_GE(made.value(), 0) << std::strerror(errno);
  return made;
}
CopyShape shape(int64_t bytes = 1'200'000) {
  return {.layout = hash_of("layout"), .bytes = bytes, .rank = 3, .buffers = 2};
}
CopyLabel label(int64_t step) {
  CopyLabel label{.epoch = 1, .step = step};
  label.note[7] = std::byte{42};
  return label;
}
void fill(std::span<std::byte> bytes, uint32_t seed) {
  std::mt19937 random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
}

TEST(CopyMemoryTest, a_sealed_copy_is_found_by_another_process) {
  const base::Descriptor descriptor = memory();
  {
    CopyMemory written(descriptor.value(), shape());
    EXPECT_TRUE(written.copies().empty());
    EXPECT_EQ(written.reserved_bytes(), shape().memory_bytes());
    fill(written.begin(0), 1);
    EXPECT_TRUE(written.copies().empty());
    written.seal(0, label(5));
    fill(written.begin(1), 2);
    written.seal(1, label(6));
    written.mark_held(0);
  }
  const auto found = CopyMemory::existing(descriptor.value(), shape());
  ASSERT_TRUE(found);
  const std::vector<FoundCopy> copies = found->copies();
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(copies[0].label.step, 6);
  EXPECT_FALSE(copies[0].is_held);
  EXPECT_EQ(copies[1].label.step, 5);
  EXPECT_TRUE(copies[1].is_held);
  EXPECT_EQ(copies[1].label.note[7], std::byte{42});
  EXPECT_TRUE(found->verify(0));
  EXPECT_TRUE(found->verify(1));
  const std::vector<FoundCopy> of_any_shape = CopyMemory::copies_in(descriptor.value());
  ASSERT_EQ(of_any_shape.size(), 2U);
  EXPECT_EQ(of_any_shape[0].label.step, 6);
  EXPECT_EQ(of_any_shape[1].buffer, 0);
  EXPECT_EQ(CopyMemory::shape_in(descriptor.value())->layout, shape().layout);
  std::vector<std::byte> expected(static_cast<size_t>(shape().bytes));
  fill(expected, 1);
  EXPECT_TRUE(std::ranges::equal(found->content(0), expected));
}

TEST(CopyMemoryTest, a_copy_that_is_being_written_is_not_found) {
  const base::Descriptor descriptor = memory();
  CopyMemory written(descriptor.value(), shape());
  fill(written.begin(0), 1);
  written.seal(0, label(5));
  fill(written.begin(0), 2);
  EXPECT_TRUE(CopyMemory::existing(descriptor.value(), shape())->copies().empty());
}

TEST(CopyMemoryTest, every_flipped_byte_is_found) {
  const base::Descriptor descriptor = memory();
  CopyMemory written(descriptor.value(), shape(5000));
  fill(written.begin(0), 1);
  written.seal(0, label(5));
  auto* const bytes = static_cast<std::byte*>(
      ::mmap(nullptr, 9096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.value(), 0));
  ASSERT_NE(bytes, MAP_FAILED);
  const auto is_good = [&] { return !written.copies().empty() && written.verify(0); };
  ASSERT_TRUE(is_good());
  size_t header_bytes = 0;  // that count
  for (size_t at = 0; at < 4096; ++at) {
    bytes[at] ^= std::byte{4};
    if (!is_good()) ++header_bytes;
    bytes[at] ^= std::byte{4};
  }
  EXPECT_GT(header_bytes, sizeof(CopyLabel));
  for (size_t at = 4096; at < 4096 + 5000; at += 7) {
    bytes[at] ^= std::byte{4};
    EXPECT_FALSE(is_good()) << at;
    bytes[at] ^= std::byte{4};
  }
  EXPECT_TRUE(is_good());
  ::munmap(bytes, 9096);
}

TEST(CopyMemoryTest, copies_of_another_shape_are_not_used) {
  const base::Descriptor descriptor = memory();
  {
    CopyMemory written(descriptor.value(), shape());
    fill(written.begin(0), 1);
    written.seal(0, label(5));
  }
  CopyShape other = shape();
  other.layout = hash_of("another layout");
  EXPECT_TRUE(CopyMemory::existing(descriptor.value(), other)->copies().empty());
  other = shape();
  other.rank = 2;
  EXPECT_TRUE(CopyMemory::existing(descriptor.value(), other)->copies().empty());
  EXPECT_FALSE(CopyMemory::existing(descriptor.value(), shape(5000)));
  {
    const CopyMemory kept(descriptor.value(), shape());
    EXPECT_EQ(kept.copies().size(), 1U);
  }
  { const CopyMemory emptied(descriptor.value(), other); }
  EXPECT_TRUE(CopyMemory::existing(descriptor.value(), shape())->copies().empty());
  EXPECT_EQ(CopyMemory::shape_in(descriptor.value()), std::nullopt);
  CopyMemory::release(descriptor.value());
  EXPECT_FALSE(CopyMemory::existing(descriptor.value(), shape()));
}

TEST(CopyMemoryTest, a_descriptor_that_cannot_be_mapped_is_reported) {
  EXPECT_THROW(CopyMemory::existing(1 << 20, shape()), base::IoError);
  EXPECT_THROW(CopyMemory(1 << 20, shape()), base::IoError);
}

// ---- the rule: ranks seal at random times, and some copies fail

TEST(CopyRuleTest, one_complete_step_always_exists) {
  constexpr size_t ranks = 3;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const int buffers = 2 + static_cast<int>(seed % 2);
    const bool may_fail = seed % 5 == 0;
    std::vector<CopySteps> all(ranks);
    int64_t copied = 0, newest = CopySteps::empty;
    for (int64_t step = 1; step <= 60; ++step) {
      const CopyRound round = round_of(all);
      EXPECT_GE(round.held.value_or(CopySteps::empty), newest) << "seed " << seed << " " << step;
      newest = round.held.value_or(CopySteps::empty);
      if (may_copy(all, buffers)) {
        ++copied;
        for (CopySteps& own : all) {
          const auto buffer = static_cast<size_t>(free_buffer(own, buffers, round).value());
          EXPECT_TRUE(!round.held || own.sealed[buffer] != *round.held);
          own.sealed[buffer] = CopySteps::empty;
          own.filling[buffer] = step;
        }
      }
      for (CopySteps& own : all) {
        for (size_t buffer = 0; buffer < static_cast<size_t>(buffers); ++buffer) {
          if (own.filling[buffer] == CopySteps::empty || random() % 3 == 0) continue;
          const int64_t filled = std::exchange(own.filling[buffer], CopySteps::empty);
          if (!may_fail || random() % 10 != 0) own.sealed[buffer] = filled;
        }
      }
    }
    EXPECT_GT(copied, 10) << "seed " << seed;
    EXPECT_GT(newest, 40) << "seed " << seed;
  }
}

TEST(CopyRuleTest, a_rank_that_is_slow_makes_all_ranks_skip) {
  std::vector<CopySteps> all(2);
  EXPECT_TRUE(may_copy(all, 2));
  all[0].sealed = {4, 6, CopySteps::empty};
  all[1].sealed = {4, CopySteps::empty, CopySteps::empty};
  all[1].filling[1] = 6;
  EXPECT_EQ(round_of(all).held, 4);
  EXPECT_FALSE(may_copy(all, 2));  // rank 0 must keep step 4, and 6 may become the next one
  EXPECT_TRUE(may_copy(all, 3));
  all[1].sealed[1] = 6;
  all[1].filling[1] = CopySteps::empty;
  EXPECT_EQ(round_of(all).held, 6);
  EXPECT_TRUE(may_copy(all, 2));
  EXPECT_EQ(free_buffer(all[0], 2, round_of(all)), 0);
}

TEST(CopyRuleTest, a_step_that_a_rank_could_not_seal_is_given_up) {
  std::vector<CopySteps> all(2);
  all[0].sealed = {4, 6, CopySteps::empty};
  all[1].sealed = {4, CopySteps::empty, CopySteps::empty};  // of step 6: it failed
  EXPECT_TRUE(may_copy(all, 2));
  EXPECT_EQ(free_buffer(all[0], 2, round_of(all)), 1);
}

}  // namespace
}  // namespace trireme::ckpt
