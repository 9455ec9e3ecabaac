// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hf/safetensors.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/system/descriptor.h"
#include "base/text/json.h"
#include "ckpt/hf/safetensors_layout.h"

namespace trireme::ckpt {

static_assert(std::endian::native == std::endian::little, "tensor bytes are used as they lie");

namespace {

using base::IoError;
// Finds keys in logarithmic time, so that a hostile header costs no more than its size.
using Header = nlohmann::json;

std::string reason_of(int error) { return std::generic_category().message(error); }
std::string shown(const Header& value);
Header parse_header(const std::filesystem::path& path, std::string_view text);
SafetensorsView parse_tensor(const std::filesystem::path& path, const std::string& name,
                             const Header& entry, std::span<const std::byte> data);
SafetensorsMetadata parse_metadata(const std::filesystem::path& path, const Header& entry);
void check_coverage(const std::filesystem::path& path,
                    const std::map<std::string, SafetensorsView, std::less<>>& tensors,
                    std::span<const std::byte> data);

}  // namespace

void SafetensorsFile::Unmap::operator()(const std::byte* start) const noexcept {
  ::munmap(const_cast<std::byte*>(start), size);
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  // A named pipe would block the open; it is refused below like every other special file.
  const base::Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.value() < 0) {
    throw IoError(fmt::format("{}: cannot be opened: {}", path.string(), reason_of(errno)));
  }
  struct stat status {};
  if (::fstat(descriptor.value(), &status) != 0) {
    throw IoError(fmt::format("{}: cannot be examined: {}", path.string(), reason_of(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    throw IoError(fmt::format("{}: is not a regular file", path.string()));
  }
  const auto size = static_cast<size_t>(status.st_size);
  if (size < header_length_bytes) {
    throw IoError(
        fmt::format("{}: has {} bytes; a safetensors file starts with a header length of "
                    "{} bytes",
                    path.string(), size, header_length_bytes));
  }
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.value(), 0);
  if (start == MAP_FAILED) {
    throw IoError(
        fmt::format("{}: {} bytes cannot be mapped: {}", path.string(), size, reason_of(errno)));
  }
  SafetensorsFile file;
  file.path_ = path;
  file.file_ = {static_cast<const std::byte*>(start), Unmap{size}};
  file.range_ = base::MappedRange({file.file_.get(), size}, path.string());
  file.read_header();
  return file;
}

const SafetensorsView& SafetensorsFile::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw IoError(
        fmt::format("{}: has no tensor '{}' among its {}", path_.string(), name, tensors_.size()));
  }
  return found->second;
}

void SafetensorsFile::read_header() {
  const std::span<const std::byte> whole(file_.get(), file_.get_deleter().size);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, whole.data(), header_length_bytes);
  if (header_bytes > max_header_bytes) {
    throw IoError(fmt::format("{}: header length is {} bytes; at most {} are allowed",
                              path_.string(), header_bytes, max_header_bytes));
  }
  const size_t after_length = whole.size() - header_length_bytes;
  if (header_bytes > after_length) {
    throw IoError(fmt::format("{}: header length is {} bytes, but only {} follow it",
                              path_.string(), header_bytes, after_length));
  }
  const std::string_view text(reinterpret_cast<const char*>(whole.data()) + header_length_bytes,
                              header_bytes);
  const auto data = whole.subspan(header_length_bytes + header_bytes);
  const Header header = parse_header(path_, text);
  for (const auto& [name, entry] : header.items()) {
    if (name == metadata_key) {
      metadata_ = parse_metadata(path_, entry);
    } else {
      tensors_.emplace(name, parse_tensor(path_, name, entry, data));
    }
  }
  check_coverage(path_, tensors_, data);
}

namespace {

// Formats a value for a message; long ones are truncated.
std::string shown(const Header& value) {
  constexpr size_t max_shown = 80;
  const std::string text = value.dump();
  return text.size() <= max_shown ? text : text.substr(0, max_shown) + "...";
}

// SAX handler that rejects what a parsed value no longer shows: a repeated key, and nesting that no
// header needs. Malformed text is left to the parser to report.
class StrictKeys : public nlohmann::json_sax<Header> {
 public:
  explicit StrictKeys(const std::filesystem::path& path) : path_(path) {}

