// SPDX-License-Identifier: Apache-2.0
#include "data/readers/mds.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "base/text/json.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using base::IoError;
using base::Json;

constexpr int64_t max_index_bytes = int64_t{1} << 30;

// Reads values of one shard's entry; every failure names the file and the key.
class IndexEntry {
 public:
  IndexEntry(const Json& value, std::string name) : value_(value), name_(std::move(name)) {}

  const Json& at(const std::string& key) const {
    if (!value_.is_object()) throw fail("is not an object");
    const auto found = value_.find(key);
    if (found == value_.end()) throw fail(fmt::format("has no key \"{}\"", key));
    return *found;
  }
  std::string text(const std::string& key) const {
    const Json& found = at(key);
    if (!found.is_string()) throw fail(fmt::format("\"{}\" is not a string", key));
    return found.get<std::string>();
  }
  int64_t number(const std::string& key, int64_t max) const {
    return number_in(at(key), fmt::format("\"{}\"", key), max);
  }
  int64_t number_in(const Json& found, const std::string& what, int64_t max) const {
    if (!found.is_number_integer() || found < Json(0) || found > Json(max)) {
      throw fail(fmt::format("{} is {}; allowed: 0 .. {}", what, found.dump().substr(0, 40), max));
    }
    return found.get<int64_t>();
  }
  const Json& list(const std::string& key, size_t size) const {
    const Json& found = at(key);
    if (!found.is_array() || found.size() != size) {
      throw fail(fmt::format("\"{}\" is not a list of {} entries", key, size));
    }
    return found;
  }
  // A name without folders: the index is not trusted.
  std::string basename() const {
    std::string name = text("basename");
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      throw fail("\"basename\" is not the name of a file in the folder of the index");
    }
    return name;
  }
  IndexEntry inside(const std::string& key) const { return {at(key), name_ + "." + key}; }
  IoError fail(const std::string& what) const {
    return IoError(fmt::format("{}: {}", name_, what));
  }

 private:
  const Json& value_;
  std::string name_;
};

std::vector<MdsColumn> columns_of(const IndexEntry& entry) {
  constexpr size_t max_columns = 4096;
  const Json& names = entry.at("column_names");
  if (!names.is_array() || names.empty() || names.size() > max_columns) {
    throw entry.fail("\"column_names\" is not a list of 1 .. 4096 names");
  }
  const Json& encodings = entry.list("column_encodings", names.size());
  const Json& sizes = entry.list("column_sizes", names.size());
  std::vector<MdsColumn> columns;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].is_string() || !encodings[i].is_string()) {
      throw entry.fail(fmt::format("name or encoding of column {} is not a string", i));
    }
    MdsColumn column{.name = names[i].get<std::string>(),
                     .encoding = encodings[i].get<std::string>()};
    if (!sizes[i].is_null()) {
      column.fixed_bytes = static_cast<uint32_t>(entry.number_in(
          sizes[i], fmt::format("column_sizes[{}]", i), std::numeric_limits<uint32_t>::max()));
    }
    columns.push_back(std::move(column));
  }
  return columns;
}

// Returns the compression of the shard's zip_data: "zstd", "zstd:3", "gz", "gz:9".
Compression compression_of(const IndexEntry& entry) {
  if (entry.at("compression").is_null()) return Compression::none;
  const std::string text = entry.text("compression");
  const std::string name = text.substr(0, text.find(':'));
  if (name == "zstd") return Compression::zstd;
  if (name == "gz") return Compression::gzip;
  throw entry.fail(fmt::format("\"compression\" is '{}'; allowed: null, zstd, gz", text));
}

// Finds the file of a shard and checks its size.
void locate(MdsShard& shard, const IndexEntry& entry, const fs::path& folder) {
  const IndexEntry raw = entry.inside("raw_data");
  shard.raw_bytes = raw.number("bytes", std::numeric_limits<uint32_t>::max());
  shard.file = folder / raw.basename();
  int64_t expected = shard.raw_bytes;
  const Compression compression = compression_of(entry);
  const bool has_zip = !entry.at("zip_data").is_null();
  if (has_zip != (compression != Compression::none)) {
    throw entry.fail(
        fmt::format("\"compression\" is {} and \"zip_data\" is {}; allowed: both null "
                    "for shards that are not compressed, or neither",
                    entry.at("compression").dump(), has_zip ? "not null" : "null"));
  }
  std::error_code error;
  if (has_zip && !fs::exists(shard.file, error)) {
    const IndexEntry zip = entry.inside("zip_data");
    expected = zip.number("bytes", std::numeric_limits<int64_t>::max());
    shard.file = folder / zip.basename();
    shard.compression = compression;
  }
  const auto bytes = fs::file_size(shard.file, error);
  if (error) throw entry.fail(fmt::format("{}: {}", shard.file.string(), error.message()));
  shard.stored_bytes = static_cast<int64_t>(bytes);
  if (shard.stored_bytes != expected) {
    throw entry.fail(fmt::format("{} has {} bytes; the index lists {}", shard.file.string(),
                                 shard.stored_bytes, expected));
  }
}

}  // namespace

