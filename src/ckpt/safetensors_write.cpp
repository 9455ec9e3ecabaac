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
#include "base/descriptor.h"
#include "base/durable_file.h"
#include "base/error.h"
#include "base/json.h"
#include "ckpt/safetensors.h"
#include "ckpt/safetensors_layout.h"

namespace trireme::ckpt {

namespace {

using base::IoError;
using base::Json;
using Item = std::pair<const std::string, SafetensorsView>;

std::vector<const Item*> in_writing_order(
    const std::map<std::string, SafetensorsView, std::less<>>& tensors);
std::string header_text(const std::vector<const Item*>& order, const SafetensorsMetadata& metadata);

}  // namespace

void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, SafetensorsView, std::less<>>& tensors,
                       const SafetensorsMetadata& metadata) {
  const auto order = in_writing_order(tensors);
  std::string header;
  try {
    header = header_text(order, metadata);
  } catch (const Json::exception& error) {
    throw IoError(fmt::format("{}: a name or metadata text cannot be written as JSON: {}",
                              path.string(), error.what()));
  }
  if (header.size() > max_header_bytes) {
    throw IoError(fmt::format("{}: the header would take {} bytes; at most {} are allowed",
                              path.string(), header.size(), max_header_bytes));
  }

  std::filesystem::path temporary = path;
  temporary += fmt::format(".tmp{}", ::getpid());
  try {
    const base::Descriptor descriptor(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (descriptor.value() < 0) throw std::system_error(errno, std::generic_category(), "open");
    const uint64_t header_bytes = header.size();
    base::write_all(descriptor.value(), std::as_bytes(std::span(&header_bytes, 1)));
    base::write_all(descriptor.value(), std::as_bytes(std::span(header)));
    for (const auto* item : order) base::write_all(descriptor.value(), item->second.bytes);
    if (::fsync(descriptor.value()) != 0) {
      throw std::system_error(errno, std::generic_category(), "fsync");
    }
    std::filesystem::rename(temporary, path);
    base::sync_folder(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
  } catch (const std::system_error& error) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw IoError(fmt::format("{}: could not be written: {}", path.string(), error.what()));
  }
}

namespace {

std::vector<const Item*> in_writing_order(
    const std::map<std::string, SafetensorsView, std::less<>>& tensors) {
  std::vector<const Item*> order;
  for (const Item& item : tensors) {
    const auto& [name, view] = item;
    TRIREME_CHECK(name != metadata_key, "a tensor may not be called {}", metadata_key);
    TRIREME_CHECK(dtype_rank(view.dtype) >= 0, "{}: dtype '{}' is not of safetensors", name,
                  view.dtype);
    const auto wanted = tensor_bytes(view.dtype, view.shape);
    TRIREME_CHECK(wanted && static_cast<size_t>(*wanted) == view.bytes.size(),
                  "{}: {}[{}] needs {} bytes, the view has {}", name, view.dtype,
                  fmt::join(view.shape, ", "), wanted.value_or(-1), view.bytes.size());
    order.push_back(&item);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return dtype_rank(a->second.dtype) > dtype_rank(b->second.dtype);
  });
  return order;
}

// The header, padded with spaces so that the data starts on a multiple of 8.
std::string header_text(const std::vector<const Item*>& order,
                        const SafetensorsMetadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) {
    Json& entry = header[metadata_key] = Json::object();
    for (const auto& [key, value] : metadata) entry[key] = value;
  }
  uint64_t offset = 0;
  // Json looks a new key up among all others; with thousands of tensors the text is built entry by
  // entry instead.
  std::string text = header.dump();
  text.pop_back();
  for (const auto* item : order) {
    const auto& [name, view] = *item;
    Json entry = {{"dtype", view.dtype},
                  {"shape", view.shape},
                  {"data_offsets", {offset, offset + view.bytes.size()}}};
    offset += view.bytes.size();
    if (text.size() > 1) text += ',';
    text += Json(name).dump() + ':' + entry.dump();
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

}  // namespace trireme::ckpt
