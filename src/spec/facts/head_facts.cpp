// SPDX-License-Identifier: Apache-2.0
// The head: final norm, logits, cross-entropy. Logits are never stored: F computes them chunk by
// chunk together with the loss, their gradient, dh and dW. B computes the norm's backward only; W
// is empty.
//
// Along tp a rank has some columns of the logits. It sends its statistics of each row's softmax to
// all ranks; dh is the sum over ranks, chunk by chunk. Under sequence parallelism all rows are
// normed and gathered before the first chunk, and summed after the last.
#include <algorithm>

#include "spec/facts/facts_internal.h"

namespace trireme::spec::internal {

std::vector<Param> head_params(const HeadSpec& s, const ModelSpec& model) {
  std::vector<Param> params(static_cast<size_t>(HeadParam::count));
  const auto at = [&params](HeadParam p) -> Param& { return params[static_cast<size_t>(p)]; };
  at(HeadParam::norm_weight) = make_param("head.norm.weight", {s.width}, Init::ones, 0);
  if (s.norm == NormKind::layer) {
    at(HeadParam::norm_bias) = make_param("head.norm.bias", {s.width}, Init::zeros, 0);
  }
  at(HeadParam::norm_weight).is_by_rows = at(HeadParam::norm_bias).is_by_rows = true;
  at(HeadParam::weight) = make_param(s.tied ? "embedding.tokens" : "head.weight",
                                     {s.vocab, s.width}, Init::normal, model.init_std);
  at(HeadParam::weight).tied_copy = s.tied;
  at(HeadParam::weight).is_written = true;
  at(HeadParam::weight).shard.cuts = {vocab_cut(s.vocab)};
  return params;
}

Facts head_facts(const HeadSpec& s, const FactsInput& in) {
  const int64_t tokens = in.shape.tokens, rows = in.shape.rows();
  const bool parts_rows = in.shape.sequence_parallel;
  const int ranks = in.shape.mesh[Axis::tp];
  const base::DType act = in.recipe.storage, grad = in.recipe.grad;
  const auto f32 = [](base::Shape shape) { return base::TensorSpec{shape, base::DType::f32}; };
  const base::TensorSpec x{{rows, s.width}, act};
  const base::TensorSpec stats = f32({rows, norm_stats(s.norm)});
  const base::TensorSpec weight{{s.width}, act}, weight_grad{{s.width}, grad};
  const base::TensorSpec bias = s.norm == NormKind::layer ? weight : base::TensorSpec{};
  const base::TensorSpec bias_grad = s.norm == NormKind::layer ? weight_grad : base::TensorSpec{};
  const base::TensorSpec partials = norm_backward_partials(s.norm, rows, s.width, false);

  Facts f;
  f.params = head_params(s, in.model);
  f.stash.resize(static_cast<size_t>(HeadSlot::count));
  f.stash[slot_x] = {.name = "x", .spec = x};
  f.stash[slot_dy] = {.name = "dy", .spec = {}, .life = Life::b_to_w};
  f.stash[static_cast<size_t>(HeadSlot::stats)] = {.name = "stats", .spec = stats};
  f.stash[static_cast<size_t>(HeadSlot::dh)] = {.name = "dh", .spec = x, .backward_only = true};

  const int64_t chunk = std::min(tokens, in.shape.head_chunk_rows);
  const int64_t padded = padded_vocab(s.vocab, in.shape.mesh);
  const Range columns = local_vocab(s.vocab, in.shape.mesh, {});
  const base::TensorSpec none{}, whole{{tokens, s.width}, act};
  const auto stats_of_ranks = [&](int64_t n) { return ranks > 1 ? f32({ranks, n, 3}) : none; };
  f.scratch = {
      {"head.chunk",
       {parts_rows ? x : base::TensorSpec{{chunk, s.width}, act},
        parts_rows ? whole : none,  // normed rows of all ranks
        parts_rows ? whole : none,  // dh before it is summed
        logits_spec(in.backend, chunk, padded, act), f32({chunk, 3}), stats_of_ranks(chunk)},
       true},
      {"head.norm", {partials}}};

  const auto norm = [&](int64_t n) {
    const base::TensorSpec h{{n, s.width}, act};
    f.f.push_back(
        streaming(OpKind::norm_forward, h, {h, weight, bias, h, f32({n, norm_stats(s.norm)})}));
  };
  const StreamComm comm(in, s.width);
  if (parts_rows) norm(rows);
  comm.whole(f.f_comm);
  for (int64_t begin = 0; begin < tokens; begin += chunk) {
    const int64_t n = std::min(chunk, tokens - begin);
    const base::TensorSpec logits{{n, columns.end - columns.begin}, act};
    const base::TensorSpec labels{{n}, base::DType::i32}, ce = f32({n, 3});
    if (!parts_rows) norm(n);
    f.f.push_back(gemm_cost({n, padded, s.width, GemmLayout::nt, act, act}, {}));
    if (ranks == 1) {
      f.f.push_back(streaming(OpKind::cross_entropy, logits, {logits, labels, ce, logits}));
    } else {
      f.f.push_back(streaming(OpKind::cross_entropy_stats, logits, {logits, labels, ce}));
      f.f_comm.push_back({CommKind::all_gather, Axis::tp, ranks * n * 3, base::DType::f32});
      f.f.push_back(streaming(OpKind::cross_entropy_merge, ce, {stats_of_ranks(n), ce}));
      f.f.push_back(streaming(OpKind::cross_entropy_grad, logits, {ce, labels, logits, logits}));
    }
    f.f.push_back(gemm_cost({n, s.width, padded, GemmLayout::nn, act, act}, {}));
    f.f.push_back(gemm_cost({padded, s.width, n, GemmLayout::tn, act, grad, true}, {}));
    if (!parts_rows) comm.sum(f.f_comm, n);
  }
  if (parts_rows) comm.sum(f.f_comm);
  f.b = {streaming(OpKind::norm_backward, x,
                   {x, x, stats, weight, x, weight_grad, weight_grad, bias_grad, bias_grad})};
  return f;
}

}  // namespace trireme::spec::internal
