// SPDX-License-Identifier: Apache-2.0
// content_sum: ranges of any size and number, on every table, against the host's sum of a content.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/hash/content_sum.h"
#include "base/shape.h"
#include "device/accelerator.h"
#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::content_sum_test {
namespace {

using base::ContentSum;

// A content whose ranges lie in separate tensors.
struct Content {
  std::vector<ContentRange> ranges;
  std::vector<std::byte> bytes;  // of the whole content, with zeros between ranges
};

// Makes ranges of these sizes, with `gap` bytes more between them than their ends need.
Content make_content(Operands& operands, const std::vector<int64_t>& sizes, int64_t gap = 0) {
  Content content;
  std::mt19937_64 random(sizes.size());
  int64_t offset = 0;
  for (const int64_t size : sizes) {
    const Tensor tensor = operands.result({size}, {.dtype = DType::u8});
    for (int64_t i = 0; i < size; ++i) tensor.data[i] = static_cast<std::byte>(random());
    content.ranges.push_back({.bytes = tensor, .offset = offset});
    content.bytes.resize(static_cast<size_t>(offset + size));
    std::memcpy(content.bytes.data() + offset, tensor.data, static_cast<size_t>(size));
    offset = base::round_up(offset + size, base::content_block_bytes) + gap;
  }
  return content;
}

Tensor total_of(Operands& operands, const ContentSum& before) {
  const Tensor sum =
      operands.result({static_cast<int64_t>(sizeof(ContentSum))}, {.dtype = DType::u8});
  std::memcpy(sum.data, &before, sizeof before);
  return sum;
}

ContentSum run_op(Machine& machine, Operands& operands, const std::vector<ContentRange>& ranges,
                  const ContentSum& before = {}) {
  const Tensor total = total_of(operands, before);
  ops::content_sum(*machine.stream, {.ranges = ranges, .sum = total});
  machine.stream->synchronize();
  ContentSum after;
  std::memcpy(&after, total.data, sizeof after);
  return after;
}

// Zeros between ranges are blocks of the content, too, which the op does not see.
ContentSum expected_sum(const Content& content) {
  ContentSum sum;
  for (const ContentRange& range : content.ranges) {
    sum.add(
        std::span(content.bytes)
            .subspan(static_cast<size_t>(range.offset), static_cast<size_t>(range.bytes.bytes())),
        range.offset);
  }
  return sum;
}

void expect_right_sums(Machine& machine) {
  // A chunk of a GPU's thread block has 64 KiB.
  constexpr int64_t chunk = 65536;
  const std::vector<std::vector<int64_t>> cases = {{},
                                                   {1},
                                                   {15},
                                                   {16},
                                                   {17},
                                                   {4000},
                                                   {chunk},
                                                   {chunk - 1},
                                                   {chunk + 1},
                                                   {3 * chunk},
                                                   {5, 16, 3 * chunk + 7, 1, 2 * chunk, 33},
                                                   {40 * chunk + 20}};
  for (const std::vector<int64_t>& sizes : cases) {
    for (const int64_t gap : {0, 48}) {
      Operands operands(1, machine);
      const Content content = make_content(operands, sizes, gap);
      EXPECT_EQ(run_op(machine, operands, content.ranges), expected_sum(content))
          << fmt::format("{} ranges, the first of {} bytes, gap {}", sizes.size(),
                         sizes.empty() ? 0 : sizes[0], gap);
      if (gap > 0) continue;
      ContentSum whole;
      whole.add(content.bytes, 0);
      EXPECT_EQ(expected_sum(content), whole);
    }
  }
}

TEST(ContentSumOpTest, is_the_sum_of_the_ranges) { for_each_machine(expect_right_sums); }

// More than one launch of a GPU, which takes 64.
TEST(ContentSumOpTest, takes_hundreds_of_ranges) {
  for_each_machine([](Machine& machine) {
    for (const int count : {63, 64, 65, 300}) {
      std::vector<int64_t> sizes;
      for (int i = 0; i < count; ++i) sizes.push_back(1 + (i * 7919) % 5000);
      Operands operands(1, machine);
      const Content content = make_content(operands, sizes);
      EXPECT_EQ(run_op(machine, operands, content.ranges), expected_sum(content)) << count;
    }
  });
}

TEST(ContentSumOpTest, is_added_with_carry) {
  for_each_machine([](Machine& machine) {
    Operands operands(1, machine);
    const Content content = make_content(operands, {1000, 70'000});
    constexpr uint64_t ones = ~uint64_t{0};
    for (const ContentSum& before : {ContentSum{1, 0}, ContentSum{ones, 0}, ContentSum{ones, 5},
                                     ContentSum{ones, ones}, ContentSum{ones - 1, 77}}) {
      ContentSum expected = expected_sum(content);
      expected.add(before);
      EXPECT_EQ(run_op(machine, operands, content.ranges, before), expected);
    }
  });
}

TEST(ContentSumOpTest, a_flipped_bit_anywhere_is_found) {
  for_each_machine([](Machine& machine) {
    Operands operands(1, machine);
    const Content content = make_content(operands, {65'536 + 19, 40, 16, 5});
    const ContentSum sum = run_op(machine, operands, content.ranges);
    std::mt19937 random(3);
    for (const ContentRange& range : content.ranges) {
      auto* const bytes = const_cast<std::byte*>(range.bytes.data);
      for (int i = 0; i < 20; ++i) {
        const int64_t at = static_cast<int64_t>(random()) % range.bytes.bytes();
        const auto bit = static_cast<std::byte>(1U << random() % 8);
        bytes[at] ^= bit;
        EXPECT_NE(run_op(machine, operands, content.ranges), sum) << range.offset << " " << at;
        bytes[at] ^= bit;
      }
    }
    EXPECT_EQ(run_op(machine, operands, content.ranges), sum);
  });
}

TEST(ContentSumOpTest, other_places_of_ranges_are_found) {
  for_each_machine([](Machine& machine) {
    Operands operands(1, machine);
    Content content = make_content(operands, {4096, 4096});
    const ContentSum sum = run_op(machine, operands, content.ranges);
    std::swap(content.ranges[0].offset, content.ranges[1].offset);
    EXPECT_NE(run_op(machine, operands, content.ranges), sum);
  });
}

// In memory of the device, with several chunks for each thread block.
TEST(ContentSumOpTest, cuda_has_the_sum_of_the_host) {
  const std::string problem = device::gpu_status().problem;
  if (!problem.empty()) GTEST_SKIP() << problem;
  Machine machine = gpu_machine();
  expect_right_sums(machine);
  Operands operands(1, machine);
  Content content = make_content(operands, {30'000'003, 1, 16'000'000});
  const ContentSum expected = expected_sum(content);
  std::vector<device::Buffer> memory;
  for (ContentRange& range : content.ranges) {
    memory.emplace_back(machine.device, device::Mem::params, range.bytes.bytes(), "range");
    const Tensor copy = device::view_of(memory.back().data(), {{range.bytes.bytes()}, DType::u8});
    machine.stream->upload(copy, {range.bytes.data, static_cast<size_t>(range.bytes.bytes())});
    range.bytes = copy;
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run_op(machine, operands, content.ranges), expected);
  // One bit, far from the beginning.
  const Tensor byte = device::view_of(memory[0].data() + 29'999'999, {{1}, DType::u8});
  const std::byte other = content.bytes[29'999'999] ^ std::byte{8};
  machine.stream->upload(byte, std::span(&other, 1));
  EXPECT_NE(run_op(machine, operands, content.ranges), expected);
}

TEST(ContentSumOpTest, bits_do_not_depend_on_threads) {
  std::vector<Case> cases;
  for (const int64_t bytes : {100, 3'000'000}) {
    cases.push_back({fmt::format("{} bytes", bytes), [bytes](Operands& operands, Stream& stream) {
                       const Content content = make_content(operands, {bytes, 77});
                       const Tensor total = total_of(operands, {});
                       ops::content_sum(stream, {.ranges = content.ranges, .sum = total});
                     }});
  }
  expect_bits_do_not_depend_on_threads(cases);
}

using ContentSumOpDeathTest = testing::Test;

TEST(ContentSumOpDeathTest, a_range_must_be_aligned) {
  Machine machine(cpu_kernels());
  Operands operands(1, machine);
  const Tensor bytes = operands.result({64}, {.dtype = DType::u8});
  const Tensor total = total_of(operands, {});
  const auto sum_of = [&](const ContentRange& range) {
    ops::content_sum(*machine.stream, {.ranges = {range}, .sum = total});
  };
  EXPECT_DEATH(sum_of({.bytes = bytes.slice_rows(8, 16), .offset = 0}), "content_sum: u8");
  EXPECT_DEATH(sum_of({.bytes = bytes, .offset = 8}), "content_sum: a range at byte 8");
}

}  // namespace
}  // namespace trireme::kernels::content_sum_test
