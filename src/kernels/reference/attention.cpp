// SPDX-License-Identifier: Apache-2.0
// o = softmax(scale q k^T + mask) v within each sequence. Backward, with p the softmax:
//   dv = p^T dout;  dp = dout v^T;  ds = p (dp - sum over K of dout * o);
//   dq = scale ds k;  dk = scale ds^T q.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"

namespace trireme::kernels::reference {
namespace {

// Calls body(h, g, query, first_key, last_key) for every query head and token: its key head, and
// the keys [first_key, last_key) that it sees.
template <typename Body>
void for_each_query(const ConstTensor& seq_offsets, int64_t heads, int64_t kv_heads, bool causal,
                    Body&& body) {
  for (int64_t s = 0; s + 1 < seq_offsets.rows(); ++s) {
    const int64_t begin = read_index(seq_offsets, s), end = read_index(seq_offsets, s + 1);
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t t = begin; t < end; ++t) {
        body(h, h / (heads / kv_heads), t, begin, causal ? t + 1 : end);
      }
    }
  }
}

// Element of `lse` for head h of a query whose sequence begins at `first`. Sequences follow one
// another, each as [heads, length].
class LseLayout {
 public:
  LseLayout(const ConstTensor& seq_offsets, int64_t heads) : heads_(heads) {
    for (int64_t s = 0; s + 1 < seq_offsets.rows(); ++s) {
      const int64_t begin = read_index(seq_offsets, s), end = read_index(seq_offsets, s + 1);
      lengths_.resize(static_cast<size_t>(end), end - begin);
    }
  }
  int64_t operator()(int64_t h, int64_t t, int64_t first) const {
    return first * heads_ + h * lengths_[static_cast<size_t>(t)] + (t - first);
  }

 private:
  int64_t heads_;
  std::vector<int64_t> lengths_;  // of every token's sequence
};

// Inner product of the heads of K values at a(row_a, from_a) and b(row_b, from_b).
struct HeadAt {
  const Matrix& matrix;
  int64_t row, head;
};
double dot(const HeadAt& a, const HeadAt& b, int64_t K) {
  double sum = 0;
  for (int64_t i = 0; i < K; ++i) {
    sum += a.matrix(a.row, a.head * K + i) * b.matrix(b.row, b.head * K + i);
  }
  return sum;
}

void forward(const AttentionForwardArgs& args) {
  const int64_t heads = args.q.shape[1], kv_heads = args.k.shape[1], K = args.q.shape[2];
  const Matrix q = read(args.q), k = read(args.k), v = read(args.v);
  Matrix o(q.rows, q.cols), lse(heads, q.rows);
  const LseLayout lse_at(args.seq_offsets, heads);
  for_each_query(
      args.seq_offsets, heads, kv_heads, args.causal,
      [&](int64_t h, int64_t g, int64_t t, int64_t first, int64_t last) {
        std::vector<double> score;
        double highest = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t key = first; key < last; ++key) {
          score.push_back(static_cast<double>(args.scale) * dot({q, t, h}, {k, key, g}, K));
          highest = std::max(highest, score.back());
        }
        for (double& x : score) sum += x = std::exp(x - highest);
        for (int64_t key = first; key < last; ++key) {
          const double p = score[static_cast<size_t>(key - first)] / sum;
          for (int64_t i = 0; i < K; ++i) o(t, h * K + i) += p * v(key, g * K + i);
        }
        lse.values[static_cast<size_t>(lse_at(h, t, first))] = highest + std::log(sum);
      });
  write(args.o, o);
  write(args.lse, lse);
}

void backward(const AttentionBackwardArgs& args) {
  const int64_t heads = args.q.shape[1], kv_heads = args.k.shape[1], K = args.q.shape[2];
  const auto scale = static_cast<double>(args.scale);
  const Matrix q = read(args.q), k = read(args.k), v = read(args.v), o = read(args.o);
  const Matrix dout = read(args.dout), lse = read(args.lse);
  const LseLayout lse_at(args.seq_offsets, heads);
  Matrix dq(q.rows, q.cols), dk(k.rows, k.cols), dv(v.rows, v.cols);
  for_each_query(args.seq_offsets, heads, kv_heads, args.causal,
                 [&](int64_t h, int64_t g, int64_t t, int64_t first, int64_t last) {
                   const double dout_o = dot({dout, t, h}, {o, t, h}, K);
                   const double norm = lse.values[static_cast<size_t>(lse_at(h, t, first))];
                   for (int64_t key = first; key < last; ++key) {
                     const double p = std::exp(scale * dot({q, t, h}, {k, key, g}, K) - norm);
                     const double ds = p * (dot({dout, t, h}, {v, key, g}, K) - dout_o);
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

}  // namespace

void attention_forward(Stream& stream, const AttentionForwardArgs& args) {
  run_on(stream, [args] { forward(args); });
}

void attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  run_on(stream, [args] { backward(args); });
}

}  // namespace trireme::kernels::reference
