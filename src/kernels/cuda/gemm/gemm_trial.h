// SPDX-License-Identifier: Apache-2.0
// Trial runs of matrix products, for the choice of algorithms: memory for their results, and
// clocks.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/shape.h"
#include "device/memory.h"
#include "kernels/cuda/gemm/gemm_kernels.h"
#include "kernels/cuda/gemm/gemm_plans.h"

namespace trireme::kernels::cuda {

// A result like d of a product, with the same stride, and a digest that kernels write.
class TrialResult {
 public:
  // Throws OutOfMemory. With operands, the result is their d itself if the product overwrites all
  // of it and reads none of it: a separate result of a large product would need half as much memory
  // again.
  TrialResult(device::CudaDevice& device, const Matmul& what,
              const MatmulOperands* operands = nullptr)
      : what_(what),
        bytes_(((what.m - 1) * what.d_stride + what.n) * base::size_of(what.out)),
        separate_bytes_(operands != nullptr && is_overwritten(what)
                            ? 0
                            : base::round_up(bytes_, base::grain_bytes)),
        buffer_(device, device::Mem::external, separate_bytes_ + base::grain_bytes,
                "algorithm measurement"),
        data_(separate_bytes_ == 0 ? operands->d : buffer_.data()) {}

  std::byte* data() const { return data_; }
  Tensor tensor() const { return {data(), {what_.m, what_.n}, what_.d_stride, what_.out}; }
  Digest* numbers() const { return reinterpret_cast<Digest*>(buffer_.data() + separate_bytes_); }

  void clear(device::CudaStream& stream) const {
    const auto clear_bytes = [&](void* begin, int64_t bytes) {
      device::cuda_check(cudaMemsetAsync(begin, 0, static_cast<size_t>(bytes), stream.handle()),
                         "clearing a result");
    };
    clear_bytes(data(), bytes_);
    clear_bytes(numbers(), base::grain_bytes);
  }
  Digest read_numbers(device::CudaStream& stream) const {
    Digest numbers_here;
    device::cuda_check(cudaMemcpyAsync(&numbers_here, numbers(), sizeof numbers_here,
                                       cudaMemcpyDeviceToHost, stream.handle()),
                       "reading a digest");
    stream.synchronize();
    return numbers_here;
  }
  // Row sums, if there are any, are part of the sum of hashes, but not of the count. REQUIRES:
  // clear() was called since the last digest.
  Digest digest(device::CudaStream& stream, const std::byte* row_sums) const {
    add_digest(stream, data(), bytes_ / int64_t{sizeof(uint32_t)}, numbers());
    Digest found = read_numbers(stream);
    if (row_sums == nullptr) return found;
    add_digest(stream, row_sums, what_.m, numbers());
    found.sum = read_numbers(stream).sum;
    return found;
  }

 private:
  static bool is_overwritten(const Matmul& what) {
    return what.addend == Addend::none && what.d_stride == what.n &&
           what.epilogue != MatmulEpilogue::gelu_grad && what.n * base::size_of(what.out) % 4 == 0;
  }

  Matmul what_;
  int64_t bytes_, separate_bytes_;  // of the result, and of its separate memory (0: none)
  device::Buffer buffer_;
  std::byte* data_;
};

// The number of runs from which the shortest is taken. One of a large product, which takes
// milliseconds, hardly differs from the next.
inline int timed_runs_of(const Matmul& what) {
  constexpr double large_flops = 1.5e12;
  return what.flops() < large_flops ? 3 : 1;
}

// The shortest of `timed_runs` runs, or the first if it takes longer than `limit`. The ones after
// the first are queued together, so that the last intervals hold no gap between launches.
template <typename Work>
double shortest_run(device::CudaStream& stream, int timed_runs, double limit, const Work& work) {
  std::vector<device::Event> events;
  const auto run_and_mark = [&] {
    work();
    events.push_back(stream.record_timed());
  };
  events.push_back(stream.record_timed());
  run_and_mark();
  stream.synchronize();
  double shortest = stream.seconds_between(events[0], events[1]);
  if (shortest > limit || timed_runs == 1) return shortest;
  events = {stream.record_timed()};
  for (int i = 1; i < timed_runs; ++i) run_and_mark();
  stream.synchronize();
  for (size_t i = 1; i < events.size(); ++i) {
    shortest = std::min(shortest, stream.seconds_between(events[i - 1], events[i]));
  }
  return shortest;
}

// The mean of runs that follow each other for a while. Under full load the power limit lowers the
// clock, and more for one algorithm than for another: the fastest in a single run need not be
// the fastest in a step. `seconds`: the approximate time of one run; `settling`: how long it runs
// before it is timed.
template <typename Work>
double sustained_run(device::CudaStream& stream, double seconds, double settling,
                     const Work& work) {
  constexpr double timed = 0.015;
  const auto runs_in = [seconds](double time) {
    return static_cast<int>(std::lround(time / seconds));
  };
  for (int i = runs_in(settling); i > 0; --i) work();
  const device::Event begin = stream.record_timed();
  const int runs = std::max(1, runs_in(timed));
  for (int i = 0; i < runs; ++i) work();
  const device::Event end = stream.record_timed();
  stream.synchronize();
  return stream.seconds_between(begin, end) / runs;
}

}  // namespace trireme::kernels::cuda
