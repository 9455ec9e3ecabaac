// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"
#include "spec/facts/backend.h"

namespace trireme::kernels::attention_test {
namespace {

struct Heads {
  int64_t query, key, size;
};

struct Problem {
  std::vector<int32_t> lengths;  // of the sequences
  Heads heads;
  DType dtype = DType::f32;
  bool causal = true;
  bool has_documents = true;

  int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  int64_t max_seq() const { return *std::max_element(lengths.begin(), lengths.end()); }
  float scale() const { return 1 / std::sqrt(static_cast<float>(heads.size)); }
  // Rows for a library's kernel are aligned to 16 bytes; others need not be.
  int64_t gap(int64_t elements) const { return has_documents ? elements : 8; }
  std::vector<int32_t> offsets() const {
    std::vector<int32_t> list = {0};
    for (const int32_t length : lengths) list.push_back(list.back() + length);
    return list;
  }
};

// q, k and v in rows of (H + 2 G) K elements, as the fused projection writes them.
struct Fused {
  Tensor q, k, v;

  Fused(const Tensor& rows, const Heads& heads)
      : q(rows.slice_heads(0, heads.query, heads.size)),
        k(rows.slice_heads(heads.query * heads.size, heads.key, heads.size)),
        v(rows.slice_heads((heads.query + heads.key) * heads.size, heads.key, heads.size)) {}
};

int64_t fused_width(const Heads& heads) { return (heads.query + 2 * heads.key) * heads.size; }

AttentionForwardArgs forward_args(const Problem& p, const Fused& in, const Tensor& offsets) {
  return {.q = in.q,
          .k = in.k,
          .v = in.v,
          .seq_offsets = offsets,
          .sequences = static_cast<int64_t>(p.lengths.size()),
          .max_seq = p.max_seq(),
          .has_documents = p.has_documents,
          .scale = p.scale(),
          .causal = p.causal,
          .o = {},
          .lse = {}};
}

// Scratch of the backward on the device of `stream`; on a GPU enough for either of its modes.
Tensor workspace_for(const Problem& p, Operands& operands, const Stream& stream) {
  const bool is_even = !p.has_documents;
  const spec::AttentionShape shape = {.dtype = p.dtype,
                                      .sequences = is_even ? std::ssize(p.lengths) : 1,
                                      .seq_len = is_even ? p.max_seq() : p.tokens(),
                                      .heads = p.heads.query,
                                      .kv_heads = p.heads.key,
                                      .head_dim = p.heads.size,
                                      .has_documents = p.has_documents};
  base::TensorSpec workspace = spec::attention_workspace(spec::cpu_backend(), shape);
  if (&stream.device().kernels() == &cuda_kernels()) {
    const base::TensorSpec fast = spec::attention_workspace(spec::cuda_backend(false), shape);
    workspace = spec::attention_workspace(spec::cuda_backend(true), shape);
    if (fast.shape.elements() > workspace.shape.elements()) workspace = fast;
  }
  // All tables have the same number of operands, so that they can be compared.
  const bool is_absent = workspace.shape.ndim() == 0;
  const Tensor scratch = operands.scratch(is_absent ? Shape{1} : workspace.shape, DType::f32);
  return is_absent ? Tensor{} : scratch;
}

void forward(const Problem& p, Operands& operands, Stream& stream) {
  const int64_t T = p.tokens(), H = p.heads.query, K = p.heads.size;
  const Make packed = {.dtype = p.dtype, .gap = p.gap(3)};
  const Fused in(operands.input({T, fused_width(p.heads)}, packed), p.heads);
  AttentionForwardArgs args = forward_args(p, in, operands.integers(p.offsets()));
  args.o = operands.result({T, H, K}, {.dtype = p.dtype, .gap = p.gap(2), .terms = p.max_seq()});
  args.lse = operands.result({H, T}, {.terms = p.max_seq()});
  ops::attention_forward(stream, args);
}

void backward(const Problem& p, Operands& operands, Stream& stream) {
  const int64_t T = p.tokens(), H = p.heads.query, G = p.heads.key, K = p.heads.size;
  const Make packed = {.dtype = p.dtype, .gap = p.gap(3)};
  const Fused in(operands.input({T, fused_width(p.heads)}, packed), p.heads);
  const Tensor o = operands.input({T, H, K}, {.dtype = p.dtype});
  const Tensor lse = operands.input({H, T}), offsets = operands.integers(p.offsets());
  operands.prepare([&](Stream& reference) {
    AttentionForwardArgs args = forward_args(p, in, offsets);
    args.o = o;
    args.lse = lse;
    ops::attention_forward(reference, args);
  });
  // A query that sees one key has the gradient of a constant: terms of size one that cancel.
  const Make out = {
      .dtype = p.dtype, .gap = p.gap(1), .terms = p.max_seq() * H / G + K, .floor = 1};
  const Fused grads(operands.result({T, fused_width(p.heads)}, out), p.heads);
  AttentionBackwardArgs args{.q = in.q,
                             .k = in.k,
                             .v = in.v,
                             .o = o,
                             .dout = operands.input({T, H, K}, {.dtype = p.dtype, .gap = p.gap(5)}),
                             .lse = lse,
                             .seq_offsets = offsets,
                             .sequences = static_cast<int64_t>(p.lengths.size()),
                             .max_seq = p.max_seq(),
                             .has_documents = p.has_documents,
                             .scale = p.scale(),
                             .causal = p.causal,
                             .dq = grads.q,
                             .dk = grads.k,
                             .dv = grads.v};
  args.workspace = workspace_for(p, operands, stream);
  ops::attention_backward(stream, args);
}

std::vector<Case> cases(void (*row)(const Problem&, Operands&, Stream&)) {
  const std::vector<std::vector<int32_t>> batches = {
      {1}, {2}, {1, 1, 1}, {7, 0, 3, 1, 0, 17}, {0, 33}, {65, 64, 0}, {130}};
  const Heads head_counts[] = {{1, 1, 4}, {4, 2, 8}, {6, 2, 7}, {2, 1, 64}};
  std::vector<Case> list;
  const auto add = [&](const Problem& p) {
    list.push_back(
        {fmt::format("{} tokens in {} sequences{}, heads {}/{} of {}, {}{}", p.tokens(),
                     p.lengths.size(), p.has_documents ? "" : " of equal length", p.heads.query,
                     p.heads.key, p.heads.size, base::name_of(p.dtype), p.causal ? ", causal" : ""),
         [=](Operands& o, Stream& s) { row(p, o, s); }});
  };
  for (const auto& lengths : batches) {
    for (const Heads& heads : head_counts) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        for (const bool causal : {true, false}) {
          if (lengths[0] >= 130 && (heads.query > 4 || !causal)) continue;  // for time
          add({lengths, heads, dtype, causal});
        }
      }
    }
  }
  // Wide heads, and the cases that cuDNN computes: bf16 and f16 sequences of equal length.
  add({{9, 40}, {3, 1, 20}, DType::f32});
  add({{70}, {2, 2, 100}, DType::bf16});
  add({{33, 4}, {1, 1, 256}, DType::f32, false});
  for (const Heads& heads : {Heads{2, 2, 64}, {4, 1, 64}, {2, 1, 128}}) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      add({{64, 64}, heads, dtype, true, false});
      add({{100}, heads, dtype, true, false});
    }
    add({{66, 66}, heads, DType::f32, true, false});
  }
  add({{65, 65}, {2, 1, 64}, DType::bf16, false, false});
  return list;
}

