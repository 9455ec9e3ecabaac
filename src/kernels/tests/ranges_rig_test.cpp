// SPDX-License-Identifier: Apache-2.0
#include "kernels/tests/ranges_rig_test.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/ops.h"
#include "kernels/reference/matrix.h"
#include "spec/facts/backend.h"

namespace trireme::kernels {
namespace {

// One rank: its rows of the batch as tensors, and its results.
struct Rank {
  std::vector<int64_t> rows;
  Tensor q, k, v, dout;  // of its rows
  Tensor o, lse;         // fp32 while parts are merged
  Tensor stored_o;       // o in the type of q, as training stores it
  Tensor dq, dk, dv;     // fp32
};

size_t at(int64_t index) { return static_cast<size_t>(index); }

// The given rows of `values` [tokens, heads, size] as an operand.
Tensor rows_of(Operands& operands, const std::vector<double>& values, int64_t heads, int64_t size,
               const std::vector<int64_t>& rows, DType dtype) {
  const int64_t width = heads * size;
  return operands.input({static_cast<int64_t>(rows.size()), heads, size},
                        {.dtype = dtype, .gap = 8},
                        [&](int64_t r, int64_t c) { return values[at(rows[at(r)] * width + c)]; });
}

Tensor filled(Operands& operands, const Shape& shape, double value) {
  return operands.input(shape, {}, [value](int64_t, int64_t) { return value; });
}

// to[rows[i]] += part[i].
void add_rows(const Tensor& part, const std::vector<int64_t>& rows, std::vector<double>& to) {
  const std::vector<double> values = values_of(part);
  const int64_t width = part.cols();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto element = static_cast<int64_t>(i);
    to[at(rows[at(element / width)] * width + element % width)] += values[i];
  }
}

// The keys of `source`, by their index in it, that the rows see.
std::vector<RowRange> seen_keys(const Batch& b, const std::vector<int64_t>& rows,
                                const std::vector<int64_t>& source) {
  std::vector<RowRange> ranges;
  const auto index_of = [&](int64_t row) {
    return static_cast<int32_t>(std::ranges::lower_bound(source, row) - source.begin());
  };
  for (const int64_t row : rows) {
    ranges.push_back({index_of(b.document_begin[at(row)]), index_of(row + 1)});
  }
  return ranges;
}

std::vector<int64_t> all_rows(int64_t tokens) {
  std::vector<int64_t> rows;
  for (int64_t t = 0; t < tokens; ++t) rows.push_back(t);
  return rows;
}

Rank make_rank(const Batch& b, const std::vector<int64_t>& rows, Operands& operands) {
  const auto T = static_cast<int64_t>(rows.size());
  const auto [H, G, K] = b.heads;
  Rank rank;
  rank.rows = rows;
  rank.q = rows_of(operands, b.q, H, K, rows, b.dtype);
  rank.k = rows_of(operands, b.k, G, K, rows, b.dtype);
  rank.v = rows_of(operands, b.v, G, K, rows, b.dtype);
  rank.dout = rows_of(operands, b.dout, H, K, rows, b.dtype);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  rank.o = filled(operands, {T, H, K}, nan);
  rank.lse = filled(operands, {H, T}, -std::numeric_limits<double>::infinity());
  rank.stored_o = operands.result({T, H, K}, {.dtype = b.dtype});
  rank.dq = filled(operands, {T, H, K}, 0);
  rank.dk = filled(operands, {T, G, K}, 0);
  rank.dv = filled(operands, {T, G, K}, 0);
  return rank;
}

struct Keys {
  Tensor k, v;
  std::vector<RowRange> ranges;
};

void forward(const Batch& b, const Rank& rank, const Keys& keys, const Tensor& o, const Tensor& lse,
             Operands& operands, Stream& stream) {
  ops::attention_ranges_forward(stream, {.q = rank.q,
                                         .k = keys.k,
                                         .v = keys.v,
                                         .key_begin = operands.integers(begins_of(keys.ranges)),
                                         .key_end = operands.integers(ends_of(keys.ranges)),
                                         .pairs = pairs_of(keys.ranges),
                                         .scale = b.scale(),
                                         .o = o,
                                         .lse = lse});
}

struct Gradients {
  Tensor dq, dk, dv;
  bool accumulates = false;
};

void backward(const Batch& b, const Rank& rank, const Keys& keys, const Gradients& grads,
              Operands& operands, Stream& stream) {
  const RangesCall call = {b.dtype, grads.dk.dtype, static_cast<int64_t>(rank.rows.size()),
                           keys.k.rows(), b.heads};
  ops::attention_ranges_backward(stream, {.q = rank.q,
                                          .k = keys.k,
                                          .v = keys.v,
                                          .o = rank.stored_o,
                                          .dout = rank.dout,
                                          .lse = rank.lse,
                                          .key_begin = operands.integers(begins_of(keys.ranges)),
                                          .key_end = operands.integers(ends_of(keys.ranges)),
                                          .pairs = pairs_of(keys.ranges),
                                          .scale = b.scale(),
                                          .dq = grads.dq,
                                          .dk = grads.dk,
                                          .dv = grads.dv,
                                          .accumulates = grads.accumulates,
                                          .workspace = ranges_workspace(call, operands, stream)});
}

AttentionResults zero_results(const Batch& b) {
  const auto zeros = [](size_t count) { return std::vector<double>(count, 0.0); };
  return {zeros(b.q.size()), zeros(b.q.size()), zeros(b.k.size()), zeros(b.k.size())};
}

}  // namespace

