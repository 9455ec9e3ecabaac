// SPDX-License-Identifier: Apache-2.0
// What ranks exchange at the end of a step, by plain loops over the bytes of their records.
#include <cstring>
#include <vector>

#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"
#include "kernels/step_records.h"

namespace trireme::kernels::reference {
namespace {

// One record as values.
struct Record {
  StepSums sums;
  StepCounts counts;
  std::vector<double> squares;
};

Record record_at(const std::byte* from, int64_t bytes) {
  Record record;
  record.squares.resize(static_cast<size_t>(layers_of_record(bytes)));
  std::memcpy(&record.sums, from, sizeof record.sums);
  from += sizeof record.sums;
  std::memcpy(&record.counts, from, sizeof record.counts);
  from += sizeof record.counts;
  std::memcpy(record.squares.data(), from, record.squares.size() * sizeof(double));
  return record;
}

std::vector<Record> records_of(const ConstTensor& parts) {
  std::vector<Record> all;
  for (int64_t i = 0; i < parts.rows(); ++i) {
    all.push_back(record_at(parts.data + i * parts.cols(), parts.cols()));
  }
  return all;
}

void complete(const AddLayersArgs& args) {
  const int64_t layers = args.squares.rows() - 1;
  std::byte* at = args.record.data;
  Record record = record_at(at, args.record.bytes());
  for (int64_t layer = 0; layer <= layers; ++layer) {
    WideSum sum;
    std::byte* from = args.squares.data + layer * spec::wide_sum_bytes;
    std::memcpy(&sum, from, sizeof sum);
    std::memset(from, 0, sizeof sum);
    if (layer == layers) {
      record.counts.update_squares = to_double(sum);
      continue;
    }
    record.squares[static_cast<size_t>(layer)] = to_double(sum);
    for (int i = 0; i < WideSum::limbs; ++i) record.sums.squares.limb[i] += sum.limb[i];
    record.sums.squares.not_finite += sum.not_finite;
  }
  std::memcpy(at, &record.sums, sizeof record.sums);
  std::memcpy(at + sizeof record.sums, &record.counts, sizeof record.counts);
  std::memcpy(at + spec::step_record_bytes(0), record.squares.data(),
              record.squares.size() * sizeof(double));
}

void merge(const MergeRecordsArgs& args) {
  const std::vector<Record> ranks = records_of(args.parts);
  const auto copies = static_cast<size_t>(args.copies), slices = static_cast<size_t>(args.slices);
  StepCounts counts = {};
  std::vector<DataLoss> losses(ranks.size() / (copies * slices), DataLoss{});
  std::vector<double> squares(ranks.front().squares.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Record& record = ranks[rank];
    counts.update_squares += record.counts.update_squares;
    for (size_t layer = 0; layer < squares.size(); ++layer) squares[layer] += record.squares[layer];
    if (rank % (copies * slices) == 0) {
      counts.masked += record.counts.masked;
      counts.padding += record.counts.padding;
    }
    // The first of its copies that has tokens.
    bool is_counted = record.sums.tokens != 0;
    for (size_t other = rank / copies * copies; other < rank; ++other) {
      is_counted = is_counted && ranks[other].sums.tokens == 0;
    }
    if (!is_counted) continue;
    losses[rank / (copies * slices)].loss += record.sums.loss;
    losses[rank / (copies * slices)].tokens += record.sums.tokens;
  }
  std::byte* at = args.totals.data;
  const auto append = [&at](const void* from, size_t bytes) {
    std::memcpy(at, from, bytes);
    at += bytes;
  };
  append(&counts, sizeof counts);
  append(losses.data(), losses.size() * sizeof(DataLoss));
  append(squares.data(), squares.size() * sizeof(double));
}

}  // namespace

void add_layers(Stream& stream, const AddLayersArgs& args) {
  run_on(stream, [args] { complete(args); });
}

void merge_sums(Stream& stream, const MergeSumsArgs& args) {
  run_on(stream, [args] {
    *reinterpret_cast<StepSums*>(args.sums.data) = merged(
        Records{args.parts.data, args.parts.cols(), args.parts.rows(), args.copies, args.slices});
  });
}

void merge_records(Stream& stream, const MergeRecordsArgs& args) {
  run_on(stream, [args] { merge(args); });
}

}  // namespace trireme::kernels::reference
