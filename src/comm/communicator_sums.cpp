// SPDX-License-Identifier: Apache-2.0
// Sums in the fixed tree, and maxima in the order of the ranks. Every rank receives all ranks'
// contributions to its part of the result into the buffer, a round at a time, and adds them there
// in the order of spec/parallel/sum_tree.h with the device's accumulate, which rounds every node to
// the type of the sum. So each element is summed by the same operations on any back end, in any
// number of rounds and on any rank. Groups of several ranks on each of several nodes do so in two
// levels: levels/communicator_levels.cpp.
#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "comm/communicator.h"
#include "comm/tensors.h"
#include "kernels/ops.h"
#include "spec/parallel/sum_tree.h"

namespace trireme::comm {
namespace {

namespace ops = kernels::ops;

// What arrives: for every part number the ranks that contribute it, and for every node, in the
// order of the leaves, the slot of the buffer that receives it.
struct Arrivals {
  std::vector<std::vector<int>> ranks_of_part;
  std::vector<spec::Range> nodes;
  std::vector<int64_t> slots;
};

Arrivals arrivals_of(const SumOrder& order) {
  struct Arrival {
    spec::Range node;
    int64_t slot;
  };
  Arrivals found;
  std::vector<Arrival> all;
  for (size_t part = 0;; ++part) {
    std::vector<int> ranks;
    for (size_t rank = 0; rank < order.parts.size(); ++rank) {
      if (part >= order.parts[rank].size()) continue;
      ranks.push_back(static_cast<int>(rank));
      all.push_back({order.parts[rank][part], static_cast<int64_t>(all.size())});
    }
    if (ranks.empty()) break;
    found.ranks_of_part.push_back(std::move(ranks));
  }
  std::sort(all.begin(), all.end(),
            [](const Arrival& a, const Arrival& b) { return a.node.begin < b.node.begin; });
  for (const Arrival& arrival : all) {
    found.nodes.push_back(arrival.node);
    found.slots.push_back(arrival.slot);
  }
  return found;
}

// Slot `to` += slot `from`, after all additions of lower depth.
struct Addition {
  int depth = 0;
  size_t to = 0, from = 0;
};

// Returns the additions of a program, by depth.
std::vector<Addition> additions_of(std::span<const spec::TreeOp> program) {
  struct Value {
    size_t slot = 0;
    int depth = 0;
  };
  std::vector<Addition> adds;
  std::vector<Value> stack;
  size_t next = 0;
  for (const spec::TreeOp op : program) {
    if (op == spec::TreeOp::push) {
      stack.push_back({next++, 0});
      continue;
    }
    const Value from = stack.back();
    stack.pop_back();
    Value& to = stack.back();
    to.depth = std::max(to.depth, from.depth) + 1;
    adds.push_back({to.depth, to.slot, from.slot});
  }
  std::ranges::stable_sort(adds, {}, &Addition::depth);
  return adds;
}

}  // namespace

SumOrder SumOrder::one_leaf_each(int ranks) { return hosted(ranks, ranks); }

SumOrder SumOrder::hosted(int64_t leaves, int ranks) {
  SumOrder order{.leaves = leaves};
  for (int rank = 0; rank < ranks; ++rank) {
    order.parts.push_back(spec::tree_cover(leaves, spec::leaves_of_rank(leaves, ranks, rank)));
  }
  return order;
}

bool Communicator::library_sums(const SumOrder& order) const {
  return !options_.fixed_order && size() > 1 &&
         std::all_of(order.parts.begin(), order.parts.end(),
                     [](const auto& parts) { return parts.size() == 1; });
}

// Additions that depend on none of each other and whose slots are equally far apart are one
// operation on rows: of n parts that lie side by side, about log2(n) operations instead of n - 1.
void Communicator::run_tree(Stream& stream, std::span<const spec::TreeOp> program,
                            std::span<const Tensor> slots) {
  const std::vector<Addition> adds = additions_of(program);
  const auto distance = [&](size_t a, size_t b) { return slots[b].data - slots[a].data; };
  for (size_t first = 0, last = 0; first < adds.size(); first = last) {
    const Addition& head = adds[first];
    const auto is_like_head = [&](const Addition& add) {
      return add.depth == head.depth && distance(add.to, add.from) == distance(head.to, head.from);
    };
    last = first + 1;
    ptrdiff_t stride = 0;
    if (last < adds.size() && is_like_head(adds[last])) stride = distance(head.to, adds[last].to);
    while (stride > 0 && last < adds.size() && is_like_head(adds[last]) &&
           distance(adds[last - 1].to, adds[last].to) == stride) {
      ++last;
    }
    const Tensor to = slots[head.to];
    const auto rows = static_cast<int64_t>(last - first);
    const auto rows_at = [&](size_t slot) {
      return Tensor{slots[slot].data,
                    {rows, to.elements()},
                    rows == 1 ? to.elements() : stride / base::size_of(to.dtype),
                    to.dtype};
    };
    ops::accumulate(stream, {.x = rows_at(head.from), .d = rows_at(head.to)});
  }
}

int64_t Communicator::round_bytes(int64_t bytes, int64_t copies, int64_t grain) const {
  const int64_t room = buffer_ ? buffer_.bytes() / copies / grain * grain : 0;
  TRIREME_CHECK(room > 0,
                "group '{}' sums {} parts with a buffer of {} bytes; it needs at least {}", name(),
                copies, buffer_ ? buffer_.bytes() : 0, copies * grain);
  return std::min(bytes, room);
}

void Communicator::sum_into(Stream& stream, Tensor out, std::span<const ConstTensor> parts,
                            const SumOrder& order, int64_t stride_bytes) {
  if (out.elements() == 0) return;
  if (size() == 1 && parts.size() == 1) {
    if (out.data != parts[0].data) ops::copy(stream, {.x = parts[0], .d = out});
    return;
  }
  if (const spec::SumLevels* levels = stride_bytes > 0 ? levels_of(order) : nullptr) {
    sum_in_levels(stream, out, parts, *levels, stride_bytes);
    return;
  }
  traffic_.network_bytes += std::ssize(parts) * far_ranks_ * out.bytes();
  const Arrivals arrivals = arrivals_of(order);
  const auto program = spec::tree_program(order.leaves, arrivals.nodes);
  const auto copies = static_cast<int64_t>(arrivals.nodes.size());
  const int64_t round = round_bytes(out.bytes(), copies, base::grain_bytes);
  const int64_t element_bytes = base::size_of(out.dtype);
  std::vector<Tensor> slots(arrivals.nodes.size());
  for (int64_t at = 0; at < out.bytes(); at += round) {
    const int64_t bytes = std::min(round, out.bytes() - at), count = bytes / element_bytes;
    std::byte* arrived = buffer_.data;
    for (size_t part = 0; part < arrivals.ranks_of_part.size(); ++part) {
      const auto& from = arrivals.ranks_of_part[part];
      const int64_t arriving = static_cast<int64_t>(from.size()) * bytes;
      const std::byte* mine = part < parts.size() ? parts[part].data + at : nullptr;
      exchange(stream, bytes_at(arrived, arriving), mine, stride_bytes, bytes, from);
      arrived += arriving;
    }
    for (size_t node = 0; node < slots.size(); ++node) {
      slots[node] = {buffer_.data + arrivals.slots[node] * bytes, {count}, 1, out.dtype};
    }
    run_tree(stream, program, slots);
    ops::copy(stream, {.x = slots[0], .d = flat_range(out, at / element_bytes, count)});
  }
}

void Communicator::sum_everywhere(Stream& stream, Tensor out, std::span<const ConstTensor> parts,
                                  const SumOrder& order) {
  if (library_sums(order)) {
    if (out.data != parts[0].data) ops::copy(stream, {.x = parts[0], .d = out});
    if (do_all_reduce(stream, out, Reduce::sum)) {
      traffic_.bytes += 2 * (size() - 1) * out.bytes() / size();
      return;
    }
  }
  const bool is_small = size() == 1 || out.elements() < small_elements;
  const int64_t shard = is_small ? 0 : out.elements() / size(), head = shard * size();
  const auto range_of_parts = [&](int64_t begin, int64_t count) {
    std::vector<ConstTensor> ranges;
    for (const ConstTensor& part : parts) ranges.emplace_back(flat_range(part, begin, count));
    return ranges;
  };
  if (head > 0) {
    const Tensor own = flat_range(out, rank_ * shard, shard);
    sum_into(stream, own, range_of_parts(0, head), order, own.bytes());
    gather(stream, flat_range(out, 0, head), own);
  }
  const int64_t rest = out.elements() - head;
  sum_into(stream, flat_range(out, head, rest), range_of_parts(head, rest), order, 0);
}

void Communicator::max_everywhere(Stream& stream, Tensor inout) {
  if (do_all_reduce(stream, inout, Reduce::max)) {
    traffic_.bytes += 2 * (size() - 1) * inout.bytes() / size();
    return;
  }
  const int64_t round = round_bytes(inout.bytes(), size(), base::grain_bytes);
  const int64_t element_bytes = base::size_of(inout.dtype);
  for (int64_t at = 0; at < inout.bytes(); at += round) {
    const int64_t bytes = std::min(round, inout.bytes() - at), count = bytes / element_bytes;
    exchange(stream, bytes_at(buffer_.data, size() * bytes), inout.data + at, 0, bytes, all_ranks_);
    const auto of_rank = [&](int r) {
      return Tensor{buffer_.data + r * bytes, {count}, 1, inout.dtype};
    };
    for (int r = 1; r < size(); ++r) {
      ops::accumulate(stream, {.x = of_rank(r), .d = of_rank(0), .is_max = true});
    }
    ops::copy(stream, {.x = of_rank(0), .d = flat_range(inout, at / element_bytes, count)});
  }
}

void Communicator::check_parts(const char* op, ConstTensor out, std::span<const ConstTensor> parts,
                               const SumOrder& order) const {
  TRIREME_CHECK(order.parts.size() == static_cast<size_t>(size()) &&
                    order.parts[static_cast<size_t>(rank_)].size() == parts.size(),
                "{} in '{}' of {}: an order of {} ranks, {} parts on rank {}", op, name(), size(),
                order.parts.size(), parts.size(), rank_);
  TRIREME_CHECK(out && out.is_contiguous() && base::is_real(out.dtype), "{} in '{}': out is {} {}",
                op, name(), base::name_of(out.dtype), out.shape.to_string());
  for (const ConstTensor& part : parts) {
    TRIREME_CHECK(part && part.is_contiguous() && part.dtype == out.dtype &&
                      part.elements() == parts[0].elements(),
                  "{} in '{}': a part is {} {}, out {}", op, name(), base::name_of(part.dtype),
                  part.shape.to_string(), base::name_of(out.dtype));
    TRIREME_CHECK(!buffer_ || are_apart(buffer_, part), "{} in '{}': a part is in the buffer", op,
                  name());
  }
  TRIREME_CHECK(!buffer_ || are_apart(buffer_, out), "{} in '{}': out is in the buffer", op,
                name());
}

void Communicator::reduce_scatter(Stream& stream, Tensor out, ConstTensor in) {
  reduce_scatter(stream, out, std::span(&in, 1), own_order_);
}

void Communicator::reduce_scatter(Stream& stream, Tensor out, std::span<const ConstTensor> parts,
                                  const SumOrder& order) {
  const char* op = "reduce_scatter";
  check_parts(op, out, parts, order);
  for (const ConstTensor& part : parts) {
    TRIREME_CHECK(part.elements() == size() * out.elements(), "{} in '{}' of {}: {} to {}", op,
                  name(), size(), part.shape.to_string(), out.shape.to_string());
    TRIREME_CHECK(out.data == part.data + rank_ * out.bytes() || are_apart(out, part),
                  "{} in '{}': out overlaps a part and is not this rank's share of it", op, name());
  }
  const ConstTensor in = parts.empty() ? ConstTensor(out) : parts[0];
  const Tensor flat = flat_range(out, 0, out.elements());
  perform(&stream, {.op = op, .in = in, .out = out, .reduce = "sum"}, [&] {
    if (library_sums(order) && out.elements() > 0 && do_reduce_scatter(stream, flat, in)) {
      traffic_.bytes += (size() - 1) * out.bytes();
      return;
    }
    std::vector<ConstTensor> ranges;
    for (const ConstTensor& part : parts) ranges.emplace_back(flat_range(part, 0, part.elements()));
    sum_into(stream, flat, ranges, order, out.bytes());
  });
}

void Communicator::all_reduce(Stream& stream, Tensor out, std::span<const ConstTensor> parts,
                              const SumOrder& order) {
  const char* op = "all_reduce";
  check_parts(op, out, parts, order);
  for (const ConstTensor& part : parts) {
    TRIREME_CHECK(part.elements() == out.elements(), "{} in '{}': {} to {}", op, name(),
                  part.shape.to_string(), out.shape.to_string());
    TRIREME_CHECK(out.data == part.data || are_apart(out, part),
                  "{} in '{}': out overlaps a part and is not the same", op, name());
  }
  perform(&stream, {.op = op, .in = out, .out = out, .reduce = "sum"}, [&] {
    if (out.elements() == 0) return;
    sum_everywhere(stream, flat_range(out, 0, out.elements()), parts, order);
  });
}

void Communicator::all_reduce(Stream& stream, Tensor inout, Reduce reduce) {
  if (reduce == Reduce::sum) {
    const ConstTensor in = inout;
    all_reduce(stream, inout, std::span(&in, 1), own_order_);
    return;
  }
  TRIREME_CHECK(inout && inout.is_contiguous() && inout.dtype == base::DType::f32,
                "all_reduce in '{}': maxima need a contiguous f32 tensor, not {} {}", name(),
                base::name_of(inout.dtype), inout.shape.to_string());
  perform(&stream, {.op = "all_reduce", .in = inout, .out = inout, .reduce = "max"}, [&] {
    if (size() > 1 && inout.elements() > 0) max_everywhere(stream, inout);
  });
}

}  // namespace trireme::comm
