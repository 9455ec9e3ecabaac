// SPDX-License-Identifier: Apache-2.0
// Compares the library's epilogues with a product and a separate kernel: see gemm_plans.h.
#include <limits>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "kernels/cuda/gemm/gemm_trial.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {
namespace {

using device::cuda_check;
using device::CudaStream;

constexpr int repeated_runs = 3;  // that must have the same bits

std::vector<float> floats_of(CudaStream& stream, const std::byte* data, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  cuda_check(cudaMemcpyAsync(values.data(), data, values.size() * sizeof(float),
                             cudaMemcpyDeviceToHost, stream.handle()),
             "reading sums");
  stream.synchronize();
  return values;
}

}  // namespace

// Returns whether the library's product with the gradient of GELU, whose result is in operands.d
// and which took `seconds`, is as good as a product and our kernel. It must be as exact. On a
// deterministic device that suffices, since the two may differ in a rounding; otherwise it must be
// faster, too.
bool GemmPlans::is_gelu_grad_right(CudaStream& stream, const Matmul& what,
                                   const MatmulOperands& operands, double seconds) {
  Matmul plain = what;
  plain.epilogue = MatmulEpilogue::none;
  plain.aux_stride = 0;
  plain.aux_align = Matmul().aux_align;
  std::optional<TrialResult> value;
  try {
    value.emplace(device_, plain);
  } catch (const base::OutOfMemory&) {
    return true;  // no room for a comparison: the library's product is used
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
      shortest_run(stream, timed_runs_of(what), std::numeric_limits<double>::infinity(), [&] {
        cublas_check(run(plain_plan, plain_plan.algo, plain, separate, stream),
                     "measuring an algorithm");
        multiply_by_gelu_grad(stream, {.value = value->tensor(), .x = x, .d = value->tensor()});
      });
  return seconds <= separate_seconds;
}

// Returns whether the library's row sums of op(a) are as exact as those of our kernel and
// deterministic, and, on a device that need not be deterministic, not slower than that kernel.
// Otherwise the kernel computes them. Returns false if they could not be compared.
bool GemmPlans::is_a_sum_right(CudaStream& stream, Plan& plan, const Matmul& what,
                               const MatmulOperands& operands) {
  std::optional<TrialResult> result;
  try {
    result.emplace(device_, what);
  } catch (const base::OutOfMemory&) {
    return false;  // no room for a comparison: the kernel computes the sums
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
    fill(stream, {.d = sums});  // clears the result of other algorithms
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

  // The sums of our kernel, in the memory of d; its partial sums reuse that of the library's sums.
  const base::Shape a_shape =
      what.trans_a ? base::Shape{what.k, what.m} : base::Shape{what.m, what.k};
  const ConstTensor a = Tensor{const_cast<std::byte*>(operands.a), a_shape, what.a_stride, what.in};
  const Tensor kernel_sums = device::view_of(result->data(), {{what.m}, base::DType::f32});
  result->clear(stream);
  add_row_sums(stream, a, what.trans_a, kernel_sums);
  const std::vector<float> expected = floats_of(stream, kernel_sums.data, what.m);
  double squares = 0, error_squares = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double sum = expected[i], error = static_cast<double>(found[i]) - sum;
    squares += sum * sum;
    error_squares += error * error;
  }
  // Two orders of fp32 additions differ by some 1e-6 of the sums; rounded to bf16, or computed from
  // rounded parts, they would differ by 1e-3.
  constexpr double most = 1e-4;
  if (!(squares > 0 && error_squares <= most * most * squares)) {
    base::log_warning("{}: cuBLASLt's row sums are not exact enough; they are not used",
                      what.to_string());
    return false;
  }
  if (device_.options().deterministic) return true;

  Matmul plain = what;
  plain.epilogue = MatmulEpilogue::none;
  plain.workspace_bytes = stream.workspace().bytes();
  MatmulOperands separate = trial;
  separate.sums = nullptr;
  separate.workspace = stream.workspace().data;
  if (!multiply(stream, plain, separate)) return false;
  Plan& plain_plan = plan_of(stream, plain, separate);
  constexpr double no_limit = std::numeric_limits<double>::infinity();
  const double together = shortest_run(stream, timed_runs_of(what), no_limit, [&] {
    multiply_and_sum();
    accumulate(stream, {.x = sums, .d = kernel_sums});
  });
  const double apart = shortest_run(stream, timed_runs_of(what), no_limit, [&] {
    add_row_sums(stream, a, what.trans_a, kernel_sums);
    cublas_check(run(plain_plan, plain_plan.algo, plain, separate, stream),
                 "measuring an algorithm");
  });
  return together <= apart;
}

}  // namespace trireme::kernels::cuda
