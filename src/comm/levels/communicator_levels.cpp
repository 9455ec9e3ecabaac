// SPDX-License-Identifier: Apache-2.0
// Sums in the fixed tree and gathers in two levels, inside a node and between nodes:
// spec/sums/sum_levels.h has the idea and the bytes.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "comm/communicator.h"
#include "comm/tensors.h"
#include "kernels/ops.h"

namespace trireme::comm {
namespace {

namespace ops = kernels::ops;

// Chunks of a sum in two levels are smaller than base::grain_bytes where the buffer has the least
// size that set_buffer() allows, because they may be twice as many.
constexpr int64_t chunk_grain_bytes = base::grain_bytes / 2;

std::vector<spec::Range> ranges_of(std::span<const spec::NodePart> parts, spec::Range which) {
  std::vector<spec::Range> ranges;
  for (int64_t i = which.begin; i < which.end; ++i) {
    ranges.push_back(parts[static_cast<size_t>(i)].node);
  }
  return ranges;
}

}  // namespace

// One round of a sum in two levels: where its chunks are in the buffer. Slot s has the chunks of
// part s of the node for all nodes, side by side: one operation adds two parts for all of them.
// What arrives from other nodes is received in the chunks that the first level no longer needs.
struct Communicator::LevelsRound {
  const spec::SumLevels& levels;
  const spec::NodeSums& own;
  int node, nodes;
  Tensor buffer;
  base::DType dtype;
  int64_t bytes;  // of a chunk

