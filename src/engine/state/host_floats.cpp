// SPDX-License-Identifier: Apache-2.0
#include "engine/state/host_floats.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/dtype.h"
#include "base/float16.h"
#include "base/split_float.h"

namespace trireme::engine {
namespace {

std::vector<std::byte> bytes_of(device::Stream& stream, const device::Tensor& from) {
  std::vector<std::byte> bytes(static_cast<size_t>(from.bytes()));
  if (from) stream.download(bytes, from);
  stream.synchronize();
  return bytes;
}

}  // namespace

std::vector<float> download_floats(device::Stream& stream, const optim::FlatFloats& from) {
  if (from.values.dtype == base::DType::f32) {
    std::vector<float> values(static_cast<size_t>(from.values.elements()));
    stream.download(std::as_writable_bytes(std::span(values)), from.values);
    stream.synchronize();
    return values;
  }
  return floats_of(from.values.dtype, bytes_of(stream, from.values), bytes_of(stream, from.low));
}

void upload_floats(device::Stream& stream, const optim::FlatFloats& to,
                   std::span<const float> values) {
  if (to.values.dtype == base::DType::f32) {
    stream.upload(to.values, std::as_bytes(values));
    stream.synchronize();
    return;
  }
  const auto high = static_cast<size_t>(to.values.bytes());
  std::vector<std::byte> stored(high + (to.low ? high : 0));
  store_floats(to, values, stored.data());
  stream.upload(to.values, std::span(stored).first(high));
  if (to.low) stream.upload(to.low, std::span(stored).subspan(high));
  stream.synchronize();
}

void store_floats(const optim::FlatFloats& to, std::span<const float> values, std::byte* at) {
  TRIREME_CHECK(to.values.elements() == std::ssize(values), "{} values for {} elements",
                values.size(), to.values.elements());
  if (to.values.dtype == base::DType::f32) {
    std::memcpy(at, values.data(), values.size_bytes());
    return;
  }
  auto* const stored = reinterpret_cast<uint16_t*>(at);
  if (to.low) {
    base::split_floats(values.data(), std::ssize(values), stored, stored + values.size());
  } else if (to.values.dtype == base::DType::f16) {
    std::ranges::transform(values, stored, [](float v) { return base::F16(v).bits; });
  } else {
    std::ranges::transform(values, stored, [](float v) { return base::Bf16(v).bits; });
  }
}

std::vector<float> floats_of(base::DType dtype, std::span<const std::byte> values,
                             std::span<const std::byte> low) {
  std::vector<float> floats(values.size() / static_cast<size_t>(base::size_of(dtype)));
  if (dtype == base::DType::f32) {
    std::memcpy(floats.data(), values.data(), values.size());
    return floats;
  }
  const auto* stored = reinterpret_cast<const uint16_t*>(values.data());
  if (!low.empty()) {
    base::join_floats(stored, reinterpret_cast<const uint16_t*>(low.data()), std::ssize(floats),
                      floats.data());
    return floats;
  }
  const auto convert = [&]<typename T>(T value) {
    std::transform(stored, stored + floats.size(), floats.begin(), [&](uint16_t bits) {
      value.bits = bits;
      return static_cast<float>(value);
    });
  };
  dtype == base::DType::f16 ? convert(base::F16()) : convert(base::Bf16());
  return floats;
}

std::vector<float> gather_for_host(comm::Communicator& group, device::Stream& stream,
                                   const device::Tensor& buffer, std::span<const float> own) {
  const auto elements = static_cast<int64_t>(own.size());
  std::vector<float> all(own.size() * static_cast<size_t>(group.size()));
  // In pieces that fit into the buffer, because nothing may be allocated.
  const int64_t room = buffer.bytes() / static_cast<int64_t>(sizeof(float)) / group.size();
  for (int64_t begin = 0; begin < elements; begin += room) {
    const int64_t count = std::min(room, elements - begin);
    const device::Tensor piece =
        device::view_of(buffer.data, {{group.size() * count}, base::DType::f32});
    const device::Tensor mine = piece.slice_rows(group.rank() * count, count);
    upload_floats(stream, {mine},
                  own.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)));
    group.all_gather(stream, piece, mine);
    const std::vector<float> values = download_floats(stream, {piece});
    for (int64_t r = 0; r < group.size(); ++r) {
      std::copy_n(values.begin() + r * count, count, all.begin() + r * elements + begin);
    }
  }
  return all;
}

}  // namespace trireme::engine
