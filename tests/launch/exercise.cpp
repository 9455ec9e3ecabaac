// SPDX-License-Identifier: Apache-2.0
#include "tests/launch/exercise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/sha256.h"
#include "device/memory.h"

namespace trireme::tests {
namespace {

using base::DType;
using device::Tensor;

// Returns small numbers of many bits, a function of `seed`.
std::vector<std::byte> made_up(int64_t elements, DType dtype, uint32_t seed) {
  std::vector<std::byte> bytes(static_cast<size_t>(elements * base::size_of(dtype)));
  uint32_t state = seed;
  for (int64_t i = 0; i < elements; ++i) {
    state = state * 1664525U + 1013904223U;
    const float value = static_cast<float>(state >> 8) / 0x1p20F - 8;
    if (dtype == DType::f32) {
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    } else {
      std::memcpy(bytes.data() + 2 * i, reinterpret_cast<const char*>(&value) + 2, 2);
    }
  }
  return bytes;
}

Tensor view(std::byte* data, int64_t elements, DType dtype) {
  return device::view_of(data, {{elements}, dtype});
}

// A stream, some memory, and copies to and from it on any device.
class Bench {
 public:
  explicit Bench(device::Device& device)
      : stream_(device.make_stream("exercise")),
        up_(device.make_side_stream("up")),
        down_(device.make_side_stream("down")),
        memory_(device, device::Mem::scratch, int64_t{48} << 20, "exercise"),
        buffer_(device, device::Mem::comm, int64_t{1} << 20, "sums") {}

  device::Stream& stream() { return *stream_; }
  // For messages.
  device::Stream& up() { return *up_; }
  device::Stream& down() { return *down_; }
  Tensor buffer() { return view(buffer_.data(), buffer_.bytes(), DType::u8); }
  Tensor room(int64_t elements, DType dtype) {
    const Tensor tensor = view(memory_.data() + used_, elements, dtype);
    used_ += base::round_up(tensor.bytes(), base::grain_bytes);
    if (used_ > memory_.bytes()) throw std::runtime_error("the exercise needs more memory");
    return tensor;
  }
  void clear() { used_ = 0; }
  void write(const Tensor& tensor, const std::vector<std::byte>& bytes) {
    stream_->upload(view(tensor.data, tensor.bytes(), DType::u8), bytes);
    stream_->synchronize();
  }
  std::vector<std::byte> read(const Tensor& tensor) {
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
    stream_->download(bytes, view(tensor.data, tensor.bytes(), DType::u8));
    stream_->synchronize();
    return bytes;
  }

 private:
  std::unique_ptr<device::Stream> stream_, up_, down_;
  device::Buffer memory_, buffer_;
  int64_t used_ = 0;
};

class Exercise {
 public:
  Exercise(comm::Communicator& world, device::Device& device) : bench_(device), world_(world) {
    world.set_buffer(bench_.buffer());
  }

  std::string run() {
    for (const int64_t count : {1, 5, 1000, 4096, 16387, 400000}) {
      for (const DType dtype : {DType::f32, DType::bf16}) sums(world_, count, dtype);
    }
    maxima(world_);
    moves(world_);
    const auto half = world_.split(world_.rank() % 2, -world_.rank(), {.name = "half"});
    half->set_buffer(bench_.buffer());
    sums(*half, 5000, DType::f32);
    maxima(*half);
    moves(*half);
    cross();
    world_.barrier();
    half->close(comm::End::finish);
    return hash_.hex();
  }

 private:
  // Each call and rank has its own numbers.
  Tensor fresh(int64_t elements, DType dtype) {
    const Tensor tensor = bench_.room(elements, dtype);
    const uint32_t seed = static_cast<uint32_t>(++made_ * 2654435761U) +
                          static_cast<uint32_t>(world_.rank()) * 40503U + 1;
    bench_.write(tensor, made_up(elements, dtype, seed));
    return tensor;
  }
  void take(const Tensor& tensor) {
    hash_.update(bench_.read(tensor));
    bench_.clear();
  }

