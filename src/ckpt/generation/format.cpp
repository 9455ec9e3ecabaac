// SPDX-License-Identifier: Apache-2.0
// What indexes and manifests share: names, rules of tensors, the closing hash line.
#include "ckpt/generation/format.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace trireme::ckpt {
namespace {

constexpr std::string_view seal = "xxh3-128 ";
static_assert(seal_bytes == seal.size() + 32 + 1);
constexpr int64_t max_tensor_bytes = int64_t{1} << 60;

}  // namespace

int64_t elements_of(const SavedBox& box) {
  int64_t elements = 1;
  for (size_t dim = 0; dim < box.lo.size(); ++dim) elements *= box.hi[dim] - box.lo[dim];
  return elements;
}

bool is_run_id(std::string_view text) {
  constexpr size_t max_run_bytes = 32;
  return !text.empty() && text.size() <= max_run_bytes && std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

std::string data_name(int rank) { return fmt::format("data-{:05}", rank); }
std::string index_name(int rank) { return fmt::format("index-{:05}", rank); }

std::string broken_rule(const TensorInfo& tensor) {
  const bool is_printable =
      std::ranges::all_of(tensor.name, [](char c) { return c > ' ' && c <= '~'; });
  if (tensor.name.empty() || tensor.name.size() > max_name_bytes || !is_printable) {
    return fmt::format(
        "a tensor's name has {} characters; 1 to {} printable ones without spaces "
        "are allowed",
        tensor.name.size(), max_name_bytes);
  }
  if (tensor.shape.empty() || tensor.shape.size() > max_ndim) {
    return fmt::format("{} has {} dimensions; 1 to {} are allowed", tensor.name,
                       tensor.shape.size(), max_ndim);
  }
  int64_t bytes = base::size_of(tensor.dtype);
  for (const int64_t extent : tensor.shape) {
    if (extent < 1 || extent > max_tensor_bytes / bytes) {
      return fmt::format(
          "{} has a dimension of {}; at least 1 and less than 2^60 bytes in all are "
          "allowed",
          tensor.name, extent);
    }
    bytes *= extent;
  }
  return "";
}

int64_t bytes_of(const TensorInfo& tensor) {
  int64_t bytes = base::size_of(tensor.dtype);
  for (const int64_t extent : tensor.shape) bytes *= extent;
  return bytes;
}

std::string seal_of(std::string_view body) {
  return fmt::format("{}{}\n", seal, to_hex(hash_of(body)));
}

std::string sealed(std::string body) {
  const std::string line = seal_of(body);
  return std::move(body) + line;
}

std::string_view unsealed(std::string_view text, std::string_view title, const std::string& where) {
  const auto fail = [&](const std::string& what) {
    throw base::IoError(fmt::format("{}: {}", where, what));
  };
  if (text.empty()) fail("the file is empty: it was cut off, or not copied");
  const std::string start = std::string(title) + " ";
  if (!text.starts_with(start)) {
    fail(fmt::format("it does not begin with '{}{}': this is no such file, or it was damaged",
                     start, format_version));
  }
  const std::string_view first = text.substr(start.size(), text.find('\n') - start.size());
  int version = 0;
  const auto read = std::from_chars(first.data(), first.data() + first.size(), version);
  if (read.ec != std::errc() || read.ptr != first.data() + first.size() || version < 1) {
    fail(fmt::format("the version after '{}' is no number: the file was damaged", start));
  }
  if (version > format_version) {
    fail(
        fmt::format("format version {} is newer than {}, the newest that this program reads: use "
                    "the program that wrote it, or a newer one",
                    version, format_version));
  }
  if (text.size() < seal_bytes) fail("the last line is not a hash: the file was cut off");
  const std::string_view body = text.substr(0, text.size() - seal_bytes);
  const std::string_view last = text.substr(body.size());
  const std::optional<Hash> hash = hash_from_hex(last.substr(seal.size(), 32));
  if (!last.starts_with(seal) || last.back() != '\n' || !body.ends_with('\n') || !hash) {
    fail("the last line is not a hash: the file was cut off or damaged");
  }
  if (*hash != hash_of(body)) {
    fail("its hash is not that of its text: the file was damaged");
  }
  return body;
}

}  // namespace trireme::ckpt
