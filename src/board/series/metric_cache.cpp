// SPDX-License-Identifier: Apache-2.0
// The cache of a MetricStore: arrays of the store as they are in memory, behind a header that names
// the build of the format and the place in metrics.jsonl. A cache is used only if metrics.jsonl has
// the same beginning and the same bytes before that place; it may be deleted at any time.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <system_error>

#include "base/error.h"
#include "base/sha256.h"
#include "base/system/descriptor.h"
#include "base/system/durable_file.h"
#include "board/series/metric_store.h"

namespace trireme::board {
namespace {

constexpr uint64_t cache_magic = 0x0002'6472'616f'6274;  // "tboard", version 2

// Returns the SHA-256 of the first 64 KiB of a file, or of all before `end`.
std::string hash_of_head(const std::filesystem::path& path, int64_t end) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes(static_cast<size_t>(std::min<int64_t>(end, 1 << 16)), '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!in) return "";
  base::Sha256 hash;
  hash.update(std::as_bytes(std::span(bytes)));
  return hash.hex();
}

}  // namespace

// Writes or reads the same sequence of fields.
class CacheCodec {
 public:
  explicit CacheCodec(std::string& out) : out_(&out) {}
  explicit CacheCodec(std::string_view in) : in_(in) {}
  bool failed() const { return failed_; }
  bool is_at_end() const { return in_.empty(); }

  template <typename T>
  void value(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes(&value, sizeof(T));
  }
  template <typename T>
  void array(std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    auto size = static_cast<uint64_t>(values.size());
    value(size);
    if (out_ == nullptr) {
      if (failed_ || size > in_.size() / sizeof(T)) {
        failed_ = true;
        return;
      }
      values.resize(size);
    }
    bytes(values.data(), size * sizeof(T));
  }
  void text(std::string& text) {
    std::vector<char> chars(text.begin(), text.end());
    array(chars);
    text.assign(chars.begin(), chars.end());
  }

  // All fields of a store after the header.
  static void store(CacheCodec& codec, MetricStore& store, bool is_reading);

 private:
  void bytes(void* data, size_t size) {
    if (out_ != nullptr) {
      out_->append(static_cast<const char*>(data), size);
    } else if (failed_ || size > in_.size()) {
      failed_ = true;
    } else if (size > 0) {
      std::memcpy(data, in_.data(), size);
      in_.remove_prefix(size);
    }
  }

  std::string* out_ = nullptr;
  std::string_view in_;
  bool failed_ = false;
};

void CacheCodec::store(CacheCodec& codec, MetricStore& store, bool is_reading) {
  for (int64_t* number : {&store.damaged_, &store.first_damaged_, &store.beyond_, &store.repeated_,
                          &store.last_step_, &store.last_attempt_}) {
    codec.value(*number);
  }
  for (double* number : {&store.tokens_, &store.first_time_, &store.last_time_}) {
    codec.value(*number);
  }
  codec.array(store.rows_);
  auto tags = static_cast<uint64_t>(store.scanner_.tags().size());
  codec.value(tags);
  if (tags > LineScanner::max_tags) codec.failed_ = true;
  for (size_t tag = 0; tag < tags && !codec.failed_; ++tag) {
    std::string name = is_reading ? "" : store.scanner_.tags()[tag];
    codec.text(name);
    if (is_reading) {
      if (store.scanner_.tag_of(name) != static_cast<int>(tag)) codec.failed_ = true;
      store.tracks_.emplace_back();
    }
    MetricTrack& track = store.tracks_[tag];
    codec.value(track.is_ascending);
    codec.array(track.rows);
    std::vector<double> values;
    if (!is_reading) values = track.values.values();
    codec.array(values);
    if (!is_reading) continue;
    for (const uint32_t row : track.rows) {
      if (row >= store.rows_.size()) codec.failed_ = true;
    }
    if (values.size() != track.rows.size()) codec.failed_ = true;
    track.values.replace_tail(0, values);
  }
}

bool MetricStore::load_cache(const std::filesystem::path& cache) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(cache, failed)) return false;
  std::string bytes(std::filesystem::file_size(cache, failed), '\0');
  std::ifstream in(cache, std::ios::binary);
  if (failed || !in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) return false;

  CacheCodec codec{std::string_view(bytes)};
  uint64_t magic = 0;
  LineTail::Place place;
  std::string head;
  codec.value(magic);
  if (magic != cache_magic) return false;
  codec.value(place);
  codec.text(head);
  if (codec.failed() || hash_of_head(path(), place.offset) != head) return false;
  if (!tail_.resume(place)) return false;
  clear();
  CacheCodec::store(codec, *this, true);
  if (!codec.failed() && codec.is_at_end()) {
    late_.resize(tracks_.size());
    tokens_tag_ = find("tokens").value_or(-1);
    step_tag_ = find("step").value_or(-1);
    return true;
  }
  clear();
  tail_ = LineTail(path(), {.max_line_bytes = max_line_bytes});
  return false;
}

void MetricStore::save_cache(const std::filesystem::path& cache) const {
  if (!tail_.has_place()) return;
  std::string bytes;
  CacheCodec codec(bytes);
  uint64_t magic = cache_magic;
  LineTail::Place place = tail_.place();
  std::string head = hash_of_head(path(), place.offset);
  if (head.empty()) return;
  codec.value(magic);
  codec.value(place);
  codec.text(head);
  // The codec only reads from a store that it writes.
  CacheCodec::store(codec, const_cast<MetricStore&>(*this), false);

  std::filesystem::path temporary = cache;
  temporary += fmt::format(".tmp{}", ::getpid());
  try {
    const base::Descriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (file.value() < 0) throw std::system_error(errno, std::generic_category());
    base::write_all(file.value(), std::as_bytes(std::span(bytes)));
    std::filesystem::rename(temporary, cache);
  } catch (const std::system_error& error) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw base::IoError(fmt::format("{}: the cache of {} cannot be written: {}", cache.string(),
                                    path().string(), error.code().message()));
  }
}

}  // namespace trireme::board
