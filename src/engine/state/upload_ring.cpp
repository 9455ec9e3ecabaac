// SPDX-License-Identifier: Apache-2.0
#include "engine/state/upload_ring.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/shape.h"
#include "engine/state/host_floats.h"

namespace trireme::engine {
namespace {

constexpr auto element_bytes = static_cast<int64_t>(sizeof(float));

int64_t piece_bytes_for(int64_t bytes) {
  constexpr auto pieces = static_cast<int64_t>(UploadRing::pieces);
  return std::clamp(base::round_up(bytes / pieces, base::grain_bytes), base::grain_bytes,
                    UploadRing::max_piece_bytes);
}

}  // namespace

UploadRing::UploadRing(device::Stream& stream, int64_t bytes)
    : stream_(stream),
      piece_bytes_(piece_bytes_for(bytes)),
      memory_(stream.device().make_host_buffer(device::Mem::checkpoint,
                                               static_cast<int64_t>(pieces) * piece_bytes_,
                                               "uploads of restored state")) {
  for (size_t i = 0; i < pieces; ++i) {
    ring_[i].memory = memory_.data() + static_cast<int64_t>(i) * piece_bytes_;
  }
}

std::unique_ptr<UploadRing> UploadRing::make_for(device::Stream& stream, int64_t bytes) {
  return stream.device().registers_host_memory() ? std::make_unique<UploadRing>(stream, bytes)
                                                 : nullptr;
}

UploadRing::~UploadRing() {
  if (!is_finished_) stream_.drain();
}

UploadRing::Piece& UploadRing::next_piece() {
  Piece& piece = ring_[next_];
  next_ = (next_ + 1) % pieces;
  while (!stream_.is_reached(piece.read)) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return piece;
}

void UploadRing::upload(const optim::FlatFloats& to, std::span<const float> values) {
  const int64_t all = std::ssize(values), most = piece_bytes_ / element_bytes;
  is_finished_ = false;
  for (int64_t first = 0; first < all; first += most) {
    const int64_t count = std::min(most, all - first);
    Piece& piece = next_piece();
    const optim::FlatFloats part = to.slice(first, count);
    store_floats(part, values.subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
                 piece.memory);
    const auto high = static_cast<size_t>(part.values.bytes());
    stream_.upload(part.values, {piece.memory, high});
    if (part.low) stream_.upload(part.low, {piece.memory + high, high});
    piece.read = stream_.record();
  }
}

void UploadRing::finish() {
  stream_.synchronize();
  is_finished_ = true;
}

}  // namespace trireme::engine
