// SPDX-License-Identifier: Apache-2.0
// For tests: a thread rank (device, stream, communicator, memory), and sums by the definition of
// the tree.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/rng.h"
#include "comm/threads.h"
#include "device/accelerator.h"
#include "device/cpu/cpu_device.h"
#include "device/memory.h"
#include "kernels/table.h"
#include "spec/parallel/sum_tree.h"

namespace trireme::comm {

using base::DType;
using device::StreamMode;
using Values = std::vector<float>;

// Where a rank's tensors are, and how its streams run.
struct Place {
  Place(StreamMode stream_mode) : mode(stream_mode) {}  // NOLINT: host memory
  static Place cuda() {
    Place place(StreamMode::inline_calls);
    place.is_cuda = true;
    return place;
  }

  StreamMode mode;
  bool is_cuda = false;  // the first GPU, which the ranks share
};

inline std::unique_ptr<device::Device> make_device(const Place& place) {
  if (place.is_cuda) return device::make_gpu(kernels::cuda_kernels(), {});
  return std::make_unique<device::CpuDevice>(
      kernels::cpu_kernels(), device::CpuDevice::Options{.threads = 1, .streams = place.mode});
}

class Rank {
 public:
  Rank(ThreadWorld& world, int rank, const Place& place, int64_t buffer_bytes = 1 << 16)
      : Rank(world.communicator(rank, {.name = "world"}), place, buffer_bytes) {}
  Rank(std::unique_ptr<Communicator> comm, const Place& place, int64_t buffer_bytes = 1 << 16)
      : is_cuda(place.is_cuda),
        owned_device(make_device(place)),
        device(*owned_device),
        arena(device::Buffer(device, device::Mem::scratch, 16 << 20, "tensors")),
        group(std::move(comm)),
        stream(device.make_stream("test")) {
    if (buffer_bytes > 0) group->set_buffer(arena.take({{buffer_bytes}, DType::u8}));
  }

  // Rounded to `dtype`.
  Tensor make(const Values& values, DType dtype = DType::f32) {
    const Tensor tensor = arena.take({{static_cast<int64_t>(values.size())}, dtype});
    write(tensor, values);
    return tensor;
  }
  // Bypasses the stream: use it only if the stream is idle or has not used the tensor.
  void write(const Tensor& tensor, const Values& values) {
    if (tensor.dtype == DType::f32) {
      put<float>(tensor, values);
    } else if (tensor.dtype == DType::f16) {
      put<base::F16>(tensor, {values.begin(), values.end()});
    } else {
      put<base::Bf16>(tensor, {values.begin(), values.end()});
    }
  }
  Values read(const Tensor& tensor) {
    if (tensor.dtype == DType::f32) return get<float>(tensor);
    return tensor.dtype == DType::f16 ? read_as<base::F16>(tensor) : read_as<base::Bf16>(tensor);
  }
  template <typename T>
  Values read_as(const Tensor& tensor) {
    Values values;
    for (const T value : get<T>(tensor)) values.push_back(static_cast<float>(value));
    return values;
  }
  // The same for the stored bits of the elements.
  template <typename T>
  void put(const Tensor& tensor, const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    if (bytes.empty()) return;
    if (is_cuda) {
      stream->upload(device::view_of(tensor.data, {{std::ssize(bytes)}, DType::u8}), bytes);
      stream->synchronize();
    } else {
      std::memcpy(tensor.data, bytes.data(), bytes.size());
    }
  }
  template <typename T>
  std::vector<T> get(const Tensor& tensor) {
    stream->synchronize();
    std::vector<T> values(static_cast<size_t>(tensor.elements()));
    const auto bytes = std::as_writable_bytes(std::span(values));
    if (bytes.empty()) return values;
    if (is_cuda) {
      stream->download(bytes, device::view_of(tensor.data, {{std::ssize(bytes)}, DType::u8}));
      stream->synchronize();
    } else {
      std::memcpy(bytes.data(), tensor.data, bytes.size());
    }
    return values;
  }

  const bool is_cuda;
  std::unique_ptr<device::Device> owned_device;
  device::Device& device;
  device::Arena arena;
  std::unique_ptr<Communicator> group;
  std::unique_ptr<device::Stream> stream;
};

inline float rounded(float value, DType dtype) {
  return dtype == DType::f32   ? value
         : dtype == DType::f16 ? static_cast<float>(base::F16(value))
                               : static_cast<float>(base::Bf16(value));
}

// Returns values of different magnitudes, so that another order of sums is detected; rounded to
// `dtype`.
inline Values random_values(int64_t count, uint64_t seed, DType dtype = DType::f32) {
  Values values;
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<uint64_t>(i);
    const float value = base::rng_normal(seed, index, 1) *
                        static_cast<float>(1U << base::rng_below(seed + 77, index, 8));
    values.push_back(rounded(value, dtype));
  }
  return values;
}

// The tree over leaves [begin, end), element by element, every node rounded.
inline Values tree_sum(const std::vector<Values>& leaves, spec::Range node, DType dtype) {
  const int64_t count = node.end - node.begin;
  if (count == 1) return leaves.at(static_cast<size_t>(node.begin));
  int64_t p = 1;
  while (2 * p < count) p *= 2;
  Values sum = tree_sum(leaves, {node.begin, node.begin + p}, dtype);
  const Values right = tree_sum(leaves, {node.begin + p, node.end}, dtype);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = rounded(sum[i] + right[i], dtype);
  return sum;
}
inline Values tree_sum(const std::vector<Values>& leaves, DType dtype) {
  return tree_sum(leaves, {0, static_cast<int64_t>(leaves.size())}, dtype);
}

inline Values part_of(const Values& values, int64_t part, int64_t parts) {
  const auto count = static_cast<int64_t>(values.size()) / parts;
  return {values.begin() + part * count, values.begin() + (part + 1) * count};
}

// Returns the message that run_ranks throws; empty if it does not throw.
template <typename Body>
std::string failure_of(ThreadWorld& world, const Body& body) {
  try {
    run_ranks(world, body);
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace trireme::comm
