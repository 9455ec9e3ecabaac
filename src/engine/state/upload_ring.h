// SPDX-License-Identifier: Apache-2.0
// UploadRing: uploads state through a few page-locked pieces of host memory, while it is restored:
// the host fills one piece while the device reads others, and waits once, at the end.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "device/device.h"
#include "optim/flat_floats.h"

namespace trireme::engine {

class UploadRing {
 public:
  static constexpr size_t pieces = 4;
  static constexpr int64_t max_piece_bytes = int64_t{64} << 20;

  // `bytes`: of all uploads, about; the ring is no larger than them. The stream must outlive it.
  UploadRing(device::Stream&, int64_t bytes);
  // Returns a ring for a stream of a device that uploads other host memory slowly; null: this one
  // does not.
  static std::unique_ptr<UploadRing> make_for(device::Stream&, int64_t bytes);
  ~UploadRing();  // waits for the uploads, whatever becomes of them
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  // Queues the upload. The values may change when it returns.
  void upload(const optim::FlatFloats& to, std::span<const float> values);
  // Waits until all uploads have run. Throws what has become of the device's work.
  void finish();

 private:
  struct Piece {
    std::byte* memory = nullptr;
    device::Event read;  // the device has read it
  };
  Piece& next_piece();  // waits for it

  device::Stream& stream_;
  const int64_t piece_bytes_;
  device::HostBuffer memory_;
  std::array<Piece, pieces> ring_;
  size_t next_ = 0;
  bool is_finished_ = true;
};

}  // namespace trireme::engine