std::vector<int32_t> begins_of(const std::vector<RowRange>& ranges) {
  std::vector<int32_t> list;
  for (const RowRange& r : ranges) list.push_back(r.begin);
  return list;
}

std::vector<int32_t> ends_of(const std::vector<RowRange>& ranges) {
  std::vector<int32_t> list;
  for (const RowRange& r : ranges) list.push_back(r.end);
  return list;
}

double pairs_of(const std::vector<RowRange>& ranges) {
  double pairs = 0;
  for (const RowRange& r : ranges) pairs += std::max(0, r.end - r.begin);
  return pairs;
}

Tensor ranges_workspace(const RangesCall& call, Operands& operands, const Stream& stream) {
  const spec::AttentionRangesShape shape = {.dtype = call.dtype,
                                            .grad_dtype = call.grad_dtype,
                                            .rows = call.rows,
                                            .keys = call.keys,
                                            .heads = call.heads.query,
                                            .kv_heads = call.heads.key,
                                            .head_dim = call.heads.size};
  base::TensorSpec spec = spec::attention_ranges_workspace(spec::cpu_backend(), shape);
  if (&stream.device().kernels() == &cuda_kernels()) {
    const base::TensorSpec fast =
        spec::attention_ranges_workspace(spec::cuda_backend(false), shape);
    spec = spec::attention_ranges_workspace(spec::cuda_backend(true), shape);
    const auto elements = [](const base::TensorSpec& s) {
      return s.shape.ndim() == 0 ? 0 : s.shape.elements();
    };
    if (elements(fast) > elements(spec)) spec = fast;
  }
  const bool is_absent = spec.shape.ndim() == 0;
  const Tensor scratch = operands.scratch(is_absent ? Shape{1} : spec.shape, DType::f32);
  return is_absent ? Tensor{} : scratch;
}

Batch::Batch(const std::vector<int64_t>& lengths, const HeadCounts& head_counts, DType type,
             uint64_t seed)
    : heads(head_counts), dtype(type) {
  for (const int64_t length : lengths) {
    document_begin.insert(document_begin.end(), at(length), tokens());
  }
  uint64_t next = 0;
  const base::RngKey key = base::rng_key(seed, "batch");
  const auto fill = [&](std::vector<double>& values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const float x = base::rng_normal(key, next++, 1);
      values.push_back(reference::rounded_to(dtype, static_cast<double>(x)));
    }
  };
  fill(q, tokens() * heads.query * heads.size);
  fill(k, tokens() * heads.key * heads.size);
  fill(v, tokens() * heads.key * heads.size);
  fill(dout, tokens() * heads.query * heads.size);
}

float Batch::scale() const { return 1 / std::sqrt(static_cast<float>(heads.size)); }

AttentionResults naive_attention(const Batch& b) {
  const auto [H, G, K] = b.heads;
  const int64_t T = b.tokens();
  const auto scale = static_cast<double>(b.scale());
  AttentionResults r = zero_results(b);
  std::vector<double> p(at(T)), dp(at(T));
  for (int64_t h = 0; h < H; ++h) {
    for (int64_t t = 0; t < T; ++t) {
      const int64_t query = (t * H + h) * K;
      const auto key_at = [&](int64_t s) { return (s * G + h / (H / G)) * K; };
      double sum = 0, delta = 0;
      for (int64_t s = 0; s < T; ++s) {
        const bool is_seen = b.document_begin[at(s)] == b.document_begin[at(t)] && s <= t;
        double score = 0;
        dp[at(s)] = 0;
        for (int64_t i = 0; i < K; ++i) {
          score += b.q[at(query + i)] * b.k[at(key_at(s) + i)];
          dp[at(s)] += b.dout[at(query + i)] * b.v[at(key_at(s) + i)];
        }
        p[at(s)] = is_seen ? std::exp(scale * score) : 0;
        sum += p[at(s)];
      }
      for (int64_t s = 0; s < T; ++s) {
        p[at(s)] /= sum;
        delta += p[at(s)] * dp[at(s)];
      }
      for (int64_t s = 0; s < T; ++s) {
        const double ds = scale * p[at(s)] * (dp[at(s)] - delta);
        for (int64_t i = 0; i < K; ++i) {
          r.o[at(query + i)] += p[at(s)] * b.v[at(key_at(s) + i)];
          r.dq[at(query + i)] += ds * b.k[at(key_at(s) + i)];
          r.dk[at(key_at(s) + i)] += ds * b.q[at(query + i)];
          r.dv[at(key_at(s) + i)] += p[at(s)] * b.dout[at(query + i)];
        }
      }
    }
  }
  return r;
}