  void sums(comm::Communicator& group, int64_t count, DType dtype) {
    const Tensor all = fresh(count, dtype);
    group.all_reduce(bench_.stream(), all, comm::Reduce::sum);
    take(all);
    const Tensor parts = fresh(count * group.size(), dtype), own = bench_.room(count, dtype);
    group.reduce_scatter(bench_.stream(), own, parts);
    take(own);
  }

  void maxima(comm::Communicator& group) {
    const Tensor all = fresh(77, DType::f32);
    group.all_reduce(bench_.stream(), all, comm::Reduce::max);
    take(all);
  }

  void moves(comm::Communicator& group) {
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    const Tensor one = fresh(3001, DType::f32), all = bench_.room(3001 * group.size(), DType::f32);
    const auto part_of_all = [&](int rank) { return all.slice_rows(rank * 3001, 3001); };
    group.all_gather(bench_.stream(), all, one);
    if (bench_.read(part_of_all(group.rank())) != bench_.read(one)) {
      throw std::runtime_error("all_gather: this rank's part is at the wrong place");
    }
    const Tensor arrived = bench_.room(3001, DType::f32);
    // Odd ranks receive first, so that no send waits for a send.
    for (int turn = 0; turn < 2 && group.size() > 1; ++turn) {
      const bool sends = (group.rank() % 2 == 0) == (turn == 0);
      if (sends) {
        group.send(bench_.stream(), one, next);
      } else {
        group.recv(bench_.stream(), arrived, previous);
      }
    }
    if (group.size() > 1 && bench_.read(arrived) != bench_.read(part_of_all(previous))) {
      throw std::runtime_error(fmt::format("recv: the data of rank {} is wrong", previous));
    }
    if (group.size() > 1) {
      group.shift(bench_.stream(), arrived, one);
      if (bench_.read(arrived) != bench_.read(part_of_all(previous))) {
        throw std::runtime_error(fmt::format("shift: the data of rank {} is wrong", previous));
      }
    }
    const Tensor blocks = bench_.room(all.elements(), DType::f32);
    group.all_to_all(bench_.stream(), blocks, all);
    hash_.update(bench_.read(blocks));
    take(all);
    const Tensor shared = fresh(999, DType::bf16);
    group.broadcast(bench_.stream(), shared, group.size() - 1);
    take(shared);
    const int64_t capacity = 3, width = 7, rows = capacity * group.size();
    Tensor in = fresh(rows * width, DType::f32).reshape({rows, width});
    Tensor out = fresh(rows * width, DType::f32).reshape({rows, width});
    const Tensor counts_in = bench_.room(group.size(), DType::i32);
    const Tensor counts_out = bench_.room(group.size(), DType::i32);
    std::vector<std::byte> counts(static_cast<size_t>(counts_out.bytes()));
    for (int r = 0; r < group.size(); ++r) {
      const int32_t count = 10 * group.rank() + r;
      std::memcpy(counts.data() + 4 * r, &count, 4);
    }
    bench_.write(counts_out, counts);
    group.all_to_all(bench_.stream(), out, counts_in, in, counts_out, capacity);
    hash_.update(bench_.read(counts_in));
    take(out);
  }

  // Ranks 0 and 1, 2 and 3, ... send each other three messages before they receive any: each
  // direction has its own group and stream.
  void cross() {
    const auto up = world_.split(0, world_.rank(), {.name = "up"});
    const auto down = world_.split(0, world_.rank(), {.name = "down"});
    cross(*up, *down);
    up->close(comm::End::finish);
    down->close(comm::End::finish);
  }

