// SPDX-License-Identifier: Apache-2.0
// Inputs are cut into blocks of a fixed size, independent of the number of workers. A round takes a
// few blocks per worker, converts them to tokens in parallel, and writes them in order.
#include "data/build.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/system/threads.h"
#include "base/text/json.h"
#include "data/files/mapped_file.h"
#include "data/files/token_writer.h"
#include "data/files/utf8.h"

namespace trireme::data {
namespace {

using base::ConfigError;
using base::IoError;
using base::Json;

constexpr size_t block_bytes = 512 << 10;
constexpr size_t blocks_per_worker = 4;

enum class Kind : uint8_t { whole_file, text_lines, json_lines };

// A part of an input and its result.
struct Block {
  std::shared_ptr<const MappedFile> file;  // shared by the blocks of a round; the last one unmaps
  Kind kind = Kind::whole_file;
  size_t begin = 0, end = 0;
  bool ends_file = false;

  std::vector<int32_t> tokens;
  std::vector<size_t> document_ends;  // numbers of tokens
  int64_t empty_documents = 0;
  std::exception_ptr error;
};

// Hands out the blocks of all inputs, in order.
class Inputs {
 public:
  explicit Inputs(const BuildOptions& options) : options_(options) {}

  // Returns false at the end. Reuses the vectors of `block`.
  bool next(Block& block);