Slices zigzag_slices(int64_t tokens, int64_t ranks) {
  Slices slices(at(ranks));
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t chunk = t * 2 * ranks / tokens;
    slices[at(std::min(chunk, 2 * ranks - 1 - chunk))].push_back(t);
  }
  return slices;
}

Slices contiguous_slices(int64_t tokens, int64_t ranks) {
  Slices slices(at(ranks));
  for (int64_t t = 0; t < tokens; ++t) slices[at(t * ranks / tokens)].push_back(t);
  return slices;
}

Slices striped_slices(int64_t tokens, int64_t ranks) {
  Slices slices(at(ranks));
  for (int64_t t = 0; t < tokens; ++t) slices[at(t % ranks)].push_back(t);
  return slices;
}

AttentionResults gathered_attention(const Batch& b, const Slices& slices, Machine& machine) {
  const std::vector<int64_t> everything = all_rows(b.tokens());
  AttentionResults results = zero_results(b);
  for (const std::vector<int64_t>& rows : slices) {
    Operands operands(1, machine);
    Stream& stream = *machine.stream;
    const Rank rank = make_rank(b, rows, operands);
    const auto [H, G, K] = b.heads;
    const Keys keys = {rows_of(operands, b.k, G, K, everything, b.dtype),
                       rows_of(operands, b.v, G, K, everything, b.dtype),
                       seen_keys(b, rows, everything)};
    const Make make = {.dtype = b.dtype};
    const Gradients grads = {operands.result(rank.q.shape, make),
                             operands.result(keys.k.shape, make),
                             operands.result(keys.v.shape, make)};
    forward(b, rank, keys, rank.stored_o, rank.lse, operands, stream);
    backward(b, rank, keys, grads, operands, stream);
    stream.synchronize();
    add_rows(rank.stored_o, rows, results.o);
    add_rows(grads.dq, rows, results.dq);
    add_rows(grads.dk, everything, results.dk);
    add_rows(grads.dv, everything, results.dv);
  }
  return results;
}

AttentionResults ring_attention(const Batch& b, const Slices& slices, Machine& machine) {
  Operands operands(1, machine);
  Stream& stream = *machine.stream;
  std::vector<Rank> ranks;
  for (const std::vector<int64_t>& rows : slices) ranks.push_back(make_rank(b, rows, operands));
  // In the order of a ring: rank r receives the keys of r, r - 1, r - 2, ...
  const auto for_each_step = [&](const std::function<void(Rank&, Rank&)>& body) {
    for (size_t step = 0; step < ranks.size(); ++step) {
      for (size_t r = 0; r < ranks.size(); ++r) {
        body(ranks[r], ranks[(r + ranks.size() - step) % ranks.size()]);
      }
    }
  };
  for_each_step([&](Rank& rank, Rank& source) {
    const Tensor part = operands.result(rank.o.shape), part_lse = operands.result(rank.lse.shape);
    forward(b, rank, {source.k, source.v, seen_keys(b, rank.rows, source.rows)}, part, part_lse,
            operands, stream);
    ops::attention_merge(stream,
                         {.part = part, .part_lse = part_lse, .o = rank.o, .lse = rank.lse});
  });
  for (Rank& rank : ranks) ops::copy(stream, {.x = rank.o, .d = rank.stored_o});
  for_each_step([&](Rank& rank, Rank& source) {
    backward(b, rank, {source.k, source.v, seen_keys(b, rank.rows, source.rows)},
             {rank.dq, source.dk, source.dv, true}, operands, stream);
  });
  const auto stored = [&](const Tensor& sum) {
    const Tensor rounded = operands.result(sum.shape, {.dtype = b.dtype});
    ops::copy(stream, {.x = sum, .d = rounded});
    stream.synchronize();
    return rounded;
  };
  AttentionResults results = zero_results(b);
  stream.synchronize();  // stored_o is read by the host
  for (const Rank& rank : ranks) {
    add_rows(rank.stored_o, rank.rows, results.o);
    add_rows(stored(rank.dq), rank.rows, results.dq);
    add_rows(stored(rank.dk), rank.rows, results.dk);
    add_rows(stored(rank.dv), rank.rows, results.dv);
  }
  return results;
}

double relative_error(const std::vector<double>& x, const std::vector<double>& expected) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - expected[i]) * (x[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace trireme::kernels
