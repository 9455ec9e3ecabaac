// SPDX-License-Identifier: Apache-2.0
// The attention of context parallelism, computed by the ops as P ranks would call them, is the
// attention of the whole batch: with keys gathered and in a ring, for every kind of slice.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"
#include "kernels/tests/ranges_rig_test.h"

namespace trireme::kernels::context_attention_test {
namespace {

using Attend = AttentionResults (*)(const Batch&, const Slices&, Machine&);

struct Bars {
  double o, dq, dkv;
};
// Relative L2 to fp64. Sums of a few hundred fp32 terms are within 1e-6; gradients have two such
// sums and a difference.
constexpr Bars fp32_bars = {1e-6, 1e-5, 1e-5};
// Rounding a result to bf16 gives 1.7e-3; the gradients also read the rounded o.
constexpr Bars bf16_bars = {2.5e-3, 3e-3, 4e-3};

void expect_near(const AttentionResults& found, const AttentionResults& expected,
                 const Bars& bars) {
  EXPECT_LE(relative_error(found.o, expected.o), bars.o) << "o";
  EXPECT_LE(relative_error(found.dq, expected.dq), bars.dq) << "dq";
  EXPECT_LE(relative_error(found.dk, expected.dk), bars.dkv) << "dk";
  EXPECT_LE(relative_error(found.dv, expected.dv), bars.dkv) << "dv";
}

// Lengths of documents that fill `tokens`, uniform in [1, longest].
std::vector<int64_t> random_documents(int64_t tokens, int64_t longest, uint64_t seed) {
  const base::RngKey key = base::rng_key(seed, "documents");
  std::vector<int64_t> lengths;
  for (uint64_t i = 0; tokens > 0; ++i) {
    const auto drawn =
        static_cast<int64_t>(base::rng_below(key, i, static_cast<uint64_t>(longest)));
    lengths.push_back(std::min(tokens, drawn + 1));
    tokens -= lengths.back();
  }
  return lengths;
}

using Slicing = Slices (*)(int64_t tokens, int64_t ranks);

struct SliceKind {
  const char* name;
  Slicing slices;
};
constexpr SliceKind slice_kinds[] = {
    {"zigzag", zigzag_slices}, {"contiguous", contiguous_slices}, {"striped", striped_slices}};

TEST(ContextAttentionTest, slices_of_any_kind_equal_the_whole) {
  const HeadCounts heads = {4, 2, 16};
  // One document; lengths at the borders of chunks; many short ones; tokens that do not divide.
  const std::vector<int64_t> batches[] = {{144},
                                          {1, 5, 7, 9, 1, 49, 71, 1},
                                          random_documents(120, 12, 1),
                                          random_documents(131, 90, 2)};
  for_each_machine([&](Machine& machine) {
    for (const std::vector<int64_t>& lengths : batches) {
      const Batch batch(lengths, heads, DType::f32, 1);
      const AttentionResults expected = naive_attention(batch);
      for (const int64_t ranks : {1, 2, 3, 4, 16}) {
        for (const SliceKind& kind : slice_kinds) {
          SCOPED_TRACE(std::to_string(batch.tokens()) + " tokens, " + std::to_string(ranks) + " " +
                       kind.name);
          const Slices slices = kind.slices(batch.tokens(), ranks);
          expect_near(gathered_attention(batch, slices, machine), expected, fp32_bars);
          expect_near(ring_attention(batch, slices, machine), expected, fp32_bars);
        }
      }
    }
  });
}

TEST(ContextAttentionTest, bf16_is_within_the_bars) {
  const std::vector<int64_t> batches[] = {{256}, random_documents(256, 100, 3)};
  for_each_machine([&](Machine& machine) {
    for (const std::vector<int64_t>& lengths : batches) {
      const Batch batch(lengths, {4, 2, 64}, DType::bf16, 2);
      const AttentionResults expected = naive_attention(batch);
      for (const Attend attend : {gathered_attention, ring_attention}) {
        for (const int64_t ranks : {2, 4}) {
          SCOPED_TRACE(std::to_string(ranks) + " ranks");
          const Slices slices = zigzag_slices(batch.tokens(), ranks);
          expect_near(attend(batch, slices, machine), expected, bf16_bars);
        }
      }
    }
  });
}

TEST(ContextAttentionTest, the_error_of_a_ring_does_not_grow_with_its_size) {
  for_each_machine([](Machine& machine) {
    const Batch batch({256}, {2, 1, 64}, DType::bf16, 3);
    const AttentionResults expected = naive_attention(batch);
    const auto ring = [&](int64_t ranks) {
      return ring_attention(batch, zigzag_slices(batch.tokens(), ranks), machine);
    };
    const AttentionResults small = ring(2), large = ring(16);
    const auto expect_like = [](const char* what, const std::vector<double>& of_16,
                                const std::vector<double>& of_2, const std::vector<double>& exact) {
      // Below 1e-6 they are roundings of fp32 sums, which depend on the compiler.
      EXPECT_LE(relative_error(of_16, exact), std::max(1.5 * relative_error(of_2, exact), 1e-6))
          << what;
    };
    expect_like("o", large.o, small.o, expected.o);
    expect_like("dq", large.dq, small.dq, expected.dq);
    expect_like("dk", large.dk, small.dk, expected.dk);
    expect_like("dv", large.dv, small.dv, expected.dv);
  });
}

// o and dq of a row, on the cpu table, have the bits of attention within sequences, whichever other
// rows the rank has: the layout of context parallelism does not change a gathered forward.
TEST(ContextAttentionTest, a_rank_has_the_bits_of_the_whole_on_the_cpu) {
  const HeadCounts heads = {4, 2, 12};
  Machine machine(cpu_kernels(), {.threads = 2});
  Stream& stream = *machine.stream;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const base::RngKey key = base::rng_key(seed, "rows");
    const int64_t T = 1 + static_cast<int64_t>(base::rng_below(key, 0, 300));
    const DType dtype = seed % 2 == 0 ? DType::f32 : DType::bf16;
    const std::vector<int64_t> lengths = random_documents(T, seed % 3 == 0 ? 10 : T, seed);
    Operands operands(seed);
    const Make make = {.dtype = dtype};
    const auto [H, G, K] = heads;
    const Tensor q = operands.input({T, H, K}, make), k = operands.input({T, G, K}, make);
    const Tensor v = operands.input({T, G, K}, make), dout = operands.input({T, H, K}, make);
    const Tensor o = operands.result({T, H, K}, make), lse = operands.result({H, T});
    const Tensor dq = operands.result({T, H, K}, make);
    const Tensor dkv = operands.result({2 * T, G, K}, make);
    const Tensor scratch = operands.scratch({2 * T * G * K}, DType::f32);
    std::vector<int32_t> offsets = {0}, rows, begins, ends;
    for (const int64_t length : lengths) {
      for (int64_t t = offsets.back(); t < offsets.back() + length; ++t) {
        if (base::rng_below(key, static_cast<uint64_t>(t) + 1, 3) == 0) continue;
        rows.push_back(static_cast<int32_t>(t));
        begins.push_back(offsets.back());
        ends.push_back(static_cast<int32_t>(t + 1));
      }
      offsets.push_back(offsets.back() + static_cast<int32_t>(length));
    }
    if (rows.empty()) continue;
    const Tensor sequences = operands.integers(offsets), picked = operands.integers(rows);
    ops::attention_forward(stream, {.q = q,
                                    .k = k,
                                    .v = v,
                                    .seq_offsets = sequences,
                                    .sequences = std::ssize(lengths),
                                    .max_seq = T,
                                    .o = o,
                                    .lse = lse});
    ops::attention_backward(stream, {.q = q,
                                     .k = k,
                                     .v = v,
                                     .o = o,
                                     .dout = dout,
                                     .lse = lse,
                                     .seq_offsets = sequences,
                                     .sequences = std::ssize(lengths),
                                     .max_seq = T,
                                     .dq = dq,
                                     .dk = dkv.slice_rows(0, T),
                                     .dv = dkv.slice_rows(T, T),
                                     .workspace = scratch});
    const auto pick = [&](const Tensor& x) {
      const Tensor d = operands.result({std::ssize(rows), H * K}, make);
      ops::gather_rows(stream, {.x = x.as_matrix(), .rows = picked, .d = d});
      return d.reshape({std::ssize(rows), H, K});
    };
    const Tensor rank_q = pick(q), rank_dout = pick(dout);
    const Tensor rank_o = operands.result(rank_q.shape, make);
    const Tensor rank_lse = operands.result({H, std::ssize(rows)});
    const Tensor rank_dq = operands.result(rank_q.shape, make);
    const Tensor key_begin = operands.integers(begins), key_end = operands.integers(ends);
    ops::attention_ranges_forward(stream, {.q = rank_q,
                                           .k = k,
                                           .v = v,
                                           .key_begin = key_begin,
                                           .key_end = key_end,
                                           .o = rank_o,
                                           .lse = rank_lse});
    ops::attention_ranges_backward(stream, {.q = rank_q,
                                            .k = k,
                                            .v = v,
                                            .o = rank_o,
                                            .dout = rank_dout,
                                            .lse = rank_lse,
                                            .key_begin = key_begin,
                                            .key_end = key_end,
                                            .dq = rank_dq,
                                            .dk = dkv.slice_rows(0, T),
                                            .dv = dkv.slice_rows(T, T),
                                            .workspace = scratch});
    EXPECT_EQ(values_of(rank_o), values_of(pick(o)));
    EXPECT_EQ(values_of(rank_dq), values_of(pick(dq)));
    if (HasFailure()) return;
  }
}

class CostRecorder final : public OpObserver {
 public:
  void op(const Stream&, const spec::OpCost& cost) override { costs.push_back(cost); }
  std::vector<spec::OpCost> costs;
};

// T = 4 rows, N = 6 keys, H = 4, G = 2, K = 8, 10 pairs; bf16 operands.
TEST(ContextAttentionTest, costs_count_the_pairs_that_the_caller_states) {
  Machine machine(null_kernels());
  CostRecorder recorder;
  machine.stream->set_observer(&recorder);
  Operands operands(1);
  const Make bf16 = {.dtype = DType::bf16};
  const Tensor q = operands.input({4, 4, 8}, bf16), k = operands.input({6, 2, 8}, bf16);
  const Tensor begin = operands.integers({0, 0, 0, 0}), end = operands.integers({1, 2, 3, 4});
  const Tensor o = operands.result({4, 4, 8}), lse = operands.result({4, 4});
  const Tensor dkv = operands.result({6, 2, 8});
  ops::attention_ranges_forward(*machine.stream, {.q = q,
                                                  .k = k,
                                                  .v = k,
                                                  .key_begin = begin,
                                                  .key_end = end,
                                                  .pairs = 10,
                                                  .o = o,
                                                  .lse = lse});
  ops::attention_ranges_backward(*machine.stream, {.q = q,
                                                   .k = k,
                                                   .v = k,
                                                   .o = q,
                                                   .dout = q,
                                                   .lse = lse,
                                                   .key_begin = begin,
                                                   .key_end = end,
                                                   .pairs = 10,
                                                   .dq = o,
                                                   .dk = dkv,
                                                   .dv = dkv,
                                                   .accumulates = true});
  ops::attention_merge(*machine.stream, {.part = o, .part_lse = lse, .o = o, .lse = lse});
  ops::gather_rows(*machine.stream, {.x = q.as_matrix(), .rows = begin, .d = q.as_matrix()});
  using spec::OpKind;
  constexpr int64_t q_bytes = 256, kv_bytes = 192, o_bytes = 512, lse_bytes = 64, dkv_bytes = 384;
  const std::vector<spec::OpCost> expected = {
      {.kind = OpKind::attention_ranges_forward,
       .m = 4,
       .n = 6,
       .k = 8,
       .dtype = DType::bf16,
       .flops = 4.0 * 10 * 4 * 8,
       .bytes = q_bytes + 2 * kv_bytes + o_bytes + lse_bytes},
      {.kind = OpKind::attention_ranges_backward,
       .m = 4,
       .n = 6,
       .k = 8,
       .dtype = DType::bf16,
       .flops = 10.0 * 10 * 4 * 8,
       .bytes = 3 * q_bytes + 2 * kv_bytes + lse_bytes + 2 * (o_bytes + 2 * dkv_bytes)},
      {.kind = OpKind::attention_merge, .m = 4, .n = 32, .bytes = 3 * (o_bytes + lse_bytes)},
      {.kind = OpKind::gather_rows,
       .m = 4,
       .n = 32,
       .dtype = DType::bf16,
       .bytes = 2 * q_bytes + 16}};
  ASSERT_EQ(recorder.costs.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(recorder.costs[i], expected[i]) << spec::to_string(recorder.costs[i]);
  }
}

}  // namespace
}  // namespace trireme::kernels::context_attention_test
