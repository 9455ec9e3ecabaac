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

void ExpertExchange::gather_local(Pass& pass, ConstTensor x, int64_t divisor, Tensor rows) const {
  ops::gather_pairs(pass.stream, {.x = x,
                                  .source = pass.stash[BlockSlot::pair],
                                  .divisor = divisor,
                                  .end = end_of(pass, rows_),
                                  .place = divisor > 1 ? pass.stash[BlockSlot::place] : Tensor{},
                                  .d = rows});
}

void ExpertExchange::dispatch(Pass& pass, ConstTensor x, Tensor rows) const {
  if (rows_.is_local()) return gather_local(pass, x, 1, rows);
  const device::Arena::Mark mark(pass.scratch);
  const auto take = [&](int64_t n) { return pass.scratch.take({{n, 1}, x.dtype}); };
  const Tensor send = take(rows_.sent);
  ops::gather_pairs(pass.stream, {.x = x, .source = pass.stash[BlockSlot::pair], .d = send});
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

void ExpertExchange::send(Pass& pass, ConstTensor x) const {
  if (rows_.is_local()) return;
  const Tensor outgoing = pass.stash[BlockSlot::outgoing];
  ops::gather_pairs(
      pass.stream,
      {.x = x, .source = pass.stash[BlockSlot::pair], .divisor = rows_.chosen, .d = outgoing});
  if (ranks_.ep != nullptr) ranks_.start(pass, pass.stash[BlockSlot::incoming], outgoing);
}

void ExpertExchange::receive(Pass& pass, ConstTensor x, Tensor rows) const {
  if (rows_.is_local()) return gather_local(pass, x, rows_.chosen, rows);
  Tensor all = pass.stash[BlockSlot::outgoing];
  if (ranks_.ep != nullptr) {
    ranks_.wait(pass);
    all = pass.stash[BlockSlot::incoming];
  }
  const device::Arena::Mark mark(pass.scratch);
  if (ranks_.etp != nullptr) {
    const Tensor own = all;
    all = pass.scratch.take({{rows_.gathered, own.cols()}, own.dtype});
    ranks_.etp->all_gather(pass.stream, all, own);
  }
  ops::gather_pairs(
      pass.stream,
      {.x = all, .source = pass.stash[BlockSlot::source], .end = end_of(pass, rows_), .d = rows});
}

void ExpertExchange::answer(Pass& pass, Tensor rows) const {
  if (rows_.is_local()) return;
  const Tensor answers = pass.stash[BlockSlot::answers];
  const device::Arena::Mark mark(pass.scratch);
  const Tensor all = ranks_.etp == nullptr
                         ? answers
                         : pass.scratch.take({{rows_.gathered, rows.cols()}, rows.dtype});
  ops::gather_pairs(pass.stream, {.x = rows, .source = pass.stash[BlockSlot::arranged], .d = all});
  if (ranks_.etp != nullptr) ranks_.etp->reduce_scatter(pass.stream, answers, all);
  if (ranks_.ep != nullptr) ranks_.start(pass, pass.stash[BlockSlot::returned], answers);
}

Tensor ExpertExchange::returned(Pass& pass, Tensor rows) const {
  if (rows_.is_local()) return rows;
  if (ranks_.ep == nullptr) return pass.stash[BlockSlot::answers];
  ranks_.wait(pass);
  return pass.stash[BlockSlot::returned];
}

Tensor ExpertExchange::give_back(Pass& pass, Tensor rows) const {
  if (rows_.is_local()) return rows;
  const auto take = [&](int64_t n) { return pass.scratch.take({{n, 1}, rows.dtype}); };
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