 private:
  const BuildOptions& options_;
  size_t opened_ = 0;
  std::shared_ptr<const MappedFile> file_;
  Kind kind_ = Kind::whole_file;
  size_t at_ = 0;
};

int64_t check_options(const BuildOptions&);
Kind kind_of(const std::filesystem::path& path, bool split_lines);
void tokenize(Block& block, const BuildOptions&);
void add_text(Block& block, std::span<const std::byte> text, size_t offset, const BuildOptions&);
void end_document(Block& block, const BuildOptions&);
void add_lines(Block& block, const BuildOptions&);
std::string json_text(const Block& block, std::string_view line, size_t offset,
                      const BuildOptions&);
int64_t line_number(const MappedFile& file, size_t offset);

}  // namespace

BuildReport build_dataset(const BuildOptions& options) {
  BuildReport report;
  report.input_bytes = check_options(options);
  report.vocab = std::max<int64_t>(256, int64_t{options.end_of_document} + 1);
  const auto writer =
      write_tokens(options.output, {.format = options.format, .vocab = report.vocab});

  base::ThreadPool pool(options.workers);
  std::vector<Block> blocks(blocks_per_worker * static_cast<size_t>(options.workers));
  Inputs inputs(options);
  BuildProgress progress{.bytes_total = report.input_bytes};
  for (size_t count = 1; count > 0;) {
    count = 0;
    while (count < blocks.size() && inputs.next(blocks[count])) ++count;
    pool.for_each(static_cast<int64_t>(count),
                  [&](int64_t i) { tokenize(blocks[static_cast<size_t>(i)], options); });
    for (Block& block : std::span(blocks).first(count)) {
      if (block.error) std::rethrow_exception(block.error);
      size_t written = 0;
      for (const size_t end : block.document_ends) {
        writer->write(std::span(block.tokens).subspan(written, end - written));
        writer->end_document();
        written = end;
      }
      writer->write(std::span(block.tokens).subspan(written));
      report.empty_documents += block.empty_documents;
      progress.bytes_done += static_cast<int64_t>(block.end - block.begin);
      block.file.reset();
    }
    progress.documents = writer->documents();
    progress.tokens = writer->tokens();
    if (options.progress && count > 0) options.progress(progress);
  }
  if (writer->tokens() == 0) {
    throw IoError(fmt::format("{}: the {} inputs ({} bytes) hold no text; nothing was written",
                              options.output.string(), options.inputs.size(), report.input_bytes));
  }
  writer->finish();
  report.documents = writer->documents();
  report.tokens = writer->tokens();
  return report;
}

namespace {

// Returns the bytes of all inputs, each of which can be opened now.
int64_t check_options(const BuildOptions& options) {
  if (options.inputs.empty()) throw ConfigError("data build: no input; give .txt or .jsonl files");
  if (options.workers < 1 || options.workers > 1024) {
    throw ConfigError(fmt::format("data build: {} workers; allowed: 1 .. 1024", options.workers));
  }
  if (options.end_of_document < -1 || options.end_of_document > (1 << 24)) {
    throw ConfigError(
        fmt::format("data build: end-of-document token {}; allowed: 0 .. {}, or -1 for none",
                    options.end_of_document, 1 << 24));
  }
  int64_t bytes = 0;
  for (const auto& path : options.inputs) {
    kind_of(path, options.split_lines);
    bytes += static_cast<int64_t>(MappedFile(path).bytes().size());
  }
  return bytes;
}

Kind kind_of(const std::filesystem::path& path, bool split_lines) {
  const auto extension = path.extension();
  if (extension == ".jsonl") return Kind::json_lines;
  if (extension == ".txt") return split_lines ? Kind::text_lines : Kind::whole_file;
  throw ConfigError(fmt::format("{}: inputs of data build end in .txt or .jsonl, not '{}'",
                                path.string(), extension.string()));
}

bool Inputs::next(Block& block) {
  // An empty file yields one empty block, so that it is counted.
  if (!file_) {
    if (opened_ == options_.inputs.size()) return false;
    file_ = std::make_shared<const MappedFile>(options_.inputs[opened_]);
    file_->expect_one_pass();
    kind_ = kind_of(options_.inputs[opened_], options_.split_lines);
    at_ = 0;
    ++opened_;
  }
  const auto bytes = file_->bytes();
  size_t end = std::min(bytes.size(), at_ + block_bytes);
  if (end < bytes.size()) {
    if (kind_ == Kind::whole_file) {
      // Not inside a character; in text that is not UTF-8, anywhere.
      for (int back = 0; back < 3 && (bytes[end] & std::byte{0xc0}) == std::byte{0x80}; ++back) {
        --end;
      }
    } else {
      const void* newline = std::memchr(&bytes[end - 1], '\n', bytes.size() - (end - 1));
      end = newline == nullptr
                ? bytes.size()
                : static_cast<size_t>(static_cast<const std::byte*>(newline) - bytes.data()) + 1;
    }
  }
  block.file = file_;
  block.kind = kind_;
  block.begin = at_;
  block.end = end;
  block.ends_file = end == bytes.size();
  at_ = end;
  if (block.ends_file) file_.reset();
  return true;
}

// Runs on a worker; an exception is stored in the block.
void tokenize(Block& block, const BuildOptions& options) {
  block.tokens.clear();
  block.document_ends.clear();
  block.empty_documents = 0;
  try {
    const auto bytes = block.file->bytes().subspan(block.begin, block.end - block.begin);
    if (!options.raw_bytes || block.kind == Kind::json_lines) {
      check_utf8(bytes, {.name = block.file->path().native(),
                         .offset = static_cast<int64_t>(block.begin)});
    }
    if (block.kind == Kind::whole_file) {
      add_text(block, bytes, block.begin, options);
      if (block.ends_file && block.end == 0) {
        ++block.empty_documents;
      } else if (block.ends_file) {
        end_document(block, options);
      }
    } else {
      add_lines(block, options);
    }
  } catch (...) {
    block.error = std::current_exception();
  }
}

// `offset` of the text (for JSON, of its line) in the file.
void add_text(Block& block, std::span<const std::byte> text, size_t offset,
              const BuildOptions& options) {
  const int32_t reserved = options.raw_bytes ? -1 : options.end_of_document;
  if (reserved >= 0 && reserved < 256) {
    const auto found = std::find(text.begin(), text.end(), static_cast<std::byte>(reserved));
    if (found != text.end()) {
      const bool in_json = block.kind == Kind::json_lines;
      const auto at = in_json ? offset : offset + static_cast<size_t>(found - text.begin());
      throw IoError(fmt::format(
          "{}:{}: the text holds the byte {}, which is the end-of-document token; give another "
          "with --eod (256 is no byte), or --raw-bytes",
          block.file->path().string(), line_number(*block.file, at), reserved));
    }
  }
  const size_t before = block.tokens.size();
  block.tokens.resize(before + text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    block.tokens[before + i] = static_cast<int32_t>(text[i]);
  }
}

void end_document(Block& block, const BuildOptions& options) {
  if (options.end_of_document >= 0) block.tokens.push_back(options.end_of_document);
  block.document_ends.push_back(block.tokens.size());
}

void add_lines(Block& block, const BuildOptions& options) {
  const auto bytes = block.file->bytes();
  for (size_t at = block.begin; at < block.end;) {
    const auto* from = reinterpret_cast<const char*>(&bytes[at]);
    const auto* newline = static_cast<const char*>(std::memchr(from, '\n', block.end - at));
    std::string_view line(
        from, newline == nullptr ? block.end - at : static_cast<size_t>(newline - from));
    const size_t next = at + line.size() + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (block.kind == Kind::text_lines) {
      if (line.empty()) {
        ++block.empty_documents;
      } else {
        add_text(block, std::as_bytes(std::span(line)), at, options);
        end_document(block, options);
      }
    } else if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      const std::string text = json_text(block, line, at, options);
      if (text.empty()) {
        ++block.empty_documents;
      } else {
        add_text(block, std::as_bytes(std::span(text)), at, options);
        end_document(block, options);
      }
    }
    at = next;
  }
}

std::string json_text(const Block& block, std::string_view line, size_t offset,
                      const BuildOptions& options) {
  const auto fail = [&](const std::string& what) {
    return IoError(fmt::format("{}:{}: {}", block.file->path().string(),
                               line_number(*block.file, offset), what));
  };
  Json object;
  try {
    object = Json::parse(line);
  } catch (const Json::exception& error) {
    throw fail(fmt::format("not JSON: {}", error.what()));
  }
  if (!object.is_object()) {
    throw fail(fmt::format("is a JSON {}; every line must be an object with the key \"{}\"",
                           object.type_name(), options.text_key));
  }
  const auto found = object.find(options.text_key);
  if (found == object.end()) {
    std::vector<std::string> keys;
    for (const auto& item : object.items()) keys.push_back(item.key());
    throw fail(fmt::format("no key \"{}\"; found: {}", options.text_key, fmt::join(keys, ", ")));
  }
  if (!found->is_string()) {
    throw fail(
        fmt::format("\"{}\" is a JSON {}, not a string", options.text_key, found->type_name()));
  }
  return std::move(found->get_ref<std::string&>());
}

// Counted from 1, and only when a message needs it.
int64_t line_number(const MappedFile& file, size_t offset) {
  const auto before = file.bytes().first(offset);
  return 1 + std::count(before.begin(), before.end(), std::byte{'\n'});
}

}  // namespace
}  // namespace trireme::data
