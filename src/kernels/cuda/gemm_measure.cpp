// SPDX-License-Identifier: Apache-2.0
// How the algorithm of a large product is chosen: see gemm_plans.h. Only here does a row wait for
// the device or allocate, and only while the device may.
#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/shape.h"
#include "device/memory.h"
#include "kernels/cuda/gemm_kernels.h"
#include "kernels/cuda/gemm_plans.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/rows.h"

namespace trireme::kernels::cuda {
namespace {

using device::cuda_check;
using device::CudaStream;

constexpr int timed_runs = 3;
constexpr int repeated_runs = 3;  // that must have the same bits
// A candidate this much slower than the best in its first timed run is not run again.
constexpr double hopeless = 1.5;

// A result like d of a product, with the same stride, and a few numbers that kernels write.
class Result {
 public:
  // Throws OutOfMemory.
  Result(device::CudaDevice& device, const Matmul& what)
      : what_(what),
        bytes_(base::round_up(((what.m - 1) * what.d_stride + what.n) * base::size_of(what.out),
                              base::grain_bytes)),
        buffer_(device, device::Mem::external, bytes_ + base::grain_bytes,
                "algorithm measurement") {}

  std::byte* data() const { return buffer_.data(); }
  Tensor tensor() const { return {data(), {what_.m, what_.n}, what_.d_stride, what_.out}; }
  Digest* numbers() const { return reinterpret_cast<Digest*>(data() + bytes_); }

  void clear(CudaStream& stream) const {
    cuda_check(cudaMemsetAsync(data(), 0, static_cast<size_t>(buffer_.bytes()), stream.handle()),
               "clearing a result");
  }
  Digest read_numbers(CudaStream& stream) const {
    Digest numbers_here;
    cuda_check(cudaMemcpyAsync(&numbers_here, numbers(), sizeof numbers_here,
                               cudaMemcpyDeviceToHost, stream.handle()),
               "reading a digest");
    stream.synchronize();
    return numbers_here;
  }
  // Row sums, where there are any, are in the sum of hashes, but not in the count. REQUIRES:
  // clear() was called since the last digest.
  Digest digest(CudaStream& stream, const std::byte* row_sums) const {
    add_digest(stream, data(), bytes_ / int64_t{sizeof(uint32_t)}, numbers());
    Digest found = read_numbers(stream);
    if (row_sums == nullptr) return found;
    add_digest(stream, row_sums, what_.m, numbers());
    found.sum = read_numbers(stream).sum;
    return found;
  }

