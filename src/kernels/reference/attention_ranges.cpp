// SPDX-License-Identifier: Apache-2.0
// o = softmax(scale q k^T) v over a range of keys for each row, its backward (with p the softmax
// over the keys of all calls, from lse):
//   dv = p^T dout;  dp = dout v^T;  ds = p (dp - sum over K of dout * o);
//   dq = scale ds k;  dk = scale ds^T q,
// and the merge of attention over disjoint sets of keys.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"

namespace trireme::kernels::reference {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

struct KeyRange {
  int64_t begin = 0, end = 0;  // begin >= end: no keys
};

// The range of each row. Chunks, if there are any, must describe the same ranges.
std::vector<KeyRange> ranges_of(const ConstTensor& key_begin, const ConstTensor& key_end,
                                const std::vector<QueryChunk>& chunks, int64_t keys) {
  std::vector<KeyRange> ranges;
  for (int64_t t = 0; t < key_begin.rows(); ++t) {
    ranges.push_back({read_index(key_begin, t), read_index(key_end, t)});
    TRIREME_CHECK(ranges.back().begin >= 0 && ranges.back().end <= keys,
                  "row {} sees keys [{}, {}) of {}", t, ranges.back().begin, ranges.back().end,
                  keys);
  }
  for (const QueryChunk& c : chunks) {
    for (int64_t i = 0; i < c.rows; ++i) {
      const int64_t end = c.causal ? c.end_key - (c.rows - 1 - i) : c.end_key;
      const KeyRange& range = ranges[static_cast<size_t>(c.first_row + i)];
      const bool both_empty = range.begin >= range.end && c.first_key >= end;
      TRIREME_CHECK(both_empty || (range.begin == c.first_key && range.end == end),
                    "row {} sees keys [{}, {}), its chunk has [{}, {})", c.first_row + i,
                    range.begin, range.end, c.first_key, end);
    }
  }
  return ranges;
}

// Calls body(h, g, query, range) for every query head and row, with its key head and keys.
template <typename Args, typename Body>
void for_each_ranged_query(const Args& args, const std::vector<QueryChunk>& chunks, Body&& body) {
  const int64_t H = args.q.shape[1], G = args.k.shape[1];
  const std::vector<KeyRange> ranges =
      ranges_of(args.key_begin, args.key_end, chunks, args.k.rows());
  for (int64_t h = 0; h < H; ++h) {
    for (int64_t t = 0; t < args.q.rows(); ++t) {
      body(h, h / (H / G), t, ranges[static_cast<size_t>(t)]);
    }
  }
}

double head_product(const Matrix& a, int64_t row_a, int64_t head_a, const Matrix& b, int64_t row_b,
                    int64_t head_b, int64_t K) {
  double sum = 0;
  for (int64_t i = 0; i < K; ++i) sum += a(row_a, head_a * K + i) * b(row_b, head_b * K + i);
  return sum;
}

void ranges_forward(const AttentionRangesForwardArgs& args, const std::vector<QueryChunk>& chunks) {
  const int64_t K = args.q.shape[2];
  const Matrix q = read(args.q), k = read(args.k), v = read(args.v);
  Matrix o(q.rows, q.cols), lse(args.q.shape[1], q.rows);
  for_each_ranged_query(args, chunks, [&](int64_t h, int64_t g, int64_t t, const KeyRange& range) {
    std::vector<double> score;
    double highest = minus_infinity, sum = 0;
    for (int64_t key = range.begin; key < range.end; ++key) {
      score.push_back(static_cast<double>(args.scale) * head_product(q, t, h, k, key, g, K));
      highest = std::max(highest, score.back());
    }
    lse(h, t) = minus_infinity;
    if (score.empty()) return;
    for (double& x : score) sum += x = std::exp(x - highest);
    for (int64_t key = range.begin; key < range.end; ++key) {
      const double p = score[static_cast<size_t>(key - range.begin)] / sum;
      for (int64_t i = 0; i < K; ++i) o(t, h * K + i) += p * v(key, g * K + i);
    }
    lse(h, t) = highest + std::log(sum);
  });
  write(args.o, o);
  write(args.lse, lse);
}

void ranges_backward(const AttentionRangesBackwardArgs& args,
                     const std::vector<QueryChunk>& chunks) {
  const int64_t K = args.q.shape[2];
  const auto scale = static_cast<double>(args.scale);
  const Matrix q = read(args.q), k = read(args.k), v = read(args.v), o = read(args.o);
  const Matrix dout = read(args.dout), lse = read(args.lse);
  Matrix dq(q.rows, q.cols), dk(k.rows, k.cols), dv(v.rows, v.cols);
  if (args.accumulates) {
    dq = read(args.dq);
    dk = read(args.dk);
    dv = read(args.dv);
  }
  for_each_ranged_query(args, chunks, [&](int64_t h, int64_t g, int64_t t, const KeyRange& range) {
    const double dout_o = head_product(dout, t, h, o, t, h, K);
    for (int64_t key = range.begin; key < range.end; ++key) {
      const double p = std::exp(scale * head_product(q, t, h, k, key, g, K) - lse(h, t));
      const double ds = p * (head_product(dout, t, h, v, key, g, K) - dout_o);
      for (int64_t i = 0; i < K; ++i) {
        const int64_t at_query = h * K + i, at_key = g * K + i;
        dv(key, at_key) += p * dout(t, at_query);
        dk(key, at_key) += scale * ds * q(t, at_query);
        dq(t, at_query) += scale * ds * k(key, at_key);
      }
    }
  });
  write(args.dq, dq);
  write(args.dk, dk);
  write(args.dv, dv);
}

void merge(const AttentionMergeArgs& args) {
  const int64_t H = args.o.shape[1], K = args.o.shape[2];
  const Matrix part = read(args.part), part_lse = read(args.part_lse);
  Matrix o = read(args.o), lse = read(args.lse);
  for (int64_t t = 0; t < o.rows; ++t) {
    for (int64_t h = 0; h < H; ++h) {
      const double a = lse(h, t), b = part_lse(h, t);
      if (b == minus_infinity) continue;
      const double high = std::max(a, b);
      const double merged = high + std::log1p(std::exp(std::min(a, b) - high));
      lse(h, t) = merged;
      for (int64_t i = h * K; i < h * K + K; ++i) {
        const double before = a == minus_infinity ? 0 : std::exp(a - merged) * o(t, i);
        o(t, i) = before + std::exp(b - merged) * part(t, i);
      }
    }
  }
  write(args.o, o);
  write(args.lse, lse);
}

std::vector<QueryChunk> copy_of(std::span<const QueryChunk> chunks) {
  return {chunks.begin(), chunks.end()};
}

}  // namespace

void attention_ranges_forward(Stream& stream, const AttentionRangesForwardArgs& args) {
  run_on(stream, [args, chunks = copy_of(args.chunks)] { ranges_forward(args, chunks); });
}

void attention_ranges_backward(Stream& stream, const AttentionRangesBackwardArgs& args) {
  run_on(stream, [args, chunks = copy_of(args.chunks)] { ranges_backward(args, chunks); });
}

void attention_merge(Stream& stream, const AttentionMergeArgs& args) {
  run_on(stream, [args] { merge(args); });
}

}  // namespace trireme::kernels::reference
