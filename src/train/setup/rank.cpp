// SPDX-License-Identifier: Apache-2.0
#include "train/setup/rank.h"

#include <algorithm>
#include <future>

namespace trireme::train {

Rank::Rank(std::unique_ptr<comm::Communicator> world, const spec::Sizes& sizes,
           device::Device& device)
    : device_(device), world_(std::move(world)) {
  if (!world_) return;
  mesh_.emplace(*world_, sizes);
  coord_ = mesh_->coord();
  memory_.emplace(device, device::Mem::comm, memory_bytes(ranks()), "host exchange buffer");
  stream_ = device.make_stream("ranks");
}

void Rank::on_first(const std::function<void()>& work) {
  if (is_alone()) return work();
  enum class State : uint8_t { working, done, failed };
  std::future<void> running;
  if (is_first()) running = std::async(std::launch::async, work);
  State state = State::working;
  std::exception_ptr failure;
  while (state == State::working) {
    if (is_first() && running.wait_for(heartbeat_interval) == std::future_status::ready) {
      try {
        running.get();
        state = State::done;
      } catch (...) {
        failure = std::current_exception();
        state = State::failed;
      }
    }
    state = gather(state).front();
  }
  if (failure) std::rethrow_exception(failure);
  // The others wait until the first rank's exception aborts the world.
  if (state == State::failed) barrier();
}

std::vector<std::string> Rank::gather_texts(const std::string& mine) {
  return gather_texts(mine, is_first());
}

std::vector<std::string> Rank::all_gather_texts(const std::string& mine) {
  return gather_texts(mine, true);
}

std::vector<std::string> Rank::gather_texts(const std::string& mine, bool is_here) {
  if (is_alone()) return {mine};
  using Piece = std::array<char, slot_bytes>;
  const std::vector<uint64_t> lengths = gather(static_cast<uint64_t>(mine.size()));
  const uint64_t longest = *std::ranges::max_element(lengths);
  std::vector<std::string> texts(is_here ? lengths.size() : 0);
  for (uint64_t begin = 0; begin < longest; begin += slot_bytes) {
    Piece piece{};
    if (begin < mine.size()) mine.copy(piece.data(), piece.size(), begin);
    const std::vector<Piece> pieces = gather(piece);
    for (size_t rank = 0; rank < texts.size(); ++rank) {
      const uint64_t left = lengths[rank] - std::min(begin, lengths[rank]);
      texts[rank].append(pieces[rank].data(), std::min<uint64_t>(left, slot_bytes));
    }
  }
  return texts;
}

void Rank::broadcast(std::span<std::byte> bytes, int source) {
  if (is_alone() || bytes.empty()) return;
  constexpr size_t max_piece = size_t{4} << 20;
  const device::Buffer room(device_, device::Mem::comm,
                            static_cast<int64_t>(std::min(bytes.size(), max_piece)),
                            "bytes of another rank");
  for (size_t begin = 0; begin < bytes.size(); begin += max_piece) {
    const auto part = bytes.subspan(begin, std::min(max_piece, bytes.size() - begin));
    const device::Tensor piece =
        device::view_of(room.data(), {{std::ssize(part)}, base::DType::u8});
    if (number() == source) stream_->upload(piece, part);
    world_->broadcast(*stream_, piece, source);
    if (number() != source) stream_->download(part, piece);
    stream_->synchronize();
  }
}

void Rank::gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) {
  const auto bytes = static_cast<int64_t>(mine.size());
  const device::Tensor own = device::view_of(memory_->data(), {{bytes}, base::DType::u8});
  const device::Tensor gathered =
      device::view_of(memory_->data() + slot_bytes, {{ranks() * bytes}, base::DType::u8});
  stream_->upload(own, mine);
  world_->all_gather(*stream_, gathered, own);
  stream_->download(all, gathered);
  stream_->synchronize();
}

}  // namespace trireme::train