 private:
  Matmul what_;
  int64_t bytes_;
  device::Buffer buffer_;
};

std::vector<float> floats_of(CudaStream& stream, const std::byte* data, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  cuda_check(cudaMemcpyAsync(values.data(), data, values.size() * sizeof(float),
                             cudaMemcpyDeviceToHost, stream.handle()),
             "reading sums");
  stream.synchronize();
  return values;
}

// The shortest of a few runs, or the first if it takes longer than `limit`. The ones after the
// first are queued together, so that the last intervals hold no gap between launches.
template <typename Work>
double shortest_run(CudaStream& stream, double limit, const Work& work) {
  std::vector<device::Event> events;
  const auto run_and_mark = [&] {
    work();
    events.push_back(stream.record_timed());
  };
  events.push_back(stream.record_timed());
  run_and_mark();
  stream.synchronize();
  double shortest = stream.seconds_between(events[0], events[1]);
  if (shortest > limit) return shortest;
  events = {stream.record_timed()};
  for (int i = 1; i < timed_runs; ++i) run_and_mark();
  stream.synchronize();
  for (size_t i = 1; i < events.size(); ++i) {
    shortest = std::min(shortest, stream.seconds_between(events[i - 1], events[i]));
  }
  return shortest;
}

}  // namespace

void GemmPlans::measure(CudaStream& stream, Plan& plan, const Matmul& what,
                        const MatmulOperands& operands) {
  const auto begin = std::chrono::steady_clock::now();
  const double seconds_before = unreported_seconds_;  // a measurement may hold another
  std::optional<Result> result;
  try {
    result.emplace(device_, what);
  } catch (const base::OutOfMemory&) {
    base::log_warning("no memory to measure algorithms of the product {}: the first is taken",
                      what.to_string());
    plan.is_usable = what.epilogue != Epilogue::a_sum;
    plan.is_final = true;
    plan.candidates.clear();
    return;
  }
  MatmulOperands trial = operands;
  trial.d = result->data();

  std::optional<cublasLtMatmulAlgo_t> best;
  std::optional<Digest> first;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (const cublasLtMatmulAlgo_t& algo : plan.candidates) {
    result->clear(stream);
    // The first run is not timed: it loads the kernel. What is proposed and then refused is no
    // candidate.
    if (run(plan, algo, what, trial, stream) != CUBLAS_STATUS_SUCCESS) continue;
    stream.synchronize();
    const double limit = hopeless * best_seconds;
    const double seconds = shortest_run(stream, limit, [&] {
      cublas_check(run(plan, algo, what, trial, stream), "measuring an algorithm");
    });
    if (seconds > limit) continue;
    if (device_.options().deterministic) {
      // Every candidate that comes here has run the same number of times: with in-place addends
      // the results are comparable, too.
      const Digest digest = result->digest(stream, trial.sums);
      if (!first) {
        first = digest;
        plan.algo = algo;
        if (digest.nonzero == 0) return;  // nothing to compare; measured at the next use
      }
      if (digest.sum != first->sum) continue;
    }
    if (seconds < best_seconds) {
      best = algo;
      best_seconds = seconds;
    }
  }

  GemmChoice choice = {.microseconds = 1e6 * best_seconds, .is_rejected = !best.has_value()};
  if (best) {
    plan.algo = *best;
    choice.algo = *best;
    if (what.epilogue == Epilogue::gelu_grad) {
      result->clear(stream);
      cublas_check(run(plan, plan.algo, what, trial, stream), "checking an epilogue");
      choice.is_rejected = !is_gelu_grad_right(stream, what, trial, best_seconds);
    } else if (what.epilogue == Epilogue::a_sum) {
      result.reset();  // there may be no memory for two
      choice.is_rejected = !is_a_sum_right(stream, plan, what, operands);
    }
  }
  plan.is_usable = !choice.is_rejected;
  plan.is_final = true;
  plan.candidates.clear();
  if (best) choices_.keep(what.to_string(), choice);
  ++unreported_;
  unreported_seconds_ =
      seconds_before +
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Is the library's product with the gradient of GELU, which stands in operands.d and took
// `seconds`, as good as a product and our kernel? It must be as exact. On a deterministic device
// that decides, since the two ways may differ in a rounding; else it must be faster, too.
bool GemmPlans::is_gelu_grad_right(CudaStream& stream, const Matmul& what,
                                   const MatmulOperands& operands, double seconds) {
  Matmul plain = what;
  plain.epilogue = Epilogue::none;
  plain.aux_stride = 0;
  plain.aux_align = Matmul().aux_align;
  std::optional<Result> value;
  try {
    value.emplace(device_, plain);
  } catch (const base::OutOfMemory&) {
    return true;
  }
  MatmulOperands separate = operands;
  separate.d = value->data();
  separate.aux = nullptr;
  value->clear(stream);
  if (!multiply(stream, plain, separate)) return true;
  const Tensor product = {operands.d, {what.m, what.n}, what.d_stride, what.out};
  const ConstTensor x = Tensor{
      const_cast<std::byte*>(operands.aux), {what.m, what.n}, what.aux_stride, base::DType::bf16};
  count_gelu_grad_errors(
      stream,
      {.product = product, .value = value->tensor(), .x = x, .count = &value->numbers()->sum});
  const uint64_t errors = value->read_numbers(stream).sum;
  // Values that are nearly zero because their terms cancel differ more between two orders of
  // addition: a few in a thousand.
  if (errors > static_cast<uint64_t>(what.m * what.n) / 100) {
    base::log_warning(
        "{}: {} elements of cuBLASLt's GELU gradient are not exact enough; it is not used",
        what.to_string(), errors);
    return false;
  }
  if (device_.options().deterministic) return true;
  Plan& plain_plan = plan_of(stream, plain, separate);
  const double separate_seconds =
      shortest_run(stream, std::numeric_limits<double>::infinity(), [&] {
        cublas_check(run(plain_plan, plain_plan.algo, plain, separate, stream),
                     "measuring an algorithm");
        multiply_by_gelu_grad(stream, {.value = value->tensor(), .x = x, .d = value->tensor()});
      });
  return seconds <= separate_seconds;
}

// Are the library's row sums of op(a) as exact as our own, and the same bits in every run?
// Otherwise, and on a device that need not be deterministic also where they cost more time than a
// kernel of their own, they are made by that. What is not known counts as no.
bool GemmPlans::is_a_sum_right(CudaStream& stream, Plan& plan, const Matmul& what,
                               const MatmulOperands& operands) {
  std::optional<Result> result;
  try {
    result.emplace(device_, what);
  } catch (const base::OutOfMemory&) {
    return false;
  }
  MatmulOperands trial = operands;
  trial.d = result->data();
  const Tensor sums = device::view_of(trial.sums, {{what.m}, base::DType::f32});
  const auto multiply_and_sum = [&] {
    cublas_check(run(plan, plan.algo, what, trial, stream), "checking an epilogue");
  };
  std::optional<uint64_t> digest;
  for (int i = 0; i < repeated_runs; ++i) {
    result->clear(stream);
    fill(stream, {.d = sums});  // not what another algorithm left
    multiply_and_sum();
    const uint64_t now = result->digest(stream, trial.sums).sum;
    if (digest && *digest != now) {
      base::log_warning("{}: cuBLASLt's row sums differ from run to run; they are not used",
                        what.to_string());
      return false;
    }
    digest = now;
  }
  const std::vector<float> found = floats_of(stream, trial.sums, what.m);

  // Our own, in place of d. Their partial sums are where the library's were.
  const base::Shape a_shape =
      what.trans_a ? base::Shape{what.k, what.m} : base::Shape{what.m, what.k};
  const ConstTensor a = Tensor{const_cast<std::byte*>(operands.a), a_shape, what.a_stride, what.in};
  const Tensor own = device::view_of(result->data(), {{what.m}, base::DType::f32});
  result->clear(stream);
  add_row_sums(stream, a, what.trans_a, own);
  const std::vector<float> expected = floats_of(stream, own.data, what.m);
  double squares = 0, error_squares = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double sum = expected[i], error = static_cast<double>(found[i]) - sum;
    squares += sum * sum;
    error_squares += error * error;
  }
  // Two orders of fp32 additions differ by some 1e-6 of the sums; rounded to bf16, or taken from
  // rounded parts, they would differ by 1e-3.
  constexpr double most = 1e-4;
  if (!(squares > 0 && error_squares <= most * most * squares)) {
    base::log_warning("{}: cuBLASLt's row sums are not exact enough; they are not used",
                      what.to_string());
    return false;
  }
  if (device_.options().deterministic) return true;

  Matmul plain = what;
  plain.epilogue = Epilogue::none;
  plain.workspace_bytes = stream.workspace().bytes();
  MatmulOperands separate = trial;
  separate.sums = nullptr;
  separate.workspace = stream.workspace().data;
  if (!multiply(stream, plain, separate)) return false;
  Plan& plain_plan = plan_of(stream, plain, separate);
  constexpr double no_limit = std::numeric_limits<double>::infinity();
  const double together = shortest_run(stream, no_limit, [&] {
    multiply_and_sum();
    accumulate(stream, {.x = sums, .d = own});
  });
  const double apart = shortest_run(stream, no_limit, [&] {
    add_row_sums(stream, a, what.trans_a, own);
    cublas_check(run(plain_plan, plain_plan.algo, plain, separate, stream),
                 "measuring an algorithm");
  });
  return together <= apart;
}

void GemmPlans::report() {
  const std::string where =
      choices_.file().empty() ? std::string() : "; choices kept in " + choices_.file().string();
  base::log_info("measured {} matrix products in {:.1f} s{}", unreported_, unreported_seconds_,
                 where);
  unreported_ = 0;
  unreported_seconds_ = 0;
}

}  // namespace trireme::kernels::cuda
