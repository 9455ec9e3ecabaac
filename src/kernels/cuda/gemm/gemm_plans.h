// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt: a plan (descriptors and algorithm) for every kind of product that
// was requested, and the choice of its algorithm.
//
// The library proposes up to 16 algorithms. Small products use the first. For large ones they are
// measured at the first use, while the device may still allocate, with the operands of the call and
// the result in separate memory; the fastest are measured again under full load, where the power
// limit matters. On a deterministic device an algorithm is admitted only if its result has the bits
// of the first one's, so that the choice, which depends on timings, cannot change a run.
//
// The epilogues gelu_grad and a_sum have an alternative (a product and one of our kernels). They
// are compared with it when they are measured, and used if they are as exact. On a deterministic
// device that suffices, since the two may differ in a rounding; otherwise they must be faster, too.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "device/cuda/cuda_device.h"
#include "kernels/cuda/gemm/gemm_choices.h"
#include "spec/recipe.h"

namespace trireme::kernels::cuda {

enum class MatmulEpilogue : uint8_t { none, bias, gelu_grad, a_sum };
// The addend c of the product: none, d itself, or another matrix of d's type.
enum class Addend : uint8_t { none, in_place, separate };

// What a product of 8-bit operands depends on besides (GemmArgs).
struct CodedOperands {
  base::DType b = base::DType::f8e4m3;  // the type of a is Matmul::in
  spec::ScaleShape shape_a = spec::ScaleShape::tensor, shape_b = spec::ScaleShape::tensor;
  bool fast_sums = false;

  auto operator<=>(const CodedOperands&) const = default;
};

// d [m, n] = alpha op(a) op(b) + beta c, then the epilogue: everything that a plan depends on.
// Row-major.
struct Matmul {
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  base::DType in = base::DType::f32, out = base::DType::f32;
  std::optional<CodedOperands> coded = {};  // if `in` has 8 bits
  MatmulEpilogue epilogue = MatmulEpilogue::none;
  Addend addend = Addend::none;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0, d_stride = 0, aux_stride = 0;
  // In bytes, one of 256, 16, 8, 4, 2; 256 for absent operands.
  int a_align = 256, b_align = 256, c_align = 256, d_align = 256, bias_align = 256, aux_align = 256;
  int64_t workspace_bytes = 0;

  auto operator<=>(const Matmul&) const = default;
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  std::string to_string() const;
};

struct MatmulOperands {
  const std::byte *a = nullptr, *b = nullptr;
  const std::byte *scale_a = nullptr, *scale_b = nullptr;  // with Matmul::coded only
  const std::byte* c = nullptr;                            // with Addend::separate only
  std::byte* d = nullptr;
  const std::byte* bias = nullptr;  // [n], type of d; with MatmulEpilogue::bias only
  const std::byte* aux = nullptr;   // [m, n], bf16: with MatmulEpilogue::gelu_grad only
  std::byte* sums = nullptr;        // [m] f32: the row sums of op(a); MatmulEpilogue::a_sum only
  float alpha = 1, beta = 0;
  std::byte* workspace = nullptr;
};

// Products of at least this size are measured.
constexpr double min_measured_flops = 1e9;

class GemmPlans {
 public:
  GemmPlans(device::CudaDevice& device, cublasLtHandle_t handle);

  // Queues the product. Returns false and queues nothing if the library does not support it or, for
  // gelu_grad and a_sum, if a product and a kernel are better; for a_sum also until that has been
  // measured.
  bool multiply(device::CudaStream& stream, const Matmul& what, const MatmulOperands& operands);

 private:
  struct Plan {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, c, d;  // the library's a is our b
    cublasLtMatmulAlgo_t algo;
    bool is_usable = false;
    bool is_final = false;                         // nothing is left to measure
    std::vector<cublasLtMatmulAlgo_t> candidates;  // until it is final
  };

  Plan& plan_of(device::CudaStream& stream, const Matmul& what, const MatmulOperands& operands);
  void describe(Plan& plan, const Matmul& what) const;
  void set_pointers(Plan& plan, const Matmul& what, const MatmulOperands& operands) const;
  void find_candidates(Plan& plan, const Matmul& what);
  bool accept(Plan& plan, const Matmul& what, const cublasLtMatmulAlgo_t& algo) const;
  cublasStatus_t run(Plan& plan, const cublasLtMatmulAlgo_t& algo, const Matmul& what,
                     const MatmulOperands& operands, device::CudaStream& stream) const;

  // ---- gemm_measure.cpp
  struct Admitted {
    cublasLtMatmulAlgo_t algo;
    double seconds;  // of its shortest run
  };
  void measure(device::CudaStream& stream, Plan& plan, const Matmul& what,
               const MatmulOperands& operands);
  Admitted best_of(device::CudaStream& stream, Plan& plan, const Matmul& what,
                   const MatmulOperands& trial, std::vector<Admitted> admitted);
  void report();
  // ---- gemm_measure_epilogue.cpp
  bool is_gelu_grad_right(device::CudaStream& stream, const Matmul& what,
                          const MatmulOperands& operands, double seconds);
  bool is_a_sum_right(device::CudaStream& stream, Plan& plan, const Matmul& what,
                      const MatmulOperands& operands);

  device::CudaDevice& device_;
  cublasLtHandle_t handle_;
  GemmChoices choices_;
  std::map<Matmul, Plan> plans_;
  bool is_announced_ = false;  // that measurements are running
  int unreported_ = 0;         // measurements since the last report
  double unreported_seconds_ = 0;
};

}  // namespace trireme::kernels::cuda
