// SPDX-License-Identifier: Apache-2.0
// Which 8-bit matrix products cuBLASLt supports on this GPU, how exact and how fast they are. A
// line is one kind of product of a linear map y = x w^T with T rows: scales, types, addend. It has
// the number of algorithms that the library proposes, how many of them give the bits of the first,
// the rate of the fastest under load, and its ratio to the same product in bf16. Needs about 15 s.
//
//   fp8_probe            # the table
//   fp8_probe --quick    # the first shape only
#include <cublasLt.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}
void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", what, cublasLtGetStatusString(status));
  std::exit(1);
}

enum class Scales { none, tensor, rows_by_blocks, rows_by_rows };

// d [m, n] = a [m, k] b [n, k]^T, all row-major.
struct Problem {
  const char* name;
  int64_t m, n, k;
  cudaDataType_t a, b, d;
  Scales scales;
  bool is_fast;
  enum Addend { none, separate, in_place } addend;
  bool has_bias;
};

int64_t bytes_of(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF ? 2 : 1;
}
int64_t blocks_of(int64_t n) { return (n + 127) / 128; }
int64_t padded(int64_t n) { return (n + 3) / 4 * 4; }
int64_t row_scales(int64_t rows, int64_t k) { return blocks_of(k) * padded(rows); }
int64_t block_scales(int64_t rows, int64_t k) { return blocks_of(rows) * padded(blocks_of(k)); }

constexpr int64_t pattern_bytes = int64_t{64} << 20;
constexpr int64_t workspace_bytes = int64_t{32} << 20;

// Memory of the largest problem. Codes and scales repeat a random pattern.
struct Memory {
  std::byte *a, *b, *c, *d, *workspace;
  float *scale_a, *scale_b;
  std::vector<uint8_t> host_codes;  // the pattern
  std::vector<float> host_scales;

  explicit Memory(int64_t bytes) {
    for (std::byte** p : {&a, &b, &c, &d})
      check(cudaMalloc(p, static_cast<size_t>(bytes)), "memory");
    check(cudaMalloc(&workspace, workspace_bytes), "workspace");
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    host_codes.resize(pattern_bytes);
    for (uint8_t& code : host_codes) {
      code = __nv_cvt_float_to_fp8(40 * normal(random), __NV_SATFINITE, __NV_E4M3);
    }
    host_scales.resize(size_t{1} << 20);
    std::uniform_real_distribution<float> scale(0.5F, 2.0F);
    for (float& s : host_scales) s = scale(random);
    for (float** p : {&scale_a, &scale_b}) {
      check(cudaMalloc(p, host_scales.size() * 8 * sizeof(float)), "scales");
      for (size_t i = 0; i < 8; ++i) {
        check(cudaMemcpy(*p + i * host_scales.size(), host_scales.data(),
                         host_scales.size() * sizeof(float), cudaMemcpyHostToDevice),
              "scales");
      }
    }
    for (std::byte* p : {a, b}) {
      for (int64_t at = 0; at < bytes; at += pattern_bytes) {
        check(cudaMemcpy(p + at, host_codes.data(),
                         static_cast<size_t>(std::min(pattern_bytes, bytes - at)),
                         cudaMemcpyHostToDevice),
              "codes");
      }
    }
    check(cudaMemset(c, 0, static_cast<size_t>(bytes)), "addend");
    check(cudaMemset(d, 0, static_cast<size_t>(bytes)), "result");
  }
};

template <typename T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), "attribute");
}

struct Result {
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  int proposed = 0, same_bits = 0;
  double tflops = 0;
};

class Probe {
 public:
  explicit Probe(Memory& memory) : memory_(memory) {
    check(cublasLtCreate(&handle_), "cuBLASLt");
    check(cudaStreamCreate(&stream_), "stream");
    check(cudaEventCreate(&begin_), "event");
    check(cudaEventCreate(&end_), "event");
  }

