// SPDX-License-Identifier: Apache-2.0
// The records of ranks at the end of a step.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "kernels/ops.h"
#include "kernels/step_records.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::records_test {
namespace {

constexpr int64_t layers = 5;
constexpr int64_t record_bytes = spec::step_record_bytes(layers);

struct Record {
  StepSums sums;
  StepCounts counts;
  double squares[layers];
};
static_assert(sizeof(Record) == record_bytes);

// The ranks of `data_ranks` data ranks; only the last of `copies` has the head. Values need
// rounding, and the squares are far apart.
std::vector<Record> records_of(int64_t data_ranks, int64_t copies, int64_t slices) {
  std::vector<Record> all;
  for (int64_t i = 0; i < data_ranks * copies * slices; ++i) {
    Record& record = all.emplace_back();
    record = {};
    const auto value = static_cast<double>(i);
    if (i % copies == copies - 1) {
      record.sums.loss = 0.1 + value;
      record.sums.tokens = i + 1;
    }
    record.sums.samples = static_cast<uint64_t>(i == 4 ? 99 : i / copies / slices) << 61U;
    add_block_sum(record.sums.squares, 1.0 / (value + 3));
    record.sums.squares.limb[2] += int64_t{1} << 62;  // as of 2^30 block sums without carry
    record.counts = {.masked = 100 + i, .padding = i, .update_squares = 1e-9 / (value + 7)};
    for (int64_t layer = 0; layer < layers; ++layer) {
      record.squares[layer] = (value + 1) / static_cast<double>(3 + layer * layer * layer);
    }
  }
  return all;
}

Tensor tensor_of(Operands& operands, const std::vector<Record>& records) {
  const Tensor parts =
      operands.scratch({static_cast<int64_t>(records.size()), record_bytes}, DType::u8);
  std::memcpy(parts.data, records.data(), records.size() * sizeof(Record));
  return parts;
}

Tensor bytes_of(Operands& operands, int64_t bytes) {
  return operands.result({bytes}, {.dtype = DType::u8, .exact = true});
}

std::vector<Case> merge_cases() {
  std::vector<Case> list;
  const std::vector<std::vector<int64_t>> shapes = {{1, 1, 1}, {2, 1, 1}, {7, 1, 1},   {2, 3, 1},
                                                    {3, 1, 2}, {2, 2, 2}, {300, 1, 1}, {9, 16, 2}};
  for (const auto& shape : shapes) {
    const int64_t data_ranks = shape[0], copies = shape[1], slices = shape[2];
    list.push_back({fmt::format("{} data ranks, {} copies, {} slices", data_ranks, copies, slices),
                    [=](Operands& operands, Stream& stream) {
                      const Tensor parts =
                          tensor_of(operands, records_of(data_ranks, copies, slices));
                      ops::merge_sums(stream, {.parts = parts,
                                               .sums = operands.sums({.loss = 5, .tokens = 9}),
                                               .copies = copies,
                                               .slices = slices});
                      const int64_t bytes = spec::step_totals_bytes(layers, data_ranks);
                      ops::merge_records(stream, {.parts = parts,
                                                  .totals = bytes_of(operands, bytes),
                                                  .copies = copies,
                                                  .slices = slices});
                    }});
  }
  return list;
}

TEST(MergeRecordsTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(merge_cases()); }
TEST(MergeRecordsTest, cuda_agrees_with_the_reference) { expect_cuda_agrees(merge_cases()); }

// Two data ranks with two slices of each sample, two ranks that share the tokens of a slice.
TEST(MergeRecordsTest, every_value_is_counted_once) {
  for_each_table([](Stream& stream) {
    Operands operands(1);
    std::vector<Record> records(8, Record{});
    for (size_t i = 0; i < records.size(); ++i) {
      Record& record = records[i];
      const bool has_head = i % 2 == 1;
      record.sums = {.loss = has_head ? 1.0 + static_cast<double>(i) : 0.0,
                     .tokens = has_head ? 10 * static_cast<int64_t>(i) : 0};
      record.counts = {.masked = 5, .padding = 7, .update_squares = 0.5};
      record.squares[i % 2] = 0.25;
    }
    const Tensor totals = bytes_of(operands, spec::step_totals_bytes(layers, 2));
    ops::merge_records(
        stream,
        {.parts = tensor_of(operands, records), .totals = totals, .copies = 2, .slices = 2});
    const Totals found = totals_at(totals.data, 2);
    EXPECT_EQ(found.counts->masked, 10);  // of each data rank once
    EXPECT_EQ(found.counts->padding, 14);
    EXPECT_EQ(found.counts->update_squares, 4);
    EXPECT_EQ(found.losses[0].loss, 2 + 4);
    EXPECT_EQ(found.losses[0].tokens, 10 + 30);
    EXPECT_EQ(found.losses[1].loss, 6 + 8);
    EXPECT_EQ(found.losses[1].tokens, 50 + 70);
    EXPECT_EQ(found.squares[0], 1);
    EXPECT_EQ(found.squares[1], 1);
    EXPECT_EQ(found.squares[2], 0);
  });
}

// Squares of layers with carries to be made, and one that is not finite.
void add_layers(int64_t count, bool has_infinity, Operands& operands, Stream& stream) {
  const Tensor squares =
      operands.result({count + 1, spec::wide_sum_bytes}, {.dtype = DType::u8, .exact = true});
  auto* sums = reinterpret_cast<WideSum*>(squares.data);
  for (int64_t layer = 0; layer <= count; ++layer) {
    sums[layer] = {};
    for (int i = 0; i < 3; ++i)
      add_block_sum(sums[layer], 1.0 / static_cast<double>(7 + layer + i));
    sums[layer].limb[1] += int64_t{1} << 50;
  }
  if (has_infinity) {
    add_block_sum(sums[count / 2], std::numeric_limits<double>::infinity());
  }
  const Tensor record = bytes_of(operands, spec::step_record_bytes(count));
  std::memset(record.data, 0, static_cast<size_t>(record.bytes()));
  reinterpret_cast<StepSums*>(record.data)->loss = 3;
  reinterpret_cast<StepSums*>(record.data)->squares.limb[3] = 11;
  ops::add_layers(stream, {.squares = squares, .record = record});
}

std::vector<Case> layer_cases() {
  std::vector<Case> list;
  for (const int64_t count : {1, 2, 34, 129, 400}) {
    for (const bool has_infinity : {false, true}) {
      list.push_back({fmt::format("{} layers{}", count, has_infinity ? ", one infinite" : ""),
                      [=](Operands& o, Stream& s) { add_layers(count, has_infinity, o, s); }});
    }
  }
  return list;
}

TEST(AddLayersTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(layer_cases()); }
TEST(AddLayersTest, cuda_agrees_with_the_reference) { expect_cuda_agrees(layer_cases()); }

TEST(AddLayersTest, the_total_is_the_exact_sum_and_the_squares_are_zeroed) {
  for_each_table([](Stream& stream) {
    Operands operands(2);
    const Tensor squares =
        operands.result({3, spec::wide_sum_bytes}, {.dtype = DType::u8, .exact = true});
    const Tensor record = bytes_of(operands, spec::step_record_bytes(2));
    std::memset(squares.data, 0, static_cast<size_t>(squares.bytes()));
    std::memset(record.data, 0, static_cast<size_t>(record.bytes()));
    auto* sums = reinterpret_cast<WideSum*>(squares.data);
    // Their sum has more bits than fp64.
    add_block_sum(sums[0], 0x1p60);
    add_block_sum(sums[1], 0x1p-60);
    add_block_sum(sums[2], 0.25);
    WideSum expected = sums[0];
    add_block_sum(expected, 0x1p-60);
    ops::add_layers(stream, {.squares = squares, .record = record});
    const Records found{record.data, record.bytes(), 1};
    EXPECT_EQ(std::memcmp(&found.sums(0).squares, &expected, sizeof expected), 0);
    EXPECT_EQ(found.squares(0, 0), 0x1p60);
    EXPECT_EQ(found.squares(0, 1), 0x1p-60);
    EXPECT_EQ(found.counts(0).update_squares, 0.25);
    const WideSum zero = {};
    for (int i = 0; i < 3; ++i) EXPECT_EQ(std::memcmp(&sums[i], &zero, sizeof zero), 0);
  });
}

}  // namespace
}  // namespace trireme::kernels::records_test
