// SPDX-License-Identifier: Apache-2.0
// The library's matrices are column-major, so a row-major matrix is its transpose there: we request
// d^T = op(b)^T op(a)^T, with our b as its a, and a bias along the rows of d^T.
#include "kernels/cuda/gemm/gemm_plans.h"

#include <fmt/core.h>

#include <array>
#include <cctype>

#include "base/check.h"
#include "base/log.h"
#include "kernels/cuda/libraries.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int max_candidates = 16;

cudaDataType_t type_of(base::DType dtype) {
  switch (dtype) {
    case base::DType::bf16:
      return CUDA_R_16BF;
    case base::DType::f16:
      return CUDA_R_16F;
    case base::DType::f8e4m3:
      return CUDA_R_8F_E4M3;
    case base::DType::f8e5m2:
      return CUDA_R_8F_E5M2;
    default:
      TRIREME_CHECK(dtype == base::DType::f32, "a product of {}", base::name_of(dtype));
      return CUDA_R_32F;
  }
}

int32_t mode_of(spec::ScaleShape shape) {
  switch (shape) {
    case spec::ScaleShape::row_128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case spec::ScaleShape::block_128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    case spec::ScaleShape::tensor:
      break;
  }
  return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

template <typename T>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute,
         const T& value) {
  cublas_check(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value),
               "describing a product");
}

template <typename T>
void set(cublasLtMatmulPreferenceOpaque_t& preference,
         cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  cublas_check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value),
               "stating a preference");
}

// A row-major [rows, cols] matrix.
void set(cublasLtMatrixLayoutOpaque_t& layout, base::DType dtype, int64_t rows, int64_t cols,
         int64_t stride) {
  cublas_check(cublasLtMatrixLayoutInit(&layout, type_of(dtype), static_cast<uint64_t>(cols),
                                        static_cast<uint64_t>(rows), stride),
               "describing a matrix");
}

std::filesystem::path choices_file(const device::CudaDevice& device) {
  const device::GpuOptions& options = device.options();
  if (options.cache_folder.empty()) return {};
  std::string gpu;
  for (const char c : device.gpu_name()) {
    gpu += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  }
  constexpr int version = 2;  // of the measurement
  return options.cache_folder / fmt::format("gemm_{}_{}_{}_v{}.json", gpu, cublasLtGetVersion(),
                                            options.deterministic ? "l1" : "fast", version);
}

}  // namespace

std::string Matmul::to_string() const {
  std::string operands(base::name_of(in));
  if (coded) {
    operands += fmt::format(" x {}, scales {} {}, {} sums", base::name_of(coded->b),
                            static_cast<int>(coded->shape_a), static_cast<int>(coded->shape_b),
                            coded->fast_sums ? "fast" : "split");
  }
  return fmt::format(
      "{} x {} x {} {}{} {} -> {}, epilogue {}, addend {}, strides {} {} {} {} {}, "
      "alignment {} {} {} {} {} {}, workspace {}",
      m, n, k, trans_a ? 't' : 'n', trans_b ? 't' : 'n', operands, base::name_of(out),
      static_cast<int>(epilogue), static_cast<int>(addend), a_stride, b_stride, c_stride, d_stride,
      aux_stride, a_align, b_align, c_align, d_align, bias_align, aux_align, workspace_bytes);
}

GemmPlans::GemmPlans(device::CudaDevice& device, cublasLtHandle_t handle)
    : device_(device), handle_(handle), choices_(choices_file(device)) {}

bool GemmPlans::multiply(device::CudaStream& stream, const Matmul& what,
                         const MatmulOperands& operands) {
  Plan& plan = plan_of(stream, what, operands);
  if (!plan.is_usable || (what.epilogue == MatmulEpilogue::a_sum && !plan.is_final)) return false;
  const cublasStatus_t status = run(plan, plan.algo, what, operands, stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    base::log_warning("cuBLASLt proposed an algorithm and rejected it: {}", what.to_string());
    plan.is_usable = false;
    return false;
  }
  if (status != CUBLAS_STATUS_SUCCESS) cublas_check(status, what.to_string().c_str());
  return true;
}

GemmPlans::Plan& GemmPlans::plan_of(device::CudaStream& stream, const Matmul& what,
                                    const MatmulOperands& operands) {
  const auto [at, is_new] = plans_.try_emplace(what);
  Plan& plan = at->second;
  if (is_new) {
    try {
      describe(plan, what);
      set_pointers(plan, what, operands);
      find_candidates(plan, what);
    } catch (...) {
      plans_.erase(at);
      throw;
    }
  }
  const bool may_measure = !stream.is_capturing() && !device_.ledger().is_frozen();
  if (!plan.is_final && may_measure) measure(stream, plan, what, operands);
  if (!may_measure && unreported_ > 0) report();
  return plan;
}

