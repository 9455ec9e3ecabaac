// SPDX-License-Identifier: Apache-2.0
// What a tokenizer answers, for bench/peers/compare_tokenizers.py to compare and to time:
//   tokenizer_answers ids TOKENIZER TEXTS ANSWERS [plain]   ids of every text, and the decoded text
//   tokenizer_answers pieces TOKENIZER TEXTS ANSWERS        pieces of the pre-tokenizer
//   tokenizer_answers time TOKENIZER TEXTS PASSES           seconds of PASSES + 1 passes, as JSON
// TEXTS is a sequence of texts; a text is its size in bytes (32 bits, little-endian) and its bytes.
// `ids` writes, for each text, the number of ids and the ids (32 bits each), then the text that
// they decode to, without and with special tokens; `plain` adds no special tokens to the text.
// `pieces` writes, for each text, the number of pieces and the pieces.
#include <fmt/core.h>

#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "text/hf/parts.h"
#include "text/tokenizer.h"

namespace {

using namespace trireme;

class Texts {
 public:
  explicit Texts(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw base::IoError(file + ": cannot be read");
    all_.assign(std::istreambuf_iterator<char>(in), {});
    for (size_t at = 0; at < all_.size();) {
      uint32_t size = 0;
      if (all_.size() - at < sizeof(size)) throw base::IoError(file + ": ends inside a size");
      std::memcpy(&size, all_.data() + at, sizeof(size));
      at += sizeof(size);
      if (all_.size() - at < size) throw base::IoError(file + ": ends inside a text");
      views_.push_back(std::string_view(all_).substr(at, size));
      at += size;
    }
  }
  Texts(const Texts&) = delete;
  Texts& operator=(const Texts&) = delete;

  const std::vector<std::string_view>& views() const { return views_; }

 private:
  std::string all_;
  std::vector<std::string_view> views_;
};

class Answers {
 public:
  explicit Answers(const std::string& file) : out_(file, std::ios::binary), file_(file) {}
  void add_count(size_t count) {
    const auto value = static_cast<uint32_t>(count);
    out_.write(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void add_text(std::string_view text) {
    add_count(text.size());
    out_.write(text.data(), static_cast<std::streamsize>(text.size()));
  }
  void add_ids(const std::vector<int32_t>& ids) {
    add_count(ids.size());
    out_.write(reinterpret_cast<const char*>(ids.data()),
               static_cast<std::streamsize>(ids.size() * sizeof(int32_t)));
  }
  void close() {
    out_.close();
    if (!out_) throw base::IoError(file_ + ": cannot be written");
  }

 private:
  std::ofstream out_;
  std::string file_;
};

void write_ids(const text::Tokenizer& tokenizer, const Texts& texts, bool is_plain,
               Answers& answers) {
  for (const std::string_view text : texts.views()) {
    const auto ids = tokenizer.encode(text, {.add_special = !is_plain});
    answers.add_ids(ids);
    for (const bool skips : {true, false}) {
      const std::string decoded = tokenizer.decode(ids, {.skip_special = skips});
      const auto stream = tokenizer.streaming_decoder({.skip_special = skips});
      std::string joined;
      for (const int32_t id : ids) joined += stream->push(id);
      joined += stream->finish();
      if (joined != decoded) {
        throw base::ConfigError(fmt::format(
            "streamed text '{}' is not the decoded text '{}', for '{}'", joined, decoded, text));
      }
      answers.add_text(decoded);
    }
  }
}

void write_pieces(const std::string& file, const Texts& texts, Answers& answers) {
  const text::SortedJson json = text::read_json(file);
  const auto part =
      text::read_pre_tokenizer(text::JsonValue(json, file).at("pre_tokenizer"), false);
  text::PieceList list;
  for (const std::string_view text : texts.views()) {
    list.pieces.clear();
    list.changed.clear();
    if (!text.empty()) part.part->apply({text, true}, list);
    answers.add_count(list.pieces.size());
    for (const text::Piece& piece : list.pieces) answers.add_text(piece.text);
  }
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void print_times(const text::Tokenizer& tokenizer, const Texts& texts, int passes) {
  std::string seconds;
  size_t tokens = 0;
  for (int pass = 0; pass <= passes; ++pass) {
    tokens = 0;
    const double start = thread_seconds();
    for (const std::string_view text : texts.views()) tokens += tokenizer.encode(text).size();
    seconds += fmt::format("{}{:.6f}", pass == 0 ? "" : ", ", thread_seconds() - start);
  }
  fmt::print("{{\"tokens\": {}, \"seconds\": [{}]}}\n", tokens, seconds);
}

bool run(const std::vector<std::string>& args) {
  if (args.size() < 4) return false;
  const Texts texts(args[2]);
  if (args[0] == "time") {
    print_times(*text::open_tokenizer(args[1]), texts, std::stoi(args[3]));
    return true;
  }
  Answers answers(args[3]);
  if (args[0] == "ids") {
    const bool is_plain = args.size() > 4 && args[4] == "plain";
    write_ids(*text::open_tokenizer(args[1]), texts, is_plain, answers);
  } else if (args[0] == "pieces") {
    write_pieces(args[1], texts, answers);
  } else {
    return false;
  }
  answers.close();
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (run({argv + 1, argv + argc})) return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  fmt::print(stderr,
             "usage: tokenizer_answers ids|pieces TOKENIZER TEXTS ANSWERS [plain]\n"
             "       tokenizer_answers time TOKENIZER TEXTS PASSES\n");
  return 2;
}
