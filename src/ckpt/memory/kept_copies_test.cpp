// SPDX-License-Identifier: Apache-2.0
#include "ckpt/memory/kept_copies.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/system/descriptor.h"

namespace trireme::ckpt {
namespace {

const std::array<CopyShape, 2> two_shapes = {{
    {.layout = hash_of("a"), .bytes = 5000, .rank = 3, .buffers = 2},
    {.layout = hash_of("b"), .bytes = 70'000, .rank = 7, .buffers = 2},
}};

void keep(KeptCopies& kept, int rank, int buffer, int64_t step) {
  CopyMemory& memory = *kept.of(rank);
  std::ranges::fill(memory.begin(buffer), static_cast<std::byte>(step));
  memory.seal(buffer, {.step = step});
}

TEST(KeptCopiesTest, copies_of_several_ranks_are_found_by_another_process) {
  const base::Descriptor descriptor(::memfd_create("kept", MFD_CLOEXEC));
  EXPECT_FALSE(KeptCopies::existing(descriptor.value()));
  {
    KeptCopies kept(descriptor.value(), two_shapes);
    EXPECT_EQ(CopyMemory::reserved_bytes(descriptor.value()), KeptCopies::memory_bytes(two_shapes));
    keep(kept, 3, 0, 5);
    keep(kept, 7, 1, 6);
    keep(kept, 7, 0, 5);
    EXPECT_EQ(kept.of(4), nullptr);
  }
  auto found = KeptCopies::existing(descriptor.value());
  ASSERT_TRUE(found);
  ASSERT_EQ(found->all().size(), 2U);
  EXPECT_EQ(found->of(3)->shape(), two_shapes[0]);
  ASSERT_EQ(found->of(3)->copies().size(), 1U);
  ASSERT_EQ(found->of(7)->copies().size(), 2U);
  EXPECT_EQ(found->of(7)->copies()[0].label.step, 6);
  EXPECT_TRUE(found->of(7)->verify(1));
  EXPECT_EQ(found->of(7)->content(1)[69'999], std::byte{6});
  // The same shapes find the copies, too; others empty the memory.
  EXPECT_EQ(KeptCopies(descriptor.value(), two_shapes).of(7)->copies().size(), 2U);
  KeptCopies other(descriptor.value(), std::span(two_shapes).last(1));
  EXPECT_TRUE(other.of(7)->copies().empty());
  EXPECT_EQ(other.of(3), nullptr);
}

TEST(KeptCopiesTest, a_damaged_directory_is_not_used) {
  const base::Descriptor descriptor(::memfd_create("kept", MFD_CLOEXEC));
  {
    KeptCopies kept(descriptor.value(), two_shapes);
    keep(kept, 3, 0, 5);
  }
  for (const off_t at : {0, 9, 17, 25, 41, 60, 75}) {
    char byte = 0;
    ASSERT_EQ(::pread(descriptor.value(), &byte, 1, at), 1);
    const char changed = static_cast<char>(byte ^ 4);
    ASSERT_EQ(::pwrite(descriptor.value(), &changed, 1, at), 1);
    EXPECT_FALSE(KeptCopies::existing(descriptor.value())) << at;
    ASSERT_EQ(::pwrite(descriptor.value(), &byte, 1, at), 1);
  }
  EXPECT_TRUE(KeptCopies::existing(descriptor.value()));
}

}  // namespace
}  // namespace trireme::ckpt
