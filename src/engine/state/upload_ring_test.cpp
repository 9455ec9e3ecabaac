// SPDX-License-Identifier: Apache-2.0
#include "engine/state/upload_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/memory.h"
#include "engine/state/host_floats.h"
#include "kernels/table.h"

namespace trireme::engine {
namespace {

using base::DType;

// Flat floats of every kind, in memory of the device.
struct Targets {
  Targets(device::Device& device, int64_t elements)
      : memory(device, device::Mem::params, 16 * elements + 4096, "targets") {
    int64_t at = 0;
    const auto take = [&](DType dtype) {
      const base::TensorSpec spec{{elements}, dtype};
      const device::Tensor tensor = device::view_of(memory.data() + at, spec);
      at += base::bytes_of(spec);
      return tensor;
    };
    all.push_back({take(DType::f32)});
    all.push_back({take(DType::bf16)});
    all.push_back({take(DType::f16)});
    const device::Tensor high = take(DType::bf16);
    all.push_back({high, take(DType::u16)});
  }
  device::Buffer memory;
  std::vector<optim::FlatFloats> all;
};

// Several sizes, of fewer elements than a ring of `ring_bytes` has, and of many times as many.
void expect_bits_of_upload_floats(device::Device& device, device::Stream& stream) {
  for (const int64_t elements : {int64_t{1}, int64_t{100}, int64_t{5003}, int64_t{70'000}}) {
    const Targets expected(device, elements), found(device, elements);
    std::mt19937 random(static_cast<uint32_t>(elements));
    UploadRing ring(stream, 20'000);
    for (size_t i = 0; i < expected.all.size(); ++i) {
      std::vector<float> values(static_cast<size_t>(elements));
      for (float& value : values) value = std::normal_distribution<float>()(random);
      upload_floats(stream, expected.all[i], values);
      ring.upload(found.all[i], values);
      std::ranges::fill(values, -1.0F);  // they are the caller's again
    }
    ring.finish();
    for (size_t i = 0; i < expected.all.size(); ++i) {
      EXPECT_EQ(download_floats(stream, found.all[i]), download_floats(stream, expected.all[i]))
          << elements << " elements, kind " << i;
    }
  }
}

TEST(UploadRingTest, has_the_bits_of_upload_floats) {
  for (const auto mode : {device::StreamMode::inline_calls, device::StreamMode::worker_threads}) {
    device::CpuDevice device(kernels::cpu_kernels(), {.streams = mode});
    const auto stream = device.make_stream("uploads");
    expect_bits_of_upload_floats(device, *stream);
    EXPECT_EQ(device.host_ledger().live(), 0);
    EXPECT_EQ(UploadRing::make_for(*stream, 1000), nullptr);  // uploads of a CPU are copies
  }
}

TEST(UploadRingTest, is_no_larger_than_needed) {
  device::CpuDevice device(kernels::cpu_kernels(), {});
  const auto stream = device.make_stream("uploads");
  const auto bytes_for = [&](int64_t bytes) {
    const UploadRing ring(*stream, bytes);
    return device.host_ledger().live();
  };
  EXPECT_EQ(bytes_for(0), 4 * 256);
  EXPECT_EQ(bytes_for(1'000'000), 4 * 250'112);
  EXPECT_EQ(bytes_for(int64_t{1} << 40), 4 * UploadRing::max_piece_bytes);
}

}  // namespace
}  // namespace trireme::engine