  // Runs all proposed algorithms once and the fastest for a while; only the first if not `timed`.
  Result run(const Problem& p, bool timed) {
    cublasLtMatmulDescOpaque_t operation;
    check(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "product");
    // The library is column-major: our b is its A, transposed, our a is its B.
    set(&operation, CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(CUBLAS_OP_T));
    set(&operation, CUBLASLT_MATMUL_DESC_TRANSB, static_cast<int32_t>(CUBLAS_OP_N));
    if (p.scales != Scales::none) {
      set(&operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(p.is_fast));
      set(&operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, memory_.scale_b);
      set(&operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, memory_.scale_a);
    }
    if (p.scales == Scales::rows_by_blocks || p.scales == Scales::rows_by_rows) {
      set(&operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
          static_cast<int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F));
      set(&operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
          static_cast<int32_t>(p.scales == Scales::rows_by_rows
                                   ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                                   : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F));
    }
    if (p.has_bias) {
      set(&operation, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_BIAS));
      set(&operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(p.d));
      set(&operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, memory_.c);
    }
    cublasLtMatrixLayoutOpaque_t a, b, d;
    const auto layout = [](cublasLtMatrixLayoutOpaque_t& to, cudaDataType_t type, int64_t rows,
                           int64_t cols) {
      check(cublasLtMatrixLayoutInit(&to, type, static_cast<uint64_t>(cols),
                                     static_cast<uint64_t>(rows), cols),
            "matrix");
    };
    layout(a, p.b, p.n, p.k);
    layout(b, p.a, p.m, p.k);
    layout(d, p.d, p.m, p.n);
    cublasLtMatmulPreferenceOpaque_t preference;
    check(cublasLtMatmulPreferenceInit(&preference), "preference");
    const uint64_t most = workspace_bytes;
    check(cublasLtMatmulPreferenceSetAttribute(
              &preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most),
          "preference");
    std::array<cublasLtMatmulHeuristicResult_t, 16> found;
    Result result;
    result.status = cublasLtMatmulAlgoGetHeuristic(handle_, &operation, &a, &b, &d, &d, &preference,
                                                   static_cast<int>(found.size()), found.data(),
                                                   &result.proposed);
    if (result.status != CUBLAS_STATUS_SUCCESS) return result;
    const float alpha = 1, beta = p.addend == Problem::none ? 0.0F : 1.0F;
    const void* c = p.addend == Problem::separate ? memory_.c : memory_.d;
    const auto multiply = [&](const cublasLtMatmulAlgo_t& algo) {
      return cublasLtMatmul(handle_, &operation, &alpha, memory_.b, &a, memory_.a, &b, &beta, c, &d,
                            memory_.d, &d, &algo, memory_.workspace, workspace_bytes, stream_);
    };
    const int64_t result_bytes = p.m * p.n * bytes_of(p.d);
    double best = 0;
    const cublasLtMatmulAlgo_t* fastest = nullptr;
    std::vector<uint8_t> first, now;
    for (int i = 0; i < result.proposed; ++i) {
      check(cudaMemsetAsync(memory_.d, 0, static_cast<size_t>(result_bytes), stream_), "result");
      const cublasStatus_t status = multiply(found[static_cast<size_t>(i)].algo);
      if (status != CUBLAS_STATUS_SUCCESS) continue;
      check(cudaStreamSynchronize(stream_), p.name);
      if (!timed) return result;
      now.resize(static_cast<size_t>(std::min<int64_t>(result_bytes, 4 << 20)));
      check(cudaMemcpy(now.data(), memory_.d, now.size(), cudaMemcpyDeviceToHost), "result");
      if (first.empty()) first = now;
      result.same_bits += now == first ? 1 : 0;
      const double seconds = seconds_of(2, [&] { multiply(found[static_cast<size_t>(i)].algo); });
      if (fastest != nullptr && seconds >= best) continue;
      best = seconds;
      fastest = &found[static_cast<size_t>(i)].algo;
    }
    if (fastest == nullptr) return result;
    const int runs = std::max(3, static_cast<int>(0.06 / best));
    seconds_of(runs / 3, [&] { multiply(*fastest); });
    const double seconds = seconds_of(runs, [&] { multiply(*fastest); });
    result.tflops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) *
                    static_cast<double>(p.k) / seconds / 1e12;
    return result;
  }

 private:
  template <typename Work>
  double seconds_of(int runs, const Work& work) {
    check(cudaEventRecord(begin_, stream_), "clock");
    for (int i = 0; i < runs; ++i) work();
    check(cudaEventRecord(end_, stream_), "clock");
    check(cudaEventSynchronize(end_), "clock");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "clock");
    return 1e-3 * milliseconds / std::max(1, runs);
  }

  Memory& memory_;
  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