TEST(AttentionTest, cpu_forward_agrees_with_the_reference) { expect_cpu_agrees(cases(forward)); }

TEST(AttentionTest, cpu_backward_agrees_with_the_reference) { expect_cpu_agrees(cases(backward)); }

TEST(AttentionTest, cuda_forward_agrees_with_the_reference) { expect_cuda_agrees(cases(forward)); }

TEST(AttentionTest, cuda_backward_agrees_with_the_reference) {
  expect_cuda_agrees(cases(backward));
}

TEST(AttentionTest, bits_do_not_depend_on_threads) {
  std::vector<Case> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool causal : {true, false}) {
      for (const auto& lengths : {std::vector<int32_t>{7, 0, 3, 1, 97}, {140}}) {
        const Problem p = {lengths, {4, 2, 8}, dtype, causal};
        list.push_back({"forward", [=](Operands& o, Stream& s) { forward(p, o, s); }});
        list.push_back({"backward", [=](Operands& o, Stream& s) { backward(p, o, s); }});
      }
    }
  }
  expect_bits_do_not_depend_on_threads(list);
}

TEST(AttentionTest, everything_has_the_gradient_of_finite_differences) {
  Machine machine(reference_kernels());
  const Kernels& rows = machine.device.kernels();
  for (const bool causal : {true, false}) {
    SCOPED_TRACE(causal ? "causal" : "full");
    const Problem p = {{4, 0, 1, 3}, {4, 2, 3}, DType::f64, causal};
    const int64_t T = p.tokens(), H = p.heads.query, G = p.heads.key, K = p.heads.size;
    Operands indices(1);
    const Tensor offsets = indices.integers(p.offsets());
    Reals q({T, H, K}, 1), k({T, G, K}, 2), v({T, G, K}, 3), weights({T, H, K}, 4);
    Reals o({T, H, K}), lse({H, T});
    const auto loss = [&] {
      rows.attention_forward(*machine.stream, {.q = q.tensor,
                                               .k = k.tensor,
                                               .v = v.tensor,
                                               .seq_offsets = offsets,
                                               .max_seq = p.max_seq(),
                                               .scale = p.scale(),
                                               .causal = causal,
                                               .o = o.tensor,
                                               .lse = lse.tensor});
      return inner(weights, o);
    };
    loss();
    Reals dq({T, H, K}), dk({T, G, K}), dv({T, G, K});
    rows.attention_backward(*machine.stream, {.q = q.tensor,
                                              .k = k.tensor,
                                              .v = v.tensor,
                                              .o = o.tensor,
                                              .dout = weights.tensor,
                                              .lse = lse.tensor,
                                              .seq_offsets = offsets,
                                              .max_seq = p.max_seq(),
                                              .scale = p.scale(),
                                              .causal = causal,
                                              .dq = dq.tensor,
                                              .dk = dk.tensor,
                                              .dv = dv.tensor});
    expect_gradient("q", q, dq, loss);
    expect_gradient("k", k, dk, loss);
    expect_gradient("v", v, dv, loss);
  }
}