std::vector<MdsShard> read_mds_index(const fs::path& folder) {
  const fs::path path = folder / "index.json";
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (!file || error) throw IoError(fmt::format("{}: cannot be read", path.string()));
  if (bytes > static_cast<uintmax_t>(max_index_bytes)) {
    throw IoError(fmt::format("{}: has {} bytes; allowed for an MDS index: {}", path.string(),
                              bytes, max_index_bytes));
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return parse_mds_index(text, folder);
}

std::vector<MdsShard> parse_mds_index(std::string_view text, const fs::path& folder) {
  const std::string path = (folder / "index.json").string();
  Json index;
  try {
    index = Json::parse(text);
  } catch (const Json::exception& error) {
    throw IoError(fmt::format("{}: not JSON: {}", path, error.what()));
  }
  const IndexEntry root(index, path);
  if (const int64_t version = root.number("version", 1 << 20); version != 2) {
    throw root.fail(fmt::format("version {} of MDS; allowed: 2", version));
  }
  const Json& list = root.at("shards");
  if (!list.is_array() || list.empty()) throw root.fail("\"shards\" is not a list of shards");
  std::vector<MdsShard> shards;
  for (size_t i = 0; i < list.size(); ++i) {
    const IndexEntry entry(list[i], fmt::format("{}: shards[{}]", path, i));
    if (const std::string format = entry.text("format"); format != "mds") {
      throw entry.fail(fmt::format("\"format\" is '{}'; allowed: mds", format));
    }
    if (const int64_t version = entry.number("version", 1 << 20); version != 2) {
      throw entry.fail(fmt::format("version {} of MDS; allowed: 2", version));
    }
    MdsShard shard;
    shard.samples = static_cast<uint32_t>(entry.number("samples", (int64_t{1} << 30) - 2));
    shard.columns = columns_of(entry);
    locate(shard, entry, folder);
    if ((int64_t{shard.samples} + 2) * 4 > shard.raw_bytes) {
      throw entry.fail(
          fmt::format("{} samples do not fit {} bytes", shard.samples, shard.raw_bytes));
    }
    shards.push_back(std::move(shard));
  }
  return shards;
}

MdsReader::MdsReader(ShardStream& stream, const MdsShard& shard)
    : stream_(stream), shard_(shard), begins_(size_t{shard.samples} + 1) {
  if (stream_.compression() != shard.compression) {
    throw IoError(fmt::format("{}: the compression of the file is {}; by the index it is {}",
                              stream_.name(), name_of(stream_.compression()),
                              name_of(shard.compression)));
  }
  uint32_t samples = 0;
  if (!stream_.read_all(std::as_writable_bytes(std::span(&samples, 1)))) {
    throw IoError(fmt::format("{}: truncated: no number of samples", stream_.name()));
  }
  if (samples != shard_.samples) {
    throw IoError(fmt::format("{}: holds {} samples; the index lists {}", stream_.name(), samples,
                              shard_.samples));
  }
  if (!stream_.read_all(std::as_writable_bytes(std::span(begins_)))) {
    throw IoError(
        fmt::format("{}: truncated inside the table of {} samples", stream_.name(), samples));
  }
  if (begins_.front() < stream_.offset() || !std::is_sorted(begins_.begin(), begins_.end()) ||
      int64_t{begins_.back()} != shard_.raw_bytes) {
    throw IoError(fmt::format(
        "{}: the samples begin at byte {} and end at {}; allowed: ascending from {} to {}, the "
        "size in the index",
        stream_.name(), begins_.front(), begins_.back(), stream_.offset(), shard_.raw_bytes));
  }
  std::string header(static_cast<size_t>(begins_.front() - stream_.offset()), '\0');
  if (!stream_.read_all(std::as_writable_bytes(std::span(header)))) {
    throw IoError(fmt::format("{}: truncated inside its header", stream_.name()));
  }
}

bool MdsReader::next(std::string& sample, int64_t max_bytes) {
  if (at_ == shard_.samples) {
    std::byte more{};
    if (stream_.read(std::span(&more, 1)) != 0) {
      throw IoError(fmt::format("{}: has more bytes than the {} of the index", stream_.name(),
                                shard_.raw_bytes));
    }
    return false;
  }
  offset_ = begins_[at_];
  bytes_ = begins_[at_ + 1] - begins_[at_];
  ++at_;
  sample.clear();
  size_t left = bytes_;
  const bool is_kept = int64_t{bytes_} <= max_bytes;
  // In steps: the table may list more bytes than a damaged file has.
  std::string scratch;
  while (left > 0) {
    const size_t step = std::min<size_t>(left, 1 << 20);
    std::string& into = is_kept ? sample : scratch;
    const size_t before = is_kept ? sample.size() : 0;
    into.resize(before + step);
    if (!stream_.read_all(std::as_writable_bytes(std::span(into)).subspan(before))) {
      throw IoError(fmt::format("{}: truncated inside sample {} of {}", stream_.name(), index(),
                                shard_.samples));
    }
    left -= step;
  }
  return true;
}

std::string_view MdsReader::column(std::string_view sample, size_t column) const {
  const auto& columns = shard_.columns;
  const auto variable = static_cast<size_t>(std::count_if(
      columns.begin(), columns.end(), [](const MdsColumn& c) { return !c.fixed_bytes; }));
  const auto fail = [&] {
    return IoError(fmt::format("{}: sample {} has {} bytes, which its {} columns do not fill",
                               stream_.name(), index(), sample.size(), columns.size()));
  };
  if (sample.size() < variable * 4) throw fail();
  size_t head = 0, at = variable * 4;
  std::string_view found;
  for (size_t i = 0; i < columns.size(); ++i) {
    uint32_t bytes = 0;
    if (columns[i].fixed_bytes) {
      bytes = *columns[i].fixed_bytes;
    } else {
      std::memcpy(&bytes, sample.data() + 4 * head++, 4);
    }
    if (bytes > sample.size() - at) throw fail();
    if (i == column) found = sample.substr(at, bytes);
    at += bytes;
  }
  if (at != sample.size()) throw fail();
  return found;
}

}  // namespace trireme::data
