// SPDX-License-Identifier: Apache-2.0
// Attention of documents and of chunks in bf16 on a GPU, whose long parts cuDNN computes, against
// the reference: both modes of determinism, documents of any length, also thousands of tiny ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "device/accelerator.h"
#include "kernels/ops.h"
#include "kernels/tests/op_test.h"
#include "spec/facts/backend.h"

namespace trireme::kernels::cuda_attention_test {
namespace {

struct Shape3 {
  int64_t heads, kv_heads, head_dim;
};

struct Results {
  std::vector<double> o, lse, dq, dk, dv;
};

Machine cuda_machine(bool deterministic) {
  return Machine(device::make_gpu(cuda_kernels(), {.deterministic = deterministic}),
                 spec::cuda_backend(deterministic).stream_workspace_bytes);
}

Tensor scratch_for(Operands& operands, const base::TensorSpec& spec) {
  return spec.shape.ndim() == 0 ? Tensor{} : operands.scratch(spec.shape, spec.dtype);
}

Results documents(Machine& machine, const spec::Backend& backend,
                  const std::vector<int32_t>& lengths, const Shape3& s) {
  Operands operands(1, machine);
  std::vector<int32_t> offsets = {0};
  for (const int32_t length : lengths) offsets.push_back(offsets.back() + length);
  const int64_t T = offsets.back(), H = s.heads, G = s.kv_heads, K = s.head_dim;
  const Make bf16 = {.dtype = DType::bf16};
  const Tensor qkv = operands.input({T, (H + 2 * G) * K}, bf16);
  const Tensor dqkv = operands.result({T, (H + 2 * G) * K}, bf16);
  const auto part = [&](const Tensor& t, int64_t first, int64_t count) {
    return t.slice_heads(first * K, count, K);
  };
  const AttentionForwardArgs forward = {.q = part(qkv, 0, H),
                                        .k = part(qkv, H, G),
                                        .v = part(qkv, H + G, G),
                                        .seq_offsets = operands.integers(offsets),
                                        .sequences = 1,
                                        .max_seq = T,
                                        .scale = 1 / std::sqrt(static_cast<float>(K)),
                                        .o = operands.result({T, H, K}, bf16),
                                        .lse = operands.result({H, T})};
  const spec::AttentionShape shape = {.dtype = DType::bf16,
                                      .seq_len = T,
                                      .heads = H,
                                      .kv_heads = G,
                                      .head_dim = K,
                                      .has_documents = true};
  const Tensor dout = operands.input({T, H, K}, bf16);
  ops::attention_forward(*machine.stream, forward);
  ops::attention_backward(
      *machine.stream,
      {.q = forward.q,
       .k = forward.k,
       .v = forward.v,
       .o = forward.o,
       .dout = dout,
       .lse = forward.lse,
       .seq_offsets = forward.seq_offsets,
       .sequences = 1,
       .max_seq = T,
       .scale = forward.scale,
       .dq = part(dqkv, 0, H),
       .dk = part(dqkv, H, G),
       .dv = part(dqkv, H + G, G),
       .workspace = scratch_for(operands, spec::attention_workspace(backend, shape))});
  machine.stream->synchronize();
  operands.expect_intact();
  return {values_of(forward.o), values_of(forward.lse), values_of(part(dqkv, 0, H)),
          values_of(part(dqkv, H, G)), values_of(part(dqkv, H + G, G))};
}

// A batch of equal sequences.
Results equal_sequences(Machine& machine, const spec::Backend& backend, int64_t sequences,
                        int64_t length, const Shape3& s) {
  Operands operands(1, machine);
  const int64_t T = sequences * length, H = s.heads, G = s.kv_heads, K = s.head_dim;
  std::vector<int32_t> offsets;
  for (int64_t i = 0; i <= sequences; ++i) offsets.push_back(static_cast<int32_t>(i * length));
  const Make bf16 = {.dtype = DType::bf16};
  const Tensor qkv = operands.input({T, (H + 2 * G) * K}, bf16);
  const Tensor dqkv = operands.result({T, (H + 2 * G) * K}, bf16);
  const auto part = [&](const Tensor& t, int64_t first, int64_t count) {
    return t.slice_heads(first * K, count, K);
  };
  const AttentionForwardArgs forward = {.q = part(qkv, 0, H),
                                        .k = part(qkv, H, G),
                                        .v = part(qkv, H + G, G),
                                        .seq_offsets = operands.integers(offsets),
                                        .sequences = sequences,
                                        .max_seq = length,
                                        .has_documents = false,
                                        .scale = 1 / std::sqrt(static_cast<float>(K)),
                                        .o = operands.result({T, H, K}, bf16),
                                        .lse = operands.result({H, T})};
  const spec::AttentionShape shape = {.dtype = DType::bf16,
                                      .sequences = sequences,
                                      .seq_len = length,
                                      .heads = H,
                                      .kv_heads = G,
                                      .head_dim = K};
  const Tensor dout = operands.input({T, H, K}, bf16);
  ops::attention_forward(*machine.stream, forward);
  ops::attention_backward(
      *machine.stream,
      {.q = forward.q,
       .k = forward.k,
       .v = forward.v,
       .o = forward.o,
       .dout = dout,
       .lse = forward.lse,
       .seq_offsets = forward.seq_offsets,
       .sequences = sequences,
       .max_seq = length,
       .has_documents = false,
       .scale = forward.scale,
       .dq = part(dqkv, 0, H),
       .dk = part(dqkv, H, G),
       .dv = part(dqkv, H + G, G),
       .workspace = scratch_for(operands, spec::attention_workspace(backend, shape))});
  machine.stream->synchronize();
  operands.expect_intact();
  return {values_of(forward.o), values_of(forward.lse), values_of(part(dqkv, 0, H)),
          values_of(part(dqkv, H, G)), values_of(part(dqkv, H + G, G))};
}

// Two chunks of a zig-zag slice: rank 1 of 4 has chunks 1 and 6 of 8.
Results chunks(Machine& machine, const spec::Backend& backend, int64_t chunk, const Shape3& s,
               bool accumulates, DType dq_dtype) {
  Operands operands(1, machine);
  const int64_t T = 2 * chunk, N = 8 * chunk, H = s.heads, G = s.kv_heads, K = s.head_dim;
  const std::vector<QueryChunk> list = {{0, chunk, 0, 2 * chunk, true},
                                        {chunk, chunk, 0, 7 * chunk, true}};
  std::vector<int32_t> begin(static_cast<size_t>(T), 0), end;
  for (const QueryChunk& c : list) {
    for (int64_t i = 0; i < c.rows; ++i) {
      end.push_back(static_cast<int32_t>(c.end_key - (c.rows - 1 - i)));
    }
  }
  const Make bf16 = {.dtype = DType::bf16};
  const auto gradient = [&](const Shape& shape, DType dtype) {
    return accumulates ? operands.updated(shape, {.dtype = dtype})
                       : operands.result(shape, {.dtype = dtype});
  };
  const Tensor q = operands.input({T, H, K}, bf16), dout = operands.input({T, H, K}, bf16);
  const Tensor kv = operands.input({N, 2 * G * K}, bf16);
  const Tensor o = operands.result({T, H, K}, bf16), lse = operands.result({H, T});
  const Tensor dq = gradient({T, H, K}, dq_dtype), dkv = gradient({N, 2 * G * K}, DType::f32);
  const Tensor key_begin = operands.integers(begin), key_end = operands.integers(end);
  const auto part = [&](const Tensor& t, int64_t first) { return t.slice_heads(first * K, G, K); };
  const float scale = 1 / std::sqrt(static_cast<float>(K));
  const double pairs = static_cast<double>(std::accumulate(end.begin(), end.end(), int64_t{0}));
  ops::attention_ranges_forward(*machine.stream, {.q = q,
                                                  .k = part(kv, 0),
                                                  .v = part(kv, G),
                                                  .key_begin = key_begin,
                                                  .key_end = key_end,
                                                  .chunks = list,
                                                  .pairs = pairs,
                                                  .scale = scale,
                                                  .o = o,
                                                  .lse = lse});
  const base::TensorSpec workspace =
      spec::attention_ranges_workspace(backend, {.dtype = DType::bf16,
                                                 .grad_dtype = DType::f32,
                                                 .rows = T,
                                                 .keys = N,
                                                 .heads = H,
                                                 .kv_heads = G,
                                                 .head_dim = K});
  ops::attention_ranges_backward(*machine.stream, {.q = q,
                                                   .k = part(kv, 0),
                                                   .v = part(kv, G),
                                                   .o = o,
                                                   .dout = dout,
                                                   .lse = lse,
                                                   .key_begin = key_begin,
                                                   .key_end = key_end,
                                                   .chunks = list,
                                                   .pairs = pairs,
                                                   .scale = scale,
                                                   .dq = dq,
                                                   .dk = part(dkv, 0),
                                                   .dv = part(dkv, G),
                                                   .accumulates = accumulates,
                                                   .workspace = scratch_for(operands, workspace)});
  machine.stream->synchronize();
  operands.expect_intact();
  return {values_of(o), values_of(lse), values_of(dq), values_of(part(dkv, 0)),
          values_of(part(dkv, G))};
}

double distance(const std::vector<double>& found, const std::vector<double>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / size);
}

// The errors of cuDNN are 2.0e-3 for o, 2.5e-3 for dq and 3.0e-3 for dk and dv with grouped
// queries: those of rounding p and ds to bf16. A reference that rounds its results adds 1.1e-3.
void expect_close(const Results& found, const Results& expected) {
  EXPECT_LT(distance(found.o, expected.o), 3e-3);
  EXPECT_LT(distance(found.lse, expected.lse), 1e-5);
  EXPECT_LT(distance(found.dq, expected.dq), 4e-3);
  EXPECT_LT(distance(found.dk, expected.dk), 4.5e-3);
  EXPECT_LT(distance(found.dv, expected.dv), 4.5e-3);
}

void expect_equal(const Results& a, const Results& b) {
  EXPECT_TRUE(a.o == b.o && a.lse == b.lse);
  EXPECT_TRUE(a.dq == b.dq && a.dk == b.dk && a.dv == b.dv);
}

template <typename Run>
void compare(const Run& run) {
  const std::string problem = device::gpu_status().problem;
  if (!problem.empty()) GTEST_SKIP() << problem;
  Machine reference(reference_kernels());
  const Results expected = run(reference, spec::cpu_backend());
  for (const bool deterministic : {true, false}) {
    SCOPED_TRACE(deterministic ? "deterministic" : "fast");
    Machine cuda = cuda_machine(deterministic);
    const Results found = run(cuda, spec::cuda_backend(deterministic));
    expect_close(found, expected);
    if (deterministic) expect_equal(run(cuda, spec::cuda_backend(true)), found);
  }
}

constexpr Shape3 grouped = {4, 1, 128}, pairs_of_heads = {4, 2, 64}, equal_heads = {2, 2, 64};

TEST(CudaAttentionTest, documents_of_any_length) {
  for (const Shape3& shape : {grouped, pairs_of_heads, equal_heads}) {
    SCOPED_TRACE(shape.head_dim * 100 + shape.heads);
    compare([&](Machine& machine, const spec::Backend& backend) {
      return documents(machine, backend, {300, 1, 0, 255, 256, 7, 0, 640, 257, 64, 8, 0, 0}, shape);
    });
  }
}

TEST(CudaAttentionTest, tiny_documents_only) {
  std::vector<int32_t> lengths;
  for (int i = 0; i < 300; ++i) lengths.push_back(i % 6);
  compare([&](Machine& machine, const spec::Backend& backend) {
    return documents(machine, backend, lengths, grouped);
  });
}

TEST(CudaAttentionTest, one_document) {
  compare([&](Machine& machine, const spec::Backend& backend) {
    return documents(machine, backend, {1024}, pairs_of_heads);
  });
}

TEST(CudaAttentionTest, equal_sequences_of_any_length) {
  for (const Shape3& shape : {grouped, pairs_of_heads, equal_heads}) {
    for (const int64_t length : {64, 128, 192, 200, 516}) {
      SCOPED_TRACE(shape.head_dim * 10000 + length);
      compare([&](Machine& machine, const spec::Backend& backend) {
        return equal_sequences(machine, backend, 3, length, shape);
      });
    }
  }
}

// More blocks than the GPU runs at a time, and so few that cuDNN runs instead of Trireme's kernel.
TEST(CudaAttentionTest, many_and_few_long_sequences_have_the_same_bits) {
  const std::string problem = device::gpu_status().problem;
  if (!problem.empty()) GTEST_SKIP() << problem;
  struct Sizes {
    int64_t sequences, length;
    Shape3 shape;
  };
  for (const Sizes& s : {Sizes{6, 1024, {8, 4, 128}}, Sizes{6, 1024, {8, 8, 64}},
                         Sizes{1, 4096, {2, 1, 128}}, Sizes{1, 8192, {2, 1, 64}}}) {
    SCOPED_TRACE(s.length * 1000 + s.shape.head_dim);
    const auto run = [&](Machine& machine, bool deterministic) {
      return equal_sequences(machine, spec::cuda_backend(deterministic), s.sequences, s.length,
                             s.shape);
    };
    Machine cuda = cuda_machine(true), fast = cuda_machine(false);
    const Results first = run(cuda, true);
    for (int i = 0; i < 2; ++i) expect_equal(run(cuda, true), first);
    expect_close(run(fast, false), first);
  }
}

TEST(CudaAttentionTest, chunks_of_a_zigzag_slice) {
  for (const Shape3& shape : {grouped, equal_heads}) {
    for (const bool accumulates : {false, true}) {
      SCOPED_TRACE(shape.head_dim * 10 + (accumulates ? 1 : 0));
      compare([&](Machine& machine, const spec::Backend& backend) {
        return chunks(machine, backend, 128, shape, accumulates,
                      accumulates ? DType::f32 : DType::bf16);
      });
    }
  }
}

}  // namespace
}  // namespace trireme::kernels::cuda_attention_test
