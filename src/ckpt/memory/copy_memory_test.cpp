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

TEST(CopyMemoryTest, a_content_has_the_same_hash_in_parts_in_any_order) {
  const base::Descriptor descriptor = memory();
  CopyMemory written(descriptor.value(), shape(20'500'003));  // several threads
  fill(written.begin(0), 1);
  const Hash whole = written.seal(0, label(5));
  EXPECT_EQ(written.hash(0), whole);
  for (const size_t part : {size_t{704}, size_t{1} << 20, size_t{1'500'000}}) {
    base::ContentSum sum;
    const std::span<const std::byte> content = written.content(0);
    for (size_t left = (content.size() + part - 1) / part; left-- > 0;) {
      const size_t at = left * part;
      sum.add(content.subspan(at, std::min(part, content.size() - at)), static_cast<int64_t>(at));
    }
    EXPECT_EQ(content_hash(sum), whole) << part;
  }
}

TEST(CopyMemoryTest, a_copy_that_lost_a_bit_on_its_way_is_refused) {
  const base::Descriptor descriptor = memory();
  CopyMemory written(descriptor.value(), shape(5000));
  const std::span<std::byte> content = written.begin(0);
  fill(content, 1);
  base::ContentSum sum;  // of the source
  sum.add(content, 0);
  content[4321] ^= std::byte{1};
  written.seal(0, label(5), content_hash(sum));
  EXPECT_EQ(written.copies().size(), 1U);
  EXPECT_FALSE(written.verify(0));
  content[4321] ^= std::byte{1};
  EXPECT_TRUE(written.verify(0));
}

}  // namespace
}  // namespace trireme::ckpt