void GemmPlans::describe(Plan& plan, const Matmul& what) const {
  // fp32 sums of exact products: no TF32 for fp32 operands.
  cublas_check(cublasLtMatmulDescInit(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "describing a product");
  const auto op = [](bool trans) -> int32_t { return trans ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, op(what.trans_b));
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, op(what.trans_a));
  const base::DType b_type = what.coded ? what.coded->b : what.in;
  if (what.trans_b) {
    set(plan.a, b_type, what.n, what.k, what.b_stride);
  } else {
    set(plan.a, b_type, what.k, what.n, what.b_stride);
  }
  if (what.trans_a) {
    set(plan.b, what.in, what.k, what.m, what.a_stride);
  } else {
    set(plan.b, what.in, what.m, what.k, what.a_stride);
  }
  const bool is_separate = what.addend == Addend::separate;
  set(plan.c, what.out, what.m, what.n, is_separate ? what.c_stride : what.d_stride);
  set(plan.d, what.out, what.m, what.n, what.d_stride);
  if (what.coded) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode_of(what.coded->shape_b));
    set(plan.operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode_of(what.coded->shape_a));
    set(plan.operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM,
        static_cast<int8_t>(what.coded->fast_sums ? 1 : 0));
  }
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  if (what.epilogue == MatmulEpilogue::bias) {
    epilogue = CUBLASLT_EPILOGUE_BIAS;
    set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
        static_cast<int32_t>(type_of(what.out)));
  } else if (what.epilogue == MatmulEpilogue::gelu_grad) {
    epilogue = CUBLASLT_EPILOGUE_DGELU;
    set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, what.aux_stride);
  } else if (what.epilogue == MatmulEpilogue::a_sum) {
    epilogue = CUBLASLT_EPILOGUE_BGRADB;  // our a is its B
    set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(CUDA_R_32F));
  }
  set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
}

// The proposals depend on the alignment of these pointers, which `what` contains (sums are always
// aligned to 256 bytes, scales as the library requires); the pointers themselves change with each
// call.
void GemmPlans::set_pointers(Plan& plan, const Matmul& what, const MatmulOperands& operands) const {
  if (what.coded) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.scale_b);
    set(plan.operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.scale_a);
  }
  if (what.epilogue == MatmulEpilogue::bias) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  } else if (what.epilogue == MatmulEpilogue::gelu_grad) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux);
  } else if (what.epilogue == MatmulEpilogue::a_sum) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.sums);
  }
}

// REQUIRES: set_pointers() was called.
void GemmPlans::find_candidates(Plan& plan, const Matmul& what) {
  cublasLtMatmulPreferenceOpaque_t preference;
  cublas_check(cublasLtMatmulPreferenceInit(&preference), "stating a preference");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<uint64_t>(what.workspace_bytes));
  // Parts of a long k are added in fp32, not in the type of d: it is rounded once.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const bool is_separate = what.addend == Addend::separate;
  const auto align = [&](cublasLtMatmulPreferenceAttributes_t attribute, int bytes) {
    set(preference, attribute, static_cast<uint32_t>(bytes));
  };
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, what.b_align);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, what.a_align);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, is_separate ? what.c_align : what.d_align);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, what.d_align);

  const bool is_large = what.flops() >= min_measured_flops;
  std::array<cublasLtMatmulHeuristicResult_t, max_candidates> results;
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, &plan.operation, &plan.a, &plan.b, &plan.c, &plan.d, &preference,
      is_large ? max_candidates : 1, results.data(), &count);
  const bool has_other_way = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                             status == CUBLAS_STATUS_INVALID_VALUE ||
                             what.epilogue == MatmulEpilogue::a_sum;
  if (status != CUBLAS_STATUS_SUCCESS && has_other_way) {
    count = 0;  // not supported by the library: the caller uses another kernel
  } else {
    cublas_check(status, "querying algorithms");
  }
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    if (results[i].state == CUBLAS_STATUS_SUCCESS) plan.candidates.push_back(results[i].algo);
  }
  plan.is_usable = !plan.candidates.empty();
  plan.is_final = !plan.is_usable || !is_large;
  if (plan.is_usable) plan.algo = plan.candidates.front();
  if (!plan.is_final) {
    const auto choice = choices_.find(what.to_string());
    if (choice && choice->is_rejected) {
      plan.is_usable = false;
      plan.is_final = true;
    } else if (choice && accept(plan, what, choice->algo)) {
      plan.algo = choice->algo;
      plan.is_final = true;
    }
  }
  if (plan.is_final) plan.candidates.clear();
}

// Checks with the library an algorithm that was read from a file.
bool GemmPlans::accept(Plan& plan, const Matmul& what, const cublasLtMatmulAlgo_t& algo) const {
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle_, &plan.operation, &plan.a, &plan.b,
                                                        &plan.c, &plan.d, &algo, &result);
  return status == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= static_cast<size_t>(what.workspace_bytes);
}

cublasStatus_t GemmPlans::run(Plan& plan, const cublasLtMatmulAlgo_t& algo, const Matmul& what,
                              const MatmulOperands& operands, device::CudaStream& stream) const {
  TRIREME_CHECK((what.addend == Addend::none) == (operands.beta == 0), "beta {} with addend {}",
                operands.beta, static_cast<int>(what.addend));
  set_pointers(plan, what, operands);
  const std::byte* c = what.addend == Addend::separate ? operands.c : operands.d;
  return cublasLtMatmul(handle_, &plan.operation, &operands.alpha, operands.b, &plan.a, operands.a,
                        &plan.b, &operands.beta, c, &plan.c, operands.d, &plan.d, &algo,
                        operands.workspace, static_cast<size_t>(what.workspace_bytes),
                        stream.handle());
}

}  // namespace trireme::kernels::cuda
