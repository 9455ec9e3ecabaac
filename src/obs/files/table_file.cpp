// SPDX-License-Identifier: Apache-2.0
#include "obs/files/table_file.h"

#include <bit>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"
#include "base/text/json_depth.h"
#include "obs/sinks/tfevents.h"

namespace trireme::obs {

static_assert(std::endian::native == std::endian::little,
              "numbers are written in native byte order");

namespace {

constexpr uint32_t header_kind = 'H', record_kind = 'R';
constexpr size_t frame_bytes = 2 * sizeof(uint32_t);  // before the payload
constexpr size_t stamp_bytes = 2 * sizeof(int64_t) + sizeof(double);
constexpr uint32_t max_payload_bytes = uint32_t{1} << 28;  // more is damage

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <typename T>
T taken(std::string_view from, size_t offset) {
  T value{};
  std::memcpy(&value, from.data() + offset, sizeof(T));
  return value;
}

std::string block(uint32_t kind, std::string_view payload) {
  std::string out;
  put(out, kind);
  put(out, static_cast<uint32_t>(payload.size()));
  out.append(payload);
  put(out, crc32c(payload));
  return out;
}

// The next block of a file that is read from `offset`.
struct Block {
  uint32_t kind = 0;
  std::string payload;
  uintmax_t end = 0;  // its last byte's offset plus one
};

// Returns nothing at the end, for an incomplete block and for a damaged one.
std::optional<Block> next_block(std::ifstream& in, uintmax_t offset, uintmax_t size) {
  if (offset + frame_bytes > size) return {};
  char frame[frame_bytes];
  in.seekg(static_cast<std::streamoff>(offset));
  if (!in.read(frame, frame_bytes)) return {};
  Block found{.kind = taken<uint32_t>({frame, frame_bytes}, 0)};
  const auto bytes = taken<uint32_t>({frame, frame_bytes}, sizeof(uint32_t));
  if (found.kind != header_kind && found.kind != record_kind) return {};
  found.end = offset + frame_bytes + bytes + sizeof(uint32_t);
  if (bytes > max_payload_bytes || found.end > size) return {};
  found.payload.resize(bytes);
  uint32_t crc = 0;
  if (!in.read(found.payload.data(), bytes)) return {};
  if (!in.read(reinterpret_cast<char*>(&crc), sizeof(crc))) return {};
  if (crc != crc32c(found.payload)) return {};
  return found;
}

// Returns nothing if the payload is no shape.
std::optional<TableShape> shape_from(const std::string& payload) {
  const base::Json json = base::parse_shallow_json(payload);
  if (!json.is_object() || !json.contains("table") || !json["table"].is_string()) return {};
  TableShape shape{.table = json["table"].get<std::string>()};
  for (const auto& [key, names] :
       {std::pair{"rows", &shape.rows}, std::pair{"columns", &shape.columns}}) {
    if (!json.contains(key) || !json[key].is_array()) return {};
    for (const base::Json& name : json[key]) {
      if (!name.is_string()) return {};
      names->push_back(name.get<std::string>());
    }
  }
  shape.about = json.contains("about") ? json["about"].dump() : "{}";
  return shape;
}

uintmax_t size_of(const std::filesystem::path& path) {
  std::error_code failed;
  const uintmax_t size = std::filesystem::file_size(path, failed);
  return failed ? 0 : size;
}

// Removes what follows the last complete block and returns the path.
const std::filesystem::path& without_partial_block(const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return path;  // OutputFile refuses pipes
  const uintmax_t size = size_of(path);
  std::ifstream in(path, std::ios::binary);
  uintmax_t end = 0;
  while (const std::optional<Block> found = next_block(in, end, size)) end = found->end;
  if (end < size) std::filesystem::resize_file(path, end, failed);
  if (failed) {
    throw base::IoError(fmt::format("{}: cannot be written: {}", path.string(), failed.message()));
  }
  return path;
}

}  // namespace

TableWriter::TableWriter(const std::filesystem::path& path)
    : file_(without_partial_block(path), OutputFile::Mode::append) {}

void TableWriter::begin(const TableShape& shape) {
  const base::Json about =
      shape.about.empty() ? base::Json::object() : base::Json::parse(shape.about);
  const base::Json json = {
      {"table", shape.table}, {"rows", shape.rows}, {"columns", shape.columns}, {"about", about}};
  values_ = shape.rows.size() * shape.columns.size();
  const std::string text = block(header_kind, json.dump());
  bytes_ += static_cast<int64_t>(text.size());
  file_.add(text);
}

void TableWriter::add(const TableRecord& record) {
  TRIREME_CHECK(values_ > 0 && record.values.size() == values_,
                "a record of {} values in a table of {}", record.values.size(), values_);
  std::string payload;
  payload.reserve(stamp_bytes + values_ * sizeof(float));
  put(payload, record.step);
  put(payload, record.attempt);
  put(payload, record.time);
  payload.append(reinterpret_cast<const char*>(record.values.data()), values_ * sizeof(float));
  const std::string text = block(record_kind, payload);
  bytes_ += static_cast<int64_t>(text.size());
  file_.add(text);
}

TableReader::TableReader(std::filesystem::path path) : path_(std::move(path)) {}

void TableReader::poll(const std::function<void(const TableShape&, const TableRecord&)>& record) {
  const uintmax_t size = size_of(path_);
  is_restarted_ = size < offset_;
  if (is_restarted_) {
    offset_ = 0;
    shape_ = {};
  }
  if (size == offset_) return;
  std::ifstream in(path_, std::ios::binary);
  while (const std::optional<Block> found = next_block(in, offset_, size)) {
    const std::string& payload = found->payload;
    if (found->kind == header_kind) {
      const std::optional<TableShape> shape = shape_from(payload);
      if (!shape) return;
      shape_ = *shape;
    } else {
      const size_t values = shape_.rows.size() * shape_.columns.size();
      if (payload.size() != stamp_bytes + values * sizeof(float)) return;
      TableRecord next{.step = taken<int64_t>(payload, 0),
                       .attempt = taken<int64_t>(payload, sizeof(int64_t)),
                       .time = taken<double>(payload, 2 * sizeof(int64_t)),
                       .values = std::vector<float>(values)};
      std::memcpy(next.values.data(), payload.data() + stamp_bytes, values * sizeof(float));
      record(shape_, next);
    }
    offset_ = found->end;
  }
}

}  // namespace trireme::obs