  Tensor chunks(int64_t first, int64_t count) const {
    return {buffer.data + first * bytes, {count * bytes / base::size_of(dtype)}, 1, dtype};
  }
  Tensor slot(int64_t part) const { return chunks(part * nodes, nodes); }
  Tensor chunk(int64_t part, int to_node) const { return chunks(part * nodes + to_node, 1); }
  // The partial sum of this node for a node.
  Tensor partial(const spec::PartialSum& sum, int to_node) const {
    return chunk(sum.parts.begin, to_node);
  }
  // Copies a part of this rank, which is part `slot` of its node, for the ranks at its place of all
  // nodes, `column`: in one operation if they are equally far apart in the group.
  void copy_own(Stream& stream, int64_t slot, const std::byte* part, std::span<const int> column,
                int64_t stride_bytes) const {
    const int64_t element_bytes = base::size_of(dtype), count = bytes / element_bytes;
    const int apart = column[1] - column[0];
    bool is_even = apart > 0;
    for (size_t i = 1; i < column.size(); ++i) is_even &= column[i] - column[i - 1] == apart;
    if (is_even) {
      const device::BasicTensor<const std::byte> rows{part + column[0] * stride_bytes,
                                                      {nodes, count},
                                                      apart * stride_bytes / element_bytes,
                                                      dtype};
      ops::copy(stream, {.x = rows, .d = {chunk(slot, 0).data, {nodes, count}, count, dtype}});
      return;
    }
    for (int to = 0; to < nodes; ++to) {
      stream.copy_bytes(as_bytes(chunk(slot, to)),
                        bytes_at(part + column[static_cast<size_t>(to)] * stride_bytes, bytes));
    }
  }
  // Chunks without a partial sum, in ascending order.
  std::vector<Tensor> spare_chunks() const {
    std::vector<Tensor> all;
    for (int64_t at = 0; at < levels.slots; ++at) {
      const bool is_kept = std::ranges::any_of(
          own.sums, [&](const spec::PartialSum& sum) { return at / nodes == sum.parts.begin; });
      if (!is_kept) all.push_back(chunks(at, 1));
    }
    return all;
  }
};

const spec::SumLevels* Communicator::levels_of(const SumOrder& order) {
  if (!grid_) return nullptr;
  if (known_order_ != order) {
    known_levels_ = spec::sum_levels(order.leaves, order.parts, *grid_);
    known_order_ = order;
  }
  return known_levels_ ? &*known_levels_ : nullptr;
}

void Communicator::transfer(Stream& stream, std::span<const Outgoing> sends,
                            std::span<const Incoming> receives) {
  const auto& own_node = grid_->ranks[static_cast<size_t>(node_)];
  for (const Outgoing& send : sends) {
    traffic_.bytes += send.bytes;
    if (std::ranges::find(own_node, send.to) == own_node.end()) {
      traffic_.network_bytes += send.bytes;
    }
  }
  do_transfer(stream, sends, receives);
}

// The parts of the ranks of this node for the ranks at this place of all nodes. Two ranks send each
// other their messages part by part and, in a part, node by node.
void Communicator::exchange_in_node(Stream& stream, const LevelsRound& round,
                                    std::span<const std::byte* const> parts, int64_t stride_bytes) {
  const auto rank_at = [&](int node, int place) {
    return grid_->ranks[static_cast<size_t>(node)][static_cast<size_t>(place)];
  };
  std::vector<Outgoing> sends;
  for (int place = 0; place < grid_->places(); ++place) {
    if (place == place_) continue;
    for (const std::byte* part : parts) {
      for (int node = 0; node < round.nodes; ++node) {
        sends.push_back(
            {rank_at(node_, place), part + rank_at(node, place) * stride_bytes, round.bytes});
      }
    }
  }
  std::vector<int> column;
  for (int node = 0; node < round.nodes; ++node) column.push_back(rank_at(node, place_));
  std::vector<size_t> by_sender(round.own.parts.size());
  for (size_t i = 0; i < by_sender.size(); ++i) by_sender[i] = i;
  std::ranges::sort(by_sender, {}, [&](size_t i) {
    return std::pair(round.own.parts[i].place, round.own.parts[i].part);
  });
  std::vector<Incoming> receives;
  for (const size_t i : by_sender) {
    const spec::NodePart& from = round.own.parts[i];
    if (from.place == place_) {
      round.copy_own(stream, static_cast<int64_t>(i), parts[static_cast<size_t>(from.part)], column,
                     stride_bytes);
      continue;
    }
    for (int node = 0; node < round.nodes; ++node) {
      const Tensor to = round.chunk(static_cast<int64_t>(i), node);
      receives.push_back({rank_at(node_, from.place), to.data, round.bytes});
    }
  }
  transfer(stream, sends, receives);
}

void Communicator::sum_in_node(Stream& stream, const LevelsRound& round) {
  for (const spec::PartialSum& sum : round.own.sums) {
    const auto program = spec::tree_program(sum.node, ranges_of(round.own.parts, sum.parts));
    std::vector<Tensor> slots;
    for (int64_t i = sum.parts.begin; i < sum.parts.end; ++i) slots.push_back(round.slot(i));
    run_tree(stream, program, slots);
  }
}

// Exchanges the partial sums of nodes among the ranks at this place and adds them; returns the sum.
Tensor Communicator::sum_between_nodes(Stream& stream, const LevelsRound& round) {
  const auto rank_on = [&](int node) {
    return grid_->ranks[static_cast<size_t>(node)][static_cast<size_t>(place_)];
  };
  std::vector<std::vector<Tensor>> arrived(static_cast<size_t>(round.nodes));
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  const std::vector<Tensor> spare = round.spare_chunks();
  // With room for this node's sums, too, all of them lie in their order.
  const bool has_room = spare.size() >= round.levels.far.size();
  size_t next = 0;
  for (int node = 0; node < round.nodes; ++node) {
    auto& of_node = arrived[static_cast<size_t>(node)];
    if (node == node_) {
      for (const spec::PartialSum& sum : round.own.sums) {
        of_node.push_back(round.partial(sum, node));
        if (!has_room) continue;
        ops::copy(stream, {.x = of_node.back(), .d = spare[next]});
        of_node.back() = spare[next++];
      }
      continue;
    }
    for (const spec::PartialSum& sum : round.own.sums) {
      sends.push_back({rank_on(node), round.partial(sum, node).data, round.bytes});
    }
    const size_t sums = round.levels.nodes[static_cast<size_t>(node)].sums.size();
    TRIREME_CHECK(next + sums <= spare.size(), "group '{}': {} slots are free, {} sums arrive",
                  name(), spare.size(), next + sums);
    for (size_t i = 0; i < sums; ++i) {
      of_node.push_back(spare[next++]);
      receives.push_back({rank_on(node), of_node.back().data, round.bytes});
    }
  }
  transfer(stream, sends, receives);
  std::vector<Tensor> in_order;
  for (const spec::FarPart& part : round.levels.far) {
    in_order.push_back(arrived[static_cast<size_t>(part.node)][static_cast<size_t>(part.sum)]);
  }
  run_tree(stream, round.levels.far_program, in_order);
  return in_order.front();
}

void Communicator::sum_in_levels(Stream& stream, Tensor out, std::span<const ConstTensor> parts,
                                 const spec::SumLevels& levels, int64_t stride_bytes) {
  const int64_t bytes_a_round = round_bytes(out.bytes(), levels.slots, chunk_grain_bytes);
  const int64_t element_bytes = base::size_of(out.dtype);
  for (int64_t at = 0; at < out.bytes(); at += bytes_a_round) {
    const LevelsRound round{
        levels,    levels.nodes[static_cast<size_t>(node_)], node_, grid_->nodes(), buffer_,
        out.dtype, std::min(bytes_a_round, out.bytes() - at)};
    std::vector<const std::byte*> own;
    for (const ConstTensor& part : parts) own.push_back(part.data + at);
    exchange_in_node(stream, round, own, stride_bytes);
    sum_in_node(stream, round);
    const Tensor sum = sum_between_nodes(stream, round);
    ops::copy(stream,
              {.x = sum, .d = flat_range(out, at / element_bytes, round.bytes / element_bytes)});
  }
}

// The ranks at this place of all nodes exchange their parts; then each sends all of them to the
// other ranks of its node. So every part enters a node once.
void Communicator::gather_in_levels(Stream& stream, Tensor out, ConstTensor in) {
  const int64_t bytes = in.bytes();
  const auto part_of = [&](int rank) { return out.data + rank * bytes; };
  std::byte* own = part_of(rank_);
  if (own != in.data) stream.copy_bytes(bytes_at(own, bytes), as_bytes(in));
  std::vector<int> column;
  for (const auto& node : grid_->ranks) column.push_back(node[static_cast<size_t>(place_)]);
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (const int rank : column) {
    if (rank == rank_) continue;
    sends.push_back({rank, own, bytes});
    receives.push_back({rank, part_of(rank), bytes});
  }
  transfer(stream, sends, receives);
  sends.clear();
  receives.clear();
  const std::vector<int>& own_node = grid_->ranks[static_cast<size_t>(node_)];
  for (int place = 0; place < grid_->places(); ++place) {
    if (place == place_) continue;
    const int peer = own_node[static_cast<size_t>(place)];
    for (const int rank : column) sends.push_back({peer, part_of(rank), bytes});
    for (const auto& node : grid_->ranks) {
      receives.push_back({peer, part_of(node[static_cast<size_t>(place)]), bytes});
    }
  }
  transfer(stream, sends, receives);
}

}  // namespace trireme::comm
