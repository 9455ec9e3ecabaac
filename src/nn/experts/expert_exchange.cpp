// SPDX-License-Identifier: Apache-2.0
#include "nn/experts/expert_exchange.h"

#include "kernels/ops.h"

namespace trireme::nn {
namespace {

namespace ops = kernels::ops;
using spec::BlockSlot;

// The number of grouped rows, which is the last of the groups' starts.
ConstTensor end_of(Pass& pass, const spec::ExpertRows& rows) {
  return pass.stash[BlockSlot::starts].slice_rows(rows.groups, 1);
}

}  // namespace

void ExpertExchange::route(Pass& pass, Tensor counts, Tensor stats, Tensor fill) const {
  Stash& stash = pass.stash;
  const bool is_local = rows_.is_local();
  const device::Arena::Mark mark(pass.scratch);
  const Tensor starts = is_local ? stash[BlockSlot::starts]
                                 : pass.scratch.take({{rows_.experts + 1}, base::DType::i32});
  ops::route_rows(pass.stream, {.choice = stash[BlockSlot::choice],
                                .experts = rows_.experts,
                                .blocks = rows_.ep,
                                .tile = is_local ? rows_.tile : 1,
                                .capacity = rows_.capacity,
                                .place = stash[BlockSlot::place],
                                .pair = stash[BlockSlot::pair],
                                .counts = counts,
                                .starts = starts,
                                .stats = stats});
  if (fill) {
    ops::router_fill(pass.stream, {.counts = counts, .blocks = rows_.ep, .fill = fill});
  }
  if (is_local) return;
  Tensor received = counts;
  if (ranks_.ep != nullptr) {
    received = pass.scratch.take({{rows_.experts}, base::DType::i32});
    ranks_.ep->all_to_all(pass.stream, received, counts);
  }
  if (ranks_.etp != nullptr) {
    const Tensor own = received;
    received = pass.scratch.take({{rows_.etp * rows_.experts}, base::DType::i32});
    ranks_.etp->all_gather(pass.stream, received, own);
  }
  ops::arrange_rows(pass.stream,
                    {.counts = received.reshape({int64_t{rows_.etp} * rows_.ep, rows_.groups}),
                     .tile = rows_.tile,
                     .place = stash[BlockSlot::arranged],
                     .source = stash[BlockSlot::source],
                     .starts = stash[BlockSlot::starts]});
}

void ExpertExchange::dispatch(Pass& pass, ConstTensor x, int64_t divisor, Tensor rows) const {
  const ConstTensor pair = pass.stash[BlockSlot::pair];
  if (rows_.is_local()) {
    ops::gather_pairs(
        pass.stream,
        {.x = x, .source = pair, .divisor = divisor, .end = end_of(pass, rows_), .d = rows});
    return;
  }
  const device::Arena::Mark mark(pass.scratch);
  const auto take = [&](int64_t n) { return pass.scratch.take({{n, x.cols()}, x.dtype}); };
  const Tensor send = take(rows_.sent);
  ops::gather_pairs(pass.stream, {.x = x, .source = pair, .divisor = divisor, .d = send});
  Tensor all = send;
  if (ranks_.ep != nullptr) {
    all = take(rows_.sent);
    ranks_.ep->all_to_all(pass.stream, all, send);
  }
  if (ranks_.etp != nullptr) {
    const Tensor own = all;
    all = take(rows_.gathered);
    ranks_.etp->all_gather(pass.stream, all, own);
  }
  ops::gather_pairs(
      pass.stream,
      {.x = all, .source = pass.stash[BlockSlot::source], .end = end_of(pass, rows_), .d = rows});
}

Tensor ExpertExchange::give_back(Pass& pass, Tensor rows) const {
  if (rows_.is_local()) return rows;
  const auto take = [&](int64_t n) { return pass.scratch.take({{n, rows.cols()}, rows.dtype}); };
  const Tensor returned = take(rows_.sent);
  const device::Arena::Mark mark(pass.scratch);
  const Tensor all = take(rows_.gathered);
  ops::gather_pairs(pass.stream, {.x = rows, .source = pass.stash[BlockSlot::arranged], .d = all});
  Tensor own = all;
  if (ranks_.etp != nullptr) {
    own = ranks_.ep != nullptr ? take(rows_.sent) : returned;
    ranks_.etp->reduce_scatter(pass.stream, own, all);
  }
  if (ranks_.ep != nullptr) ranks_.ep->all_to_all(pass.stream, returned, own);
  return returned;
}

}  // namespace trireme::nn
