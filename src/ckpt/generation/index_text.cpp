// SPDX-License-Identifier: Apache-2.0
// The index as text:
//   trireme index 1
//   rank 3 data 12288 tensors 2 chunks 1
//   t f32 96,32 weight/blocks.0.qkv.weight      for every tensor: type, shape, name
//   b 0 0,0 12,32                               then its boxes: offset, lo, hi
//   h 9a2f...                                   for every chunk
// Lines of words instead of JSON: the indexes grow with ranks times tensors, and all of them are
// read before the first byte is loaded. With 3,000 tensors of one box each: 241 kB, 2 ms; as JSON
// 401 kB without hashes, 10 ms.
#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "base/shape.h"
#include "ckpt/disk/disk.h"
#include "ckpt/generation/format.h"

namespace trireme::ckpt {
namespace {

constexpr const char* index_title = "trireme index";

// Reads the words of consecutive lines; a missing word or line is an error.
class Words {
 public:
  Words(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  bool at_end() const { return text_.empty(); }
  // Skips the next line's first word and returns true if it is `word`.
  bool pass_if(std::string_view word) {
    if (!text_.starts_with(word) || text_.size() <= word.size() || text_[word.size()] != ' ') {
      return false;
    }
    text_.remove_prefix(word.size() + 1);
    return true;
  }
  void pass(std::string_view word) {
    if (!pass_if(word)) fail(fmt::format("'{}' is missing", word));
  }
  // Reads a word up to `end`, and skips `end`.
  std::string_view word(char end) {
    const size_t bytes = text_.find_first_of(" \n");
    if (bytes == std::string_view::npos || bytes == 0 || text_[bytes] != end) {
      fail("a word is missing, or one too many");
    }
    const std::string_view found = text_.substr(0, bytes);
    text_.remove_prefix(bytes + 1);
    if (end == '\n') ++line_;
    return found;
  }
  int64_t number(char end) { return to_number(word(end)); }
  // Reads "96,32": `ndim` numbers, or with 0 any number up to max_ndim.
  std::vector<int64_t> numbers(char end, size_t ndim) {
    std::string_view list = word(end);
    std::vector<int64_t> values;
    while (true) {
      const size_t comma = list.find(',');
      values.push_back(to_number(list.substr(0, comma)));
      if (values.size() > max_ndim) fail(fmt::format("more than {} dimensions", max_ndim));
      if (comma == std::string_view::npos) break;
      list.remove_prefix(comma + 1);
    }
    if (ndim != 0 && values.size() != ndim) {
      fail(fmt::format("{} numbers for {} dimensions", values.size(), ndim));
    }
    return values;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw base::IoError(fmt::format("{}: line {}: {}", where_, line_, what));
  }

 private:
  // Parses digits only.
  int64_t to_number(std::string_view word) const {
    int64_t value = 0;
    const auto read = std::from_chars(word.data(), word.data() + word.size(), value);
    if (read.ec != std::errc() || read.ptr != word.data() + word.size() || word[0] == '-') {
      fail(fmt::format("a number from 0 to 2^63 - 1 was expected, not '{}'", word.substr(0, 32)));
    }
    return value;
  }

  std::string_view text_;
  const std::string& where_;
  int line_ = 2;
};

TensorInfo read_tensor(Words& words) {
  TensorInfo tensor;
  const std::string_view dtype = words.word(' ');
  try {
    tensor.dtype = base::dtype_from_name(dtype);
  } catch (const base::ConfigError& error) {
    words.fail(error.what());
  }
  tensor.shape = words.numbers(' ', 0);
  tensor.name = words.word('\n');
  if (const std::string rule = broken_rule(tensor); !rule.empty()) words.fail(rule);
  return tensor;
}

// `end` is the end of the previous box in the file on entry, and of this box on return.
SavedBox read_box(Words& words, const TensorInfo& tensor, int64_t data_bytes, int64_t& end) {
  const size_t ndim = tensor.shape.size();
  SavedBox box;
  box.offset = words.number(' ');
  box.lo = words.numbers(' ', ndim);
  box.hi = words.numbers('\n', ndim);
  for (size_t dim = 0; dim < ndim; ++dim) {
    if (box.lo[dim] >= box.hi[dim] || box.hi[dim] > tensor.shape[dim]) {
      words.fail(fmt::format("{}: dimension {} of a box goes from {} to {}; the tensor has {}",
                             tensor.name, dim, box.lo[dim], box.hi[dim], tensor.shape[dim]));
    }
  }
  const int64_t bytes = elements_of(box) * base::size_of(tensor.dtype);
  if (box.offset % page_bytes != 0 || box.offset < end || box.offset > data_bytes ||
      bytes > data_bytes - box.offset) {
    words.fail(
        fmt::format("{}: a box of {} bytes at {}; it must lie at a multiple of {}, from {} "
                    "on, in a file of {}",
                    tensor.name, bytes, box.offset, page_bytes, end, data_bytes));
  }
  end = box.offset + bytes;
  return box;
}

// Calls each(line) for every line before the hashes of chunks.
template <typename Each>
void for_each_line(const IndexView& index, int64_t chunks, const Each& each) {
  fmt::memory_buffer line;
  const auto out = std::back_inserter(line);
  const auto end_line = [&] {
    each(std::string_view(line.data(), line.size()));
    line.clear();
  };
  fmt::format_to(out, "{} {}\n", index_title, format_version);
  end_line();
  fmt::format_to(out, "rank {} data {} tensors {} chunks {}\n", index.rank, index.data_bytes,
                 index.tensors.size(), chunks);
  end_line();
  for (const SavedTensor& saved : index.tensors) {
    const TensorInfo& tensor = saved.tensor;
    TRIREME_CHECK(broken_rule(tensor).empty(), "{}", broken_rule(tensor));
    fmt::format_to(out, "t {} {} {}\n", base::name_of(tensor.dtype), fmt::join(tensor.shape, ","),
                   tensor.name);
    end_line();
    for (const SavedBox& box : saved.boxes) {
      fmt::format_to(out, "b {} {} {}\n", box.offset, fmt::join(box.lo, ","),
                     fmt::join(box.hi, ","));
      end_line();
    }
  }
}

constexpr int64_t hash_line_bytes = 2 + 32 + 1;

}  // namespace

int64_t index_text_bytes(const IndexView& index, int64_t chunks) {
  int64_t bytes = chunks * hash_line_bytes + seal_bytes;
  for_each_line(index, chunks, [&](std::string_view line) { bytes += std::ssize(line); });
  return bytes;
}

void write_index_text(const IndexView& index, std::span<char> to) {
  size_t written = 0;
  const auto add = [&](std::string_view line) {
    TRIREME_CHECK(line.size() <= to.size() - written, "{} bytes after {} of {}", line.size(),
                  written, to.size());
    written += line.copy(to.data() + written, line.size());
  };
  for_each_line(index, std::ssize(index.chunks), add);
  for (const Hash& chunk : index.chunks) {
    add("h ");
    add(to_hex(chunk));
    add("\n");
  }
  add(seal_of({to.data(), written}));
  TRIREME_CHECK(written == to.size(), "{} bytes, {} were predicted", written, to.size());
}

std::string to_text(const Index& index) {
  const IndexView view{index.rank, index.data_bytes, index.tensors, index.chunks};
  std::string text(static_cast<size_t>(index_text_bytes(view, std::ssize(index.chunks))), '\0');
  write_index_text(view, text);
  return text;
}

Index parse_index(std::string_view text, const std::string& where) {
  const std::string_view body = unsealed(text, index_title, where);
  Words words(body.substr(body.find('\n') + 1), where);
  Index index;
  words.pass("rank");
  const int64_t rank = words.number(' ');
  if (rank > std::numeric_limits<int>::max()) words.fail(fmt::format("rank {}", rank));
  index.rank = static_cast<int>(rank);
  words.pass("data");
  index.data_bytes = words.number(' ');
  words.pass("tensors");
  const int64_t tensors = words.number(' ');
  words.pass("chunks");
  const int64_t chunks = words.number('\n');
  if (index.data_bytes % page_bytes != 0 ||
      chunks != index.data_bytes / chunk_bytes + (index.data_bytes % chunk_bytes == 0 ? 0 : 1)) {
    words.fail(
        fmt::format("{} bytes of data and {} chunks: the bytes must be a multiple of {}, "
                    "with a chunk for every {}",
                    index.data_bytes, chunks, page_bytes, chunk_bytes));
  }
  int64_t end = 0;
  while (words.pass_if("t")) {
    SavedTensor saved{read_tensor(words), {}};
    while (words.pass_if("b")) {
      saved.boxes.push_back(read_box(words, saved.tensor, index.data_bytes, end));
    }
    index.tensors.push_back(std::move(saved));
  }
  if (std::ssize(index.tensors) != tensors) {
    words.fail(fmt::format("{} tensors; the second line says {}", index.tensors.size(), tensors));
  }
  while (words.pass_if("h")) {
    const std::optional<Hash> hash = hash_from_hex(words.word('\n'));
    if (!hash) words.fail("32 digits, 0-9 and a-f, were expected");
    index.chunks.push_back(*hash);
  }
  if (!words.at_end()) words.fail("neither a tensor, nor a box, nor a hash");
  if (std::ssize(index.chunks) != chunks) {
    words.fail(fmt::format("{} hashes; the second line says {}", index.chunks.size(), chunks));
  }
  return index;
}

}  // namespace trireme::ckpt
