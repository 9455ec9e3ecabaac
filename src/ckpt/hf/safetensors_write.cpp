// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/system/descriptor.h"
#include "base/system/durable_file.h"
#include "base/text/json.h"
#include "ckpt/hf/safetensors.h"
#include "ckpt/hf/safetensors_layout.h"

namespace trireme::ckpt {

namespace {

using base::IoError;
using base::Json;
using Infos = std::map<std::string, SafetensorsInfo, std::less<>>;
using Item = Infos::value_type;

std::vector<const Item*> in_writing_order(const Infos& tensors);
std::string header_text(const std::vector<const Item*>& order, const SafetensorsMetadata& metadata);

int64_t bytes_of(const Item& item) {
  const auto& [name, info] = item;
  TRIREME_CHECK(name != metadata_key, "a tensor may not be called {}", metadata_key);
  TRIREME_CHECK(dtype_rank(info.dtype) >= 0, "{}: dtype '{}' is not of safetensors", name,
                info.dtype);
  const auto bytes = tensor_bytes(info.dtype, info.shape);
  TRIREME_CHECK(bytes, "{}: {}[{}] is too large", name, info.dtype, fmt::join(info.shape, ", "));
  return *bytes;
}

[[noreturn]] void fail(const std::filesystem::path& path, const std::system_error& error) {
  throw IoError(fmt::format("{}: could not be written: {}", path.string(), error.what()));
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, const Infos& tensors,
                                     const SafetensorsMetadata& metadata)
    : path_(std::move(path)), temporary_(path_) {
  const auto order = in_writing_order(tensors);
  std::string header;
  try {
    header = header_text(order, metadata);
  } catch (const Json::exception& error) {
    throw IoError(fmt::format("{}: a name or metadata text cannot be written as JSON: {}",
                              path_.string(), error.what()));
  }
  if (header.size() > max_header_bytes) {
    throw IoError(fmt::format("{}: the header would take {} bytes; at most {} are allowed",
                              path_.string(), header.size(), max_header_bytes));
  }
  const auto header_bytes = static_cast<uint64_t>(header.size());
  auto offset = static_cast<int64_t>(header_length_bytes + header.size());
  for (const Item* item : order) {
    const int64_t bytes = bytes_of(*item);
    places_[item->first] = {offset, bytes};
    offset += bytes;
    missing_bytes_ += bytes;
  }
  temporary_ += fmt::format(".tmp{}", ::getpid());
  try {
    descriptor_.emplace(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (descriptor_->value() < 0) throw std::system_error(errno, std::generic_category(), "open");
    base::write_all(descriptor_->value(), std::as_bytes(std::span(&header_bytes, 1)));
    base::write_all(descriptor_->value(), std::as_bytes(std::span(header)));
  } catch (const std::system_error& error) {
    std::error_code ignored;
    std::filesystem::remove(temporary_, ignored);
    fail(path_, error);
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

void SafetensorsWriter::write(std::string_view name, int64_t offset,
                              std::span<const std::byte> bytes) {
  const auto found = places_.find(name);
  TRIREME_CHECK(found != places_.end(), "{}: no tensor '{}' was announced", path_.string(), name);
  const Place& place = found->second;
  TRIREME_CHECK(offset >= 0 && offset + std::ssize(bytes) <= place.bytes,
                "{}: bytes {} to {} of {}", name, offset, offset + std::ssize(bytes), place.bytes);
  try {
    base::write_all_at(descriptor_->value(), place.offset + offset, bytes);
  } catch (const std::system_error& error) {
    fail(path_, error);
  }
  missing_bytes_ -= std::ssize(bytes);
}

void SafetensorsWriter::finish() {
  TRIREME_CHECK(missing_bytes_ == 0, "{}: {} bytes were not written", path_.string(),
                missing_bytes_);
  try {
    if (::fsync(descriptor_->value()) != 0) {
      throw std::system_error(errno, std::generic_category(), "fsync");
    }
    std::filesystem::rename(temporary_, path_);
    temporary_.clear();
    base::sync_folder(path_.has_parent_path() ? path_.parent_path() : std::filesystem::path("."));
  } catch (const std::system_error& error) {
    fail(path_, error);
  }
}

void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, SafetensorsView, std::less<>>& tensors,
                       const SafetensorsMetadata& metadata) {
  Infos infos;
  for (const auto& [name, view] : tensors) {
    const auto info = infos.insert_or_assign(name, SafetensorsInfo{view.dtype, view.shape}).first;
    const int64_t wanted = bytes_of(*info);
    TRIREME_CHECK(wanted == std::ssize(view.bytes), "{}: {}[{}] needs {} bytes, the view has {}",
                  name, view.dtype, fmt::join(view.shape, ", "), wanted, view.bytes.size());
  }
  SafetensorsWriter writer(path, infos, metadata);
  for (const auto& [name, view] : tensors) writer.write(name, 0, view.bytes);
  writer.finish();
}

namespace {

std::vector<const Item*> in_writing_order(const Infos& tensors) {
  std::vector<const Item*> order;
  for (const Item& item : tensors) order.push_back(&item);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return dtype_rank(a->second.dtype) > dtype_rank(b->second.dtype);
  });
  return order;
}

// Builds the header, padded with spaces so that the data starts at a multiple of 8.
std::string header_text(const std::vector<const Item*>& order,
                        const SafetensorsMetadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) {
    Json& entry = header[metadata_key] = Json::object();
    for (const auto& [key, value] : metadata) entry[key] = value;
  }
  int64_t offset = 0;
  // Json searches all keys on insertion; with thousands of tensors the text is built entry by entry
  // instead.
  std::string text = header.dump();
  text.pop_back();
  for (const auto* item : order) {
    const auto& [name, info] = *item;
    const int64_t bytes = bytes_of(*item);
    Json entry = {
        {"dtype", info.dtype}, {"shape", info.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
    if (text.size() > 1) text += ',';
    text += Json(name).dump() + ':' + entry.dump();
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

}  // namespace trireme::ckpt
