// SPDX-License-Identifier: Apache-2.0
// What ranks exchange at the end of a step: a few kilobytes of each rank. One thread per item adds
// up the ranks in order; the items are the layers, the data ranks and the counts.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/step_records.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int record_threads = 128;

// One block: the threads share the layers, then some of them the limbs of the total.
__global__ void add_layers_kernel(WideSum* squares, int64_t layers, StepSums* sums,
                                  StepCounts* counts, double* by_layer) {
  for (int64_t layer = threadIdx.x; layer <= layers; layer += record_threads) {
    (layer < layers ? by_layer[layer] : counts->update_squares) = to_double(squares[layer]);
  }
  constexpr int words = WideSum::limbs + 1;  // the last one is not_finite
  static_assert(sizeof(WideSum) == words * sizeof(int64_t) && words <= record_threads);
  if (threadIdx.x < words) {
    const int64_t* from = &squares->limb[0] + threadIdx.x;
    int64_t sum = 0;
    for (int64_t layer = 0; layer < layers; ++layer) sum += from[layer * words];
    *(&sums->squares.limb[0] + threadIdx.x) += sum;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < (layers + 1) * words; i += record_threads) {
    (&squares->limb[0])[i] = 0;
  }
}

// One block. The threads read and normalise records together; one of them adds up, from shared
// memory, since the sum of losses has one order: about 50 ns a rank.
__global__ void __launch_bounds__(record_threads) merge_sums_kernel(Records parts, StepSums* sums) {
  __shared__ StepSums chunk[record_threads];
  MergedSums all(parts.copies, parts.slices);
  for (int64_t first = 0; first < parts.count; first += record_threads) {
    const int64_t rank = first + static_cast<int>(threadIdx.x);
    if (rank < parts.count) {
      StepSums part = parts.sums(rank);
      normalise(part.squares);
      chunk[threadIdx.x] = part;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      const int64_t left = parts.count - first;
      for (int64_t i = 0; i < record_threads && i < left; ++i) all.add(chunk[i]);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *sums = all.sums();
}

__global__ void merge_records_kernel(Records parts, int64_t layers, std::byte* to) {
  const int64_t item = int64_t{blockIdx.x} * record_threads + static_cast<int>(threadIdx.x);
  const int64_t data_ranks = parts.data_ranks();
  const Totals totals = totals_at(to, data_ranks);
  if (item < layers) {
    totals.squares[item] = merged_squares(parts, item);
  } else if (item < layers + data_ranks) {
    totals.losses[item - layers] = merged_loss(parts, item - layers);
  } else if (item == layers + data_ranks) {
    *totals.counts = merged_counts(parts);
  }
}

Records records_of(const ConstTensor& parts, int64_t copies, int64_t slices) {
  return {parts.data, parts.cols(), parts.rows(), copies, slices};
}

}  // namespace

void add_layers(Stream& stream, const AddLayersArgs& args) {
  std::byte* record = args.record.data;
  add_layers_kernel<<<1, record_threads, 0, device::cuda_stream(stream).handle()>>>(
      data<WideSum>(args.squares), args.squares.rows() - 1, data<StepSums>(args.record),
      reinterpret_cast<StepCounts*>(record + sizeof(StepSums)),
      reinterpret_cast<double*>(record + spec::step_record_bytes(0)));
  check_launch("add_layers");
}

void merge_sums(Stream& stream, const MergeSumsArgs& args) {
  merge_sums_kernel<<<1, record_threads, 0, device::cuda_stream(stream).handle()>>>(
      records_of(args.parts, args.copies, args.slices), data<StepSums>(args.sums));
  check_launch("merge_sums");
}

void merge_records(Stream& stream, const MergeRecordsArgs& args) {
  const Records parts = records_of(args.parts, args.copies, args.slices);
  const int64_t layers = layers_of_record(parts.bytes);
  const int64_t blocks = ceil_div(layers + parts.data_ranks() + 1, record_threads);
  merge_records_kernel<<<static_cast<unsigned>(blocks), record_threads, 0,
                         device::cuda_stream(stream).handle()>>>(parts, layers, args.totals.data);
  check_launch("merge_records");
}

}  // namespace trireme::kernels::cuda
