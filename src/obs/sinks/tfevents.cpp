// SPDX-License-Identifier: Apache-2.0
#include "obs/sinks/tfevents.h"

#include <array>
#include <bit>
#include <cstring>

namespace trireme::obs {

static_assert(std::endian::native == std::endian::little,
              "numbers are written in native byte order");

namespace {

// Wire types of protobuf.
enum class Wire : uint8_t { varint = 0, eight_bytes = 1, length = 2, four_bytes = 5 };

template <typename T>
void put_raw(std::string& out, T value) {
  std::array<char, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), &value, sizeof(T));
  out.append(bytes.data(), bytes.size());
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}

void put_key(std::string& out, uint64_t field, Wire wire) {
  put_varint(out, field << 3 | static_cast<uint64_t>(wire));
}

void put_bytes(std::string& out, uint64_t field, std::string_view bytes) {
  put_key(out, field, Wire::length);
  put_varint(out, bytes.size());
  out.append(bytes);
}

void put_time(std::string& out, double wall_seconds) {
  if (wall_seconds == 0) return;
  put_key(out, 1, Wire::eight_bytes);
  put_raw(out, wall_seconds);
}

void put_step(std::string& out, int64_t step) {
  if (step == 0) return;
  put_key(out, 2, Wire::varint);
  put_varint(out, static_cast<uint64_t>(step));
}

std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
    table[i] = crc;
  }
  return table;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = crc_table();
  uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xffU];
  }
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

std::string version_event(double wall_seconds) {
  std::string event;
  put_time(event, wall_seconds);
  put_bytes(event, 3, "brain.Event:2");
  return event;
}

std::string session_start_event(double wall_seconds, int64_t step) {
  std::string event;
  put_time(event, wall_seconds);
  put_step(event, step);
  std::string session;
  put_key(session, 1, Wire::varint);
  put_varint(session, 1);
  put_bytes(event, 7, session);
  return event;
}

std::string scalar_event(double wall_seconds, int64_t step, std::span<const Metric> metrics) {
  std::string summary;
  for (const Metric& metric : metrics) {
    std::string value;
    put_bytes(value, 1, metric.name);
    put_key(value, 2, Wire::four_bytes);
    put_raw(value, static_cast<float>(metric.value));
    put_bytes(summary, 1, value);
  }
  std::string event;
  put_time(event, wall_seconds);
  put_step(event, step);
  put_bytes(event, 5, summary);
  return event;
}

std::string framed(std::string_view data) {
  std::string length;
  put_raw(length, uint64_t{data.size()});
  std::string record = length;
  put_raw(record, masked_crc32c(length));
  record.append(data);
  put_raw(record, masked_crc32c(data));
  return record;
}

}  // namespace trireme::obs