float value_of(uint8_t code, cudaDataType_t type) {
  const __half_raw half =
      __nv_cvt_fp8_to_halfraw(code, type == CUDA_R_8F_E4M3 ? __NV_E4M3 : __NV_E5M2);
  const uint32_t u = half.x, exponent = (u >> 10) & 31U, mantissa = u & 1023U;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                        : std::ldexp(static_cast<float>(mantissa + 1024),
                                                     static_cast<int>(exponent) - 25);
  return (u & 0x8000U) != 0 ? -magnitude : magnitude;
}

// Returns |d - exact| / |exact|, where the exact product uses scales in the layout of
// spec::scale_spec(). Few rows of d are compared.
double error_of(const Memory& memory, const Problem& p) {
  std::vector<float> d(static_cast<size_t>(p.m * p.n));
  check(cudaMemcpy(d.data(), memory.d, d.size() * sizeof(float), cudaMemcpyDeviceToHost), "result");
  double squares = 0, error_squares = 0;
  for (int64_t i = 0; i < p.m; i += 17) {
    for (int64_t j = 0; j < p.n; j += 5) {
      double sum = 0;
      for (int64_t k = 0; k < p.k; ++k) {
        const auto code = [&](int64_t at) { return memory.host_codes[static_cast<size_t>(at)]; };
        const auto scale = [&](int64_t at) { return memory.host_scales[static_cast<size_t>(at)]; };
        const bool is_tensor = p.scales == Scales::tensor;
        const double scale_a = is_tensor ? scale(0) : scale(k / 128 * padded(p.m) + i);
        const double scale_b = is_tensor ? scale(0)
                               : p.scales == Scales::rows_by_rows
                                   ? scale(k / 128 * padded(p.n) + j)
                                   : scale(j / 128 * padded(blocks_of(p.k)) + k / 128);
        sum += static_cast<double>(value_of(code(i * p.k + k), p.a)) * scale_a *
               static_cast<double>(value_of(code(j * p.k + k), p.b)) * scale_b;
      }
      const double error = static_cast<double>(d[static_cast<size_t>(i * p.n + j)]) - sum;
      squares += sum * sum;
      error_squares += error * error;
    }
  }
  return std::sqrt(error_squares / squares);
}