  bool start_object(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool key(std::string& name) override {
    if (!keys_.back().insert(name).second) {
      throw IoError(
          fmt::format("{}: header has the key '{}' twice; once is allowed", path_.string(), name));
    }
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Header::binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  static constexpr size_t max_depth = 3;  // header, tensor, shape

  bool enter() {
    if (keys_.size() == max_depth) {
      throw IoError(
          fmt::format("{}: header nests deeper than {} levels", path_.string(), max_depth));
    }
    keys_.emplace_back();
    return true;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  const std::filesystem::path& path_;
  std::vector<std::set<std::string>> keys_;  // one per open object; arrays have none
};

// Parses the header: a JSON object without a repeated key at any depth.
Header parse_header(const std::filesystem::path& path, std::string_view text) {
  if (text.empty() || text.front() != '{') {
    throw IoError(fmt::format(
        "{}: header must start with '{{', found {}", path.string(),
        text.empty() ? "nothing"
                     : fmt::format("byte 0x{:02x}", static_cast<uint8_t>(text.front()))));
  }
  // The JSON parser treats a zero byte as the end of its input.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw IoError(
        fmt::format("{}: header is not valid JSON: byte {} of it is zero", path.string(), zero));
  }
  StrictKeys strict(path);
  try {
    Header::sax_parse(text.begin(), text.end(), &strict);
    return Header::parse(text.begin(), text.end());
  } catch (const Header::exception& error) {
    throw IoError(fmt::format("{}: header is not valid JSON: {}", path.string(), error.what()));
  }
}

// Parses one tensor's entry, with its view into `data`, the bytes after the header.
SafetensorsView parse_tensor(const std::filesystem::path& path, const std::string& name,
                             const Header& entry, std::span<const std::byte> data) {
  const auto fail = [&](const std::string& what) {
    throw IoError(fmt::format("{}: tensor '{}': {}", path.string(), name, what));
  };
  const auto whole_numbers = [&](const char* key) {
    const Header& list = entry.at(key);
    if (!list.is_array()) fail(fmt::format("{} is {}; a list is wanted", key, shown(list)));
    std::vector<int64_t> values;
    for (const Header& value : list) {
      if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{INT64_MAX}) {
        fail(fmt::format("{} holds {}; whole numbers from 0 to 2^63 - 1 are allowed", key,
                         shown(value)));
      }
      values.push_back(value.get<int64_t>());
    }
    return values;
  };

  if (!entry.is_object()) fail(fmt::format("its entry is {}; an object is wanted", shown(entry)));
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!entry.contains(key)) fail(fmt::format("its entry has no '{}'", key));
  }
  if (entry.size() != 3) {
    fail(fmt::format("its entry has {} keys; dtype, shape and data_offsets are allowed",
                     entry.size()));
  }
  const Header& dtype = entry.at("dtype");
  if (!dtype.is_string() || dtype_rank(dtype.get<std::string>()) < 0) {
    fail(fmt::format("dtype is {}; allowed are {}", shown(dtype), known_dtypes()));
  }
  SafetensorsView view;
  view.dtype = dtype.get<std::string>();
  view.shape = whole_numbers("shape");
  const auto offsets = whole_numbers("data_offsets");
  if (offsets.size() != 2) {
    fail(fmt::format("data_offsets has {} numbers; begin and end are wanted", offsets.size()));
  }
  const auto begin = static_cast<uint64_t>(offsets[0]), end = static_cast<uint64_t>(offsets[1]);
  if (begin > end || end > data.size()) {
    fail(
        fmt::format("data_offsets is [{}, {}]; begin <= end <= {}, the bytes after the header, "
                    "is wanted",
                    begin, end, data.size()));
  }
  const auto wanted = tensor_bytes(view.dtype, view.shape);
  if (!wanted) {
    fail(fmt::format("{}[{}] is not a whole number of bytes below 2^60", view.dtype,
                     fmt::join(view.shape, ", ")));
  }
  if (static_cast<uint64_t>(*wanted) != end - begin) {
    fail(fmt::format("{}[{}] takes {} bytes, but data_offsets [{}, {}] hold {}", view.dtype,
                     fmt::join(view.shape, ", "), *wanted, begin, end, end - begin));
  }
  view.bytes = data.subspan(begin, end - begin);
  return view;
}

SafetensorsMetadata parse_metadata(const std::filesystem::path& path, const Header& entry) {
  if (!entry.is_object()) {
    throw IoError(fmt::format("{}: {} is {}; an object of strings is wanted", path.string(),
                              metadata_key, shown(entry)));
  }
  SafetensorsMetadata metadata;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) {
      throw IoError(fmt::format("{}: {} '{}' is {}; a string is wanted", path.string(),
                                metadata_key, key, shown(value)));
    }
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

// Checks that every byte of `data` belongs to exactly one tensor.
void check_coverage(const std::filesystem::path& path,
                    const std::map<std::string, SafetensorsView, std::less<>>& tensors,
                    std::span<const std::byte> data) {
  struct Extent {
    uint64_t begin, end;
    const std::string* name;
  };
  std::vector<Extent> extents;
  for (const auto& [name, view] : tensors) {
    const auto begin = static_cast<uint64_t>(view.bytes.data() - data.data());
    extents.push_back({begin, begin + view.bytes.size(), &name});
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t covered = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != covered) {
      throw IoError(fmt::format(
          "{}: tensor '{}' begins at byte {}, but the tensors before it end at {}: {} are not "
          "allowed",
          path.string(), *extent.name, extent.begin, covered,
          extent.begin < covered ? "overlaps" : "holes"));
    }
    covered = extent.end;
  }
  if (covered != data.size()) {
    throw IoError(
        fmt::format("{}: the tensors end at byte {}, but {} bytes follow the header; "
                    "bytes without a tensor are not allowed",
                    path.string(), covered, data.size()));
  }
}

}  // namespace

}  // namespace trireme::ckpt