// A sequence between neighbours with huge values has the same results as alone.
TEST(AttentionTest, sequences_never_mix) {
  const Heads heads = {4, 2, 8};
  const Problem alone = {{37}, heads}, among = {{21, 37, 5}, heads};
  const int64_t first = 21;
  for (const bool causal : {true, false}) {
    for_each_table([&](Stream& stream) {
      const auto results = [&](Problem p, int64_t begin) {
        p.causal = causal;
        Operands operands(1);
        const Tensor rows =
            operands.input({p.tokens(), fused_width(heads)}, {}, [&](int64_t t, int64_t c) {
              const int64_t at = (t - begin) * fused_width(heads) + c;
              if (t < begin || t >= begin + 37) return 1e18;
              return static_cast<double>(base::rng_normal(5, static_cast<uint64_t>(at), 1));
            });
        const Fused in(rows, heads);
        const Shape shape = {p.tokens(), heads.query, heads.size};
        const Tensor offsets = operands.integers(p.offsets());
        AttentionForwardArgs args = forward_args(p, in, offsets);
        args.o = operands.result(shape);
        args.lse = operands.result({heads.query, p.tokens()});
        ops::attention_forward(stream, args);

        const Fused grads(operands.result({p.tokens(), fused_width(heads)}), heads);
        const Tensor dout = operands.input(shape, {}, [&](int64_t t, int64_t c) {
          return static_cast<double>(base::rng_normal(6, static_cast<uint64_t>(t - begin + c), 1));
        });
        const Tensor workspace = workspace_for(p, operands, stream);
        ops::attention_backward(stream, {.q = in.q,
                                         .k = in.k,
                                         .v = in.v,
                                         .o = args.o,
                                         .dout = dout,
                                         .lse = args.lse,
                                         .seq_offsets = offsets,
                                         .max_seq = p.max_seq(),
                                         .scale = p.scale(),
                                         .causal = causal,
                                         .dq = grads.q,
                                         .dk = grads.k,
                                         .dv = grads.v,
                                         .workspace = workspace});
        std::vector<double> all;
        for (const Tensor& t : {args.o, grads.q, grads.k, grads.v}) {
          const std::vector<double> part = values_of(t.slice_rows(begin, 37));
          all.insert(all.end(), part.begin(), part.end());
        }
        return all;
      };
      const std::vector<double> expected = results(alone, 0), found = results(among, first);
      ASSERT_EQ(expected.size(), found.size());
      for (size_t i = 0; i < found.size(); ++i) {
        // Blocks may begin at other tokens in the longer batch, so the order of sums may differ.
        EXPECT_NEAR(found[i], expected[i], 2e-5) << "element " << i;
      }
    });
  }
}

TEST(AttentionTest, a_query_that_sees_one_key_copies_its_value) {
  for_each_table([](Stream& stream) {
    const Problem p = {{1, 1, 1}, {2, 1, 4}};
    Operands operands(3);
    const Fused in(operands.input({3, fused_width(p.heads)}), p.heads);
    AttentionForwardArgs args = forward_args(p, in, operands.integers(p.offsets()));
    args.o = operands.result({3, 2, 4});
    args.lse = operands.result({2, 3});
    ops::attention_forward(stream, args);
    const std::vector<double> v = values_of(in.v), o = values_of(args.o);
    for (size_t t = 0; t < 3; ++t) {
      for (size_t i = 0; i < 8; ++i) EXPECT_EQ(o[t * 8 + i], v[t * 4 + i % 4]);
    }
  });
}

}  // namespace
}  // namespace trireme::kernels::attention_test