  void cross(comm::Communicator& up, comm::Communicator& down) {
    for (comm::Communicator* group : {&up, &down}) {  // connects (comm/nccl.h)
      const Tensor counts = bench_.room(group->size(), DType::i32);
      const Tensor all = fresh(group->size(), DType::f32),
                   none = bench_.room(group->size(), DType::f32);
      group->all_to_all(bench_.stream(), none, bench_.room(group->size(), DType::i32), all, counts,
                        1);
      take(none);
    }
    const int own = world_.rank(), other = own % 2 == 0 ? own + 1 : own - 1;
    if (other >= world_.size()) return;
    comm::Communicator& sends = own % 2 == 0 ? up : down;
    comm::Communicator& receives = own % 2 == 0 ? down : up;
    device::Stream& sent_on = own % 2 == 0 ? bench_.up() : bench_.down();
    device::Stream& received_on = own % 2 == 0 ? bench_.down() : bench_.up();
    const auto numbers = [](int rank, size_t round) {
      return made_up(3001, DType::f32,
                     static_cast<uint32_t>(rank) * 10 + static_cast<uint32_t>(round));
    };
    std::vector<Tensor> out, in;
    std::vector<std::unique_ptr<comm::Sent>> sent;
    for (size_t round = 0; round < 3; ++round) {
      out.push_back(bench_.room(3001, DType::f32));
      in.push_back(bench_.room(3001, DType::f32));
      bench_.write(out.back(), numbers(own, round));
    }
    for (const Tensor& tensor : out) sent.push_back(sends.start_send(sent_on, tensor, other));
    for (const Tensor& tensor : in) receives.recv(received_on, tensor, other);
    bench_.stream().wait(received_on.record());
    for (size_t round = 0; round < 3; ++round) {
      sent[round]->wait(bench_.stream());
      bench_.stream().copy_bytes(out[round], in[round]);
      if (bench_.read(out[round]) != numbers(other, round)) {
        throw std::runtime_error(
            fmt::format("message {}: the data of rank {} is wrong", round, other));
      }
    }
    bench_.clear();
    sent_on.synchronize();
  }

  Bench bench_;
  comm::Communicator& world_;
  base::Sha256 hash_;
  uint64_t made_ = 0;
};

double value_at(const std::vector<std::byte>& bytes, int64_t i, DType dtype) {
  float value = 0;
  if (dtype == DType::f32) {
    std::memcpy(&value, bytes.data() + 4 * i, 4);
  } else {
    std::memcpy(reinterpret_cast<char*>(&value) + 2, bytes.data() + 2 * i, 2);
  }
  return static_cast<double>(value);
}

}  // namespace

std::string exercise(comm::Communicator& world, device::Device& device) {
  return Exercise(world, device).run();
}

double library_error(comm::Communicator& fixed, comm::Communicator& library,
                     device::Device& device) {
  Bench bench(device);
  fixed.set_buffer(bench.buffer());
  library.set_buffer(bench.buffer());
  double worst = 0;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t count : {3, 4099, 300000}) {
      bench.clear();
      const auto seed = static_cast<uint32_t>(count + 977 * fixed.rank());
      const auto numbers = made_up(count * fixed.size(), dtype, seed);
      const auto sums_of = [&](comm::Communicator& group) {
        const Tensor all = bench.room(count * group.size(), dtype);
        const Tensor own = bench.room(count, dtype);
        bench.write(all, numbers);
        group.reduce_scatter(bench.stream(), own, all);
        group.all_reduce(bench.stream(), all, comm::Reduce::sum);
        std::vector<std::byte> bytes = bench.read(all);
        const std::vector<std::byte> part = bench.read(own);
        bytes.insert(bytes.end(), part.begin(), part.end());
        return bytes;
      };
      const auto expected = sums_of(fixed), found = sums_of(library);
      double largest = 0, difference = 0;
      for (int64_t i = 0; i < count * (fixed.size() + 1); ++i) {
        const double a = value_at(expected, i, dtype), b = value_at(found, i, dtype);
        largest = std::max(largest, std::abs(a));
        difference = std::max(difference, std::abs(a - b));
        if (!(std::abs(b) < 1e6)) throw std::runtime_error("the library's sum is not a number");
      }
      // Every addition rounds once; there are fewer than ten.
      const double error = difference / largest, allowed = dtype == DType::f32 ? 1e-6 : 0.04;
      if (!(error <= allowed)) {
        throw std::runtime_error(fmt::format("{} sums of {} elements are off by {} of the largest",
                                             base::name_of(dtype), count, error));
      }
      worst = std::max(worst, error);
    }
  }
  return worst;
}

}  // namespace trireme::tests
