// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "base/error.h"
#include "data/files/layouts.h"
#include "memory_file.h"
#include "readers.h"
#include "walk_tokens.h"

namespace trireme::fuzz {
namespace {

// A whole number of tokens of every type; as 8-byte integers, the second is negative.
constexpr std::array<uint8_t, 16> bin = {1, 2, 3, 0, 0, 0, 0, 0, 127, 5, 6, 7, 128, 9, 255, 255};

// A pair of files in memory with names, since a reader of one finds the other by its name.
class Pair {
 public:
  Pair()
      : folder_(std::filesystem::temp_directory_path() /
                ("trireme_fuzz_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    std::filesystem::create_symlink(index_.path(), folder_ / "d.idx");
    std::filesystem::create_symlink(bin_.path(), folder_ / "d.bin");
    bin_.fill(std::as_bytes(std::span(bin)));
  }
  ~Pair() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  const MemoryFile& index() const { return index_; }
  std::filesystem::path path() const { return folder_ / "d"; }

 private:
  MemoryFile index_, bin_;
  std::filesystem::path folder_;
};

bool parses_megatron(Input input) {
  try {
    const data::MegatronIndex index = data::parse_megatron_index(input, bin.size(), "input");
    TRIREME_CHECK(index.document_start(0) == 0, "{}", index.document_start(0));
    TRIREME_CHECK(index.document_start(index.documents) == index.tokens, "{}", index.tokens);
  } catch (const base::Error&) {
    return false;  // refused
  }
  return true;
}

}  // namespace

bool read_megatron(Input input) {
  static const Pair pair;
  const bool is_taken = parses_megatron(input);
  pair.index().fill(input);
  bool is_opened = false;
  try {
    const auto tokens = data::open_tokens(pair.path(), {});
    is_opened = true;
    walk_tokens(*tokens);
  } catch (const base::Error&) {
    // Refused, or it has an invalid token.
  }
  TRIREME_CHECK(is_opened == is_taken, "parsed: {}, opened: {}", is_taken, is_opened);
  return is_taken;
}

}  // namespace trireme::fuzz
