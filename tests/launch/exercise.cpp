// SPDX-License-Identifier: Apache-2.0
#include "tests/launch/exercise.h"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "base/sha256.h"
#include "device/memory.h"

namespace trireme::tests {
namespace {

using base::DType;
using device::Tensor;

class Exercise {
 public:
  Exercise(comm::Communicator& world, device::CpuDevice& device)
      : device_(device),
        stream_(device.make_stream("exercise")),
        memory_(device, device::Mem::scratch, int64_t{48} << 20, "exercise"),
        buffer_(device, device::Mem::comm, int64_t{1} << 20, "sums"),
        world_(world) {
    world.set_buffer(view(buffer_.data(), buffer_.bytes(), DType::u8));
  }

  std::string run() {
    for (const int64_t count : {1, 5, 1000, 4096, 16387, 400000}) {
      for (const DType dtype : {DType::f32, DType::bf16}) sums(world_, count, dtype);
    }
    Tensor most = fresh(77, DType::f32);
    world_.all_reduce(*stream_, most, comm::Reduce::max);
    take(most);
    moves(world_);
    const auto half = world_.split(world_.rank() % 2, -world_.rank(), {.name = "half"});
    half->set_buffer(view(buffer_.data(), buffer_.bytes(), DType::u8));
    sums(*half, 5000, DType::f32);
    moves(*half);
    world_.barrier();
    return hash_.hex();
  }

 private:
  static Tensor view(std::byte* data, int64_t elements, DType dtype) {
    return device::view_of(data, {{elements}, dtype});
  }
  Tensor room(int64_t elements, DType dtype) {
    const Tensor tensor = view(memory_.data() + used_, elements, dtype);
    used_ += base::round_up(tensor.bytes(), base::grain_bytes);
    if (used_ > memory_.bytes()) throw std::runtime_error("the exercise needs more memory");
    return tensor;
  }
  // Small numbers of many bits; each call and rank has its own.
  Tensor fresh(int64_t elements, DType dtype) {
    stream_->synchronize();
    const Tensor tensor = room(elements, dtype);
    uint32_t state = static_cast<uint32_t>(++made_ * 2654435761U) +
                     static_cast<uint32_t>(world_.rank()) * 40503U + 1;
    for (int64_t i = 0; i < elements; ++i) {
      state = state * 1664525U + 1013904223U;
      const float value = static_cast<float>(state >> 8) / 0x1p20F - 8;
      if (dtype == DType::f32) {
        std::memcpy(tensor.data + 4 * i, &value, 4);
      } else {
        std::memcpy(tensor.data + 2 * i, reinterpret_cast<const char*>(&value) + 2, 2);
      }
    }
    return tensor;
  }
  void take(const Tensor& tensor) {
    stream_->synchronize();
    hash_.update({tensor.data, static_cast<size_t>(tensor.bytes())});
    used_ = 0;
  }

  void sums(comm::Communicator& group, int64_t count, DType dtype) {
    const Tensor all = fresh(count, dtype);
    group.all_reduce(*stream_, all, comm::Reduce::sum);
    take(all);
    const Tensor parts = fresh(count * group.size(), dtype), own = room(count, dtype);
    group.reduce_scatter(*stream_, own, parts);
    take(own);
  }

  void moves(comm::Communicator& group) {
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    const Tensor one = fresh(3001, DType::f32), all = room(3001 * group.size(), DType::f32);
    group.all_gather(*stream_, all, one);
    stream_->synchronize();
    const std::byte* mine = all.data + group.rank() * one.bytes();
    if (std::memcmp(mine, one.data, static_cast<size_t>(one.bytes())) != 0) {
      throw std::runtime_error("all_gather: this rank's part is not where it belongs");
    }
    const Tensor arrived = room(3001, DType::f32);
    // Odd ranks receive first, so that no send waits for a send.
    for (int turn = 0; turn < 2 && group.size() > 1; ++turn) {
      const bool sends = (group.rank() % 2 == 0) == (turn == 0);
      if (sends) {
        group.send(*stream_, one, next);
      } else {
        group.recv(*stream_, arrived, previous);
      }
    }
    stream_->synchronize();
    if (group.size() > 1 && std::memcmp(arrived.data, all.data + previous * one.bytes(),
                                        static_cast<size_t>(one.bytes())) != 0) {
      throw std::runtime_error(fmt::format("recv: not what rank {} has", previous));
    }
    take(all);
    const Tensor shared = fresh(999, DType::bf16);
    group.broadcast(*stream_, shared, group.size() - 1);
    take(shared);
    const int64_t capacity = 3, width = 7, rows = capacity * group.size();
    Tensor in = fresh(rows * width, DType::f32).reshape({rows, width});
    Tensor out = fresh(rows * width, DType::f32).reshape({rows, width});
    const Tensor counts_in = room(group.size(), DType::i32);
    const Tensor counts_out = room(group.size(), DType::i32);
    for (int r = 0; r < group.size(); ++r) {
      const int32_t count = 3;
      std::memcpy(counts_out.data + 4 * r, &count, 4);
    }
    group.all_to_all(*stream_, out, counts_in, in, counts_out, capacity);
    take(out);
  }

  device::CpuDevice& device_;
  std::unique_ptr<device::Stream> stream_;
  device::Buffer memory_, buffer_;
  comm::Communicator& world_;
  base::Sha256 hash_;
  int64_t used_ = 0;
  uint64_t made_ = 0;
};

}  // namespace

std::string exercise(comm::Communicator& world, device::CpuDevice& device) {
  return Exercise(world, device).run();
}

}  // namespace trireme::tests