const char* name_of(Scales s) {
  constexpr std::array names = {"bf16", "tensor", "row x block", "row x row"};
  return names[static_cast<size_t>(s)];
}
const char* name_of(cudaDataType_t t) {
  return t == CUDA_R_8F_E4M3   ? "e4m3"
         : t == CUDA_R_8F_E5M2 ? "e5m2"
         : t == CUDA_R_16BF    ? "bf16"
                               : "f32";
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  Memory memory(int64_t{32768} * 16384 * 4);
  Probe probe(memory);
  std::printf("cuBLASLt %zu\n\nexactness, f32 result, scales as in spec::scale_spec():\n",
              cublasLtGetVersion());
  constexpr auto e4m3 = CUDA_R_8F_E4M3, e5m2 = CUDA_R_8F_E5M2, bf16 = CUDA_R_16BF, f32 = CUDA_R_32F;
  for (const Scales scales : {Scales::tensor, Scales::rows_by_blocks, Scales::rows_by_rows}) {
    for (const int64_t k : {512, 16384}) {
      for (const bool is_fast : {false, true}) {
        for (const auto a : {e4m3, e5m2}) {
          const Problem p = {"exact", 256,     384,           k,    a, e4m3, f32,
                             scales,  is_fast, Problem::none, false};
          const Result r = probe.run(p, false);
          if (r.status == CUBLAS_STATUS_SUCCESS && r.proposed > 0) {
            std::printf("  %-11s %s x e4m3 k %5lld %s: relative error %.2e\n", name_of(scales),
                        name_of(a), static_cast<long long>(k), is_fast ? "fast " : "split",
                        error_of(memory, p));
          } else {
            std::printf("  %-11s %s x e4m3 k %5lld %s: not supported (%s, %d)\n", name_of(scales),
                        name_of(a), static_cast<long long>(k), is_fast ? "fast " : "split",
                        cublasLtGetStatusString(r.status), r.proposed);
          }
        }
      }
    }
  }
  struct Linear {
    int64_t tokens, out, in;
  };
  std::vector<Linear> shapes = {{8192, 8192, 8192}, {16384, 3072, 8192}, {32768, 2048, 16384}};
  if (is_quick) shapes.resize(1);
  for (const auto& [T, out, in] : shapes) {
    std::printf(
        "\nT %lld, out %lld, in %lld: product, operands, result and addend, scales, sums: "
        "proposed, same bits, TFLOP/s, ratio\n",
        static_cast<long long>(T), static_cast<long long>(out), static_cast<long long>(in));
    struct Kind {
      const char* name;
      int64_t m, n, k;
      cudaDataType_t gradient, d;
      Problem::Addend addend;
      bool has_bias;
      Scales block;
    };
    const std::array kinds = {
        Kind{"fprop", T, out, in, e4m3, bf16, Problem::none, false, Scales::rows_by_blocks},
        Kind{"fprop + bias", T, out, in, e4m3, bf16, Problem::none, true, Scales::rows_by_blocks},
        Kind{"fprop + residual", T, out, in, e4m3, bf16, Problem::separate, false,
             Scales::rows_by_blocks},
        Kind{"dgrad", T, in, out, e5m2, bf16, Problem::none, false, Scales::rows_by_blocks},
        Kind{"wgrad", out, in, T, e5m2, f32, Problem::none, false, Scales::rows_by_rows},
        Kind{"wgrad += f32", out, in, T, e5m2, f32, Problem::in_place, false, Scales::rows_by_rows},
        Kind{"wgrad += bf16", out, in, T, e5m2, bf16, Problem::in_place, false,
             Scales::rows_by_rows}};
    for (const Kind& kind : kinds) {
      double bf16_tflops = 0;
      struct Way {
        Scales scales;
        bool is_fast;
        cudaDataType_t a, b;
      };
      for (const Way& way :
           {Way{Scales::none, false, bf16, bf16}, Way{Scales::tensor, true, kind.gradient, e4m3},
            Way{Scales::tensor, false, kind.gradient, e4m3}, Way{kind.block, false, e4m3, e4m3}}) {
        const Problem p = {kind.name, kind.m,     kind.n,      kind.k,      way.a,        way.b,
                           kind.d,    way.scales, way.is_fast, kind.addend, kind.has_bias};
        const Result r = probe.run(p, true);
        if (way.scales == Scales::none) bf16_tflops = r.tflops;
        std::printf("  %-16s %s x %s -> %-4s %-11s %s: ", kind.name, name_of(way.a), name_of(way.b),
                    name_of(kind.d), name_of(way.scales), way.is_fast ? "fast " : "split");
        if (r.tflops > 0) {
          std::printf("%2d %2d %6.0f %5.2f\n", r.proposed, r.same_bits, r.tflops,
                      r.tflops / bf16_tflops);
        } else {
          std::printf("not supported (%s, %d)\n", cublasLtGetStatusString(r.status), r.proposed);
        }
        std::fflush(stdout);
      }
    }
  }
  return 0;
}
