// SPDX-License-Identifier: Apache-2.0
// Sketch, per core: JSON lines are parsed at some 400 MB/s, bytes become 16-bit tokens at memory
// speed, and a write to the page cache takes a fifth of the parsing. Reading and writing are in
// order, the rest is parallel, so that two cores are busy for nine tenths of the time.
#include "data/corpus/corpus.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "data/corpus/block_encoder.h"
#include "data/corpus/identity.h"
#include "data/corpus/in_order.h"
#include "data/corpus/publish.h"
#include "data/corpus/rejected.h"
#include "data/corpus/work_folder.h"
#include "data/files/layouts.h"
#include "data/files/token_writer.h"
#include "data/tokenizer_beside.h"

namespace trireme::data {
namespace {

using base::ConfigError;
using base::IoError;
using base::Json;

class CorpusBuild {
 public:
  CorpusBuild(const CorpusOptions& options, std::vector<Shard> shards)
      : options_(options),
        shards_(std::move(shards)),
        vocab_(corpus_vocab(options)),
        type_(stored_type(options.format, vocab_)),
        has_mask_(!options.documents.completion_field.empty()),
        prefix_(corpus_prefix(options.output)),
        identity_(identity_of(options, shards_, vocab_)),
        folder_(work_folder_of(prefix_), identity_, options.start_over),
        records_(folder_.state().shards) {}

  CorpusReport run() {
    try {
      check_records();
    } catch (const base::Error&) {
      if (!options_.start_over) throw;
      folder_.discard();
      records_.clear();
    }
    for (const ShardRecord& record : records_) total_.add(record.counts);
    const size_t resumed = records_.size();
    if (!folder_.state().is_complete) {
      try {
        build();
      } catch (...) {
        // Without a committed shard there is nothing to continue.
        if (folder_.state().shards.empty()) folder_.remove();
        throw;
      }
    }
    return report(resumed);
  }

 private:
  // Throws if the shards of the commit are not those of the inputs.
  void check_records() const {
    if (records_.size() > shards_.size()) {
      throw IoError(fmt::format("{}: records {} shards; the inputs are {}", folder_.path().string(),
                                records_.size(), shards_.size()));
    }
    for (size_t i = 0; i < records_.size(); ++i) check_unchanged(shards_[i], records_[i]);
  }

  void build() {
    if (!options_.tokenizer.files.empty()) {
      const std::filesystem::path copy = folder_.path() / "tokenizer";
      std::error_code ignored;
      std::filesystem::remove_all(copy, ignored);
      copy_tokenizer(options_.tokenizer.files, copy);
    }
    if (options_.format == TokenFormat::llmc && folder_.file(WorkFile::tokens).bytes() == 0) {
      const std::array<std::byte, llmc_header_bytes> header{};
      folder_.file(WorkFile::tokens).append(header);
    }
    std::vector<BlockEncoder> encoders;
    for (int i = 0; i < options_.workers; ++i) encoders.emplace_back(options_, type_, vocab_);
    BlockReader reader(shards_, options_.documents, records_.size());
    last_commit_ = std::chrono::steady_clock::now();
    InOrder<CorpusBlock> stages(
        {.read = [&](CorpusBlock& block) { return reader.next(block.source); },
         .work =
             [&](CorpusBlock& block, size_t worker) {
               encoders[worker].encode(block, shards_[block.source.shard]);
             },
         .write = [&](CorpusBlock& block) { write(block); }},
        options_.workers);
    stages.run();
    if (total_.tokens == 0) fail_without_documents();
    complete(folder_, finished(), manifest(), records_);
  }

  // Also the rejections of a build that this one continues are in the file. There is nothing to
  // continue after this.
  [[noreturn]] void fail_without_documents() {
    folder_.file(WorkFile::rejected).sync();
    std::string reasons;
    for (const RejectedLine& line : first_rejected(folder_.path() / "rejected.jsonl", 3)) {
      reasons += fmt::format("{}{}: {}: {}", reasons.empty() ? "; first: " : "; ", line.place,
                             line.reason, line.detail);
    }
    folder_.remove();
    throw IoError(fmt::format(
        "{}: nothing to write: the {} ({} bytes) hold no document; {} rejected{}", prefix_.string(),
        base::count_text(static_cast<int64_t>(shards_.size()), "file"), total_.stored_bytes,
        total_.all_rejected(), reasons));
  }

  void write(const CorpusBlock& block) {
    folder_.file(WorkFile::tokens).append(block.tokens);
    folder_.file(WorkFile::lengths).append(std::as_bytes(std::span(block.lengths)));
    folder_.file(WorkFile::mask).append(block.mask);
    shard_.add(block.counts);
    total_.add(block.counts);
    write_rejected(block);
    lines_ += block.lines;
    if (block.source.end) end_shard(block.source);
    if (options_.progress) {
      options_.progress(
          {.bytes_done = total_.stored_bytes + (block.source.end ? 0 : block.source.stored_bytes),
           .bytes_total = bytes_total(),
           .documents = total_.documents,
           .tokens = total_.tokens,
           .rejected = total_.all_rejected()});
    }
  }

  void write_rejected(const CorpusBlock& block) {
    int64_t number = total_.all_rejected() - static_cast<int64_t>(block.rejected.size());
    for (RejectedDocument document : block.rejected) {
      if (document.origin.line > 0) document.origin.line += lines_;
      const std::string text = rejected_line(document);
      folder_.file(WorkFile::rejected).append(std::as_bytes(std::span(text)));
      if (options_.max_rejected >= 0 && ++number > options_.max_rejected) {
        throw IoError(fmt::format("{}: {}: {}; {} rejected, allowed: {} (--max-rejected)",
                                  to_text(document.origin), name_of(document.rejection.reason),
                                  document.rejection.detail, base::count_text(number, "document"),
                                  options_.max_rejected));
      }
    }
  }

  void end_shard(const SourceBlock& source) {
    const Shard& shard = shards_[source.shard];
    shard_.stored_bytes = source.end->stored_bytes;
    total_.stored_bytes += source.end->stored_bytes;
    records_.push_back({.file = json_name(shard.path),
                        .end = *source.end,
                        .modified_ns = modified_ns(shard),
                        .counts = shard_});
    shard_ = {};
    lines_ = 0;
    const auto now = std::chrono::steady_clock::now();
    const bool is_due =
        std::chrono::duration<double>(now - last_commit_).count() >= options_.commit_seconds;
    // What was read from stdin cannot be read again.
    if (is_due && records_.size() < shards_.size() && !has_stdin()) {
      folder_.commit(records_, false);
      last_commit_ = now;
    }
  }

  Json manifest() const {
    Json shards = Json::array(), sources = Json::array();
    for (size_t i = 0; i < records_.size(); ++i) {
      Json shard = to_json(records_[i]);
      shard["kind"] = std::string(name_of(shards_[i].kind));
      shard["source"] = shards_[i].source;
      shard.erase("modified_ns");
      shards.push_back(std::move(shard));
    }
    const std::vector<CorpusCounts> counts = by_source();
    for (size_t i = 0; i < counts.size(); ++i) {
      sources.push_back({{"input", json_name(options_.inputs[i])}, {"counts", to_json(counts[i])}});
    }
    Json options = identity_;
    options.erase("shards");
    options.erase("stdin");
    Json tokenizer{{"fingerprint", options_.tokenizer.fingerprint},
                   {"vocab", options_.tokenizer.vocab}};
    if (!options_.tokenizer.files.empty()) {
      tokenizer["folder"] = json_name(tokenizer_folder_of(prefix_).filename());
    }
    return {{"trireme_data", 1},     {"type", std::string(name_of(type_))},
            {"has_mask", has_mask_}, {"tokenizer", tokenizer},
            {"options", options},    {"counts", to_json(total_)},
            {"sources", sources},    {"shards", shards}};
  }

  CorpusReport report(size_t resumed) {
    CorpusReport report{.total = total_,
                        .sources = by_source(),
                        .shards = static_cast<int64_t>(shards_.size()),
                        .resumed_shards = static_cast<int64_t>(resumed),
                        .vocab = vocab_,
                        .type = type_,
                        .has_mask = has_mask_,
                        .files = {}};
    report.files = publish(folder_, finished(), prefix_);
    return report;
  }

  std::vector<CorpusCounts> by_source() const {
    std::vector<CorpusCounts> counts(options_.inputs.size());
    for (size_t i = 0; i < records_.size(); ++i) counts[shards_[i].source].add(records_[i].counts);
    return counts;
  }

  FinishedCorpus finished() const {
    return {.format = options_.format,
            .type = type_,
            .tokens = total_.tokens,
            .has_mask = has_mask_,
            .has_rejected = total_.all_rejected() > 0,
            .has_tokenizer = !options_.tokenizer.files.empty()};
  }

  bool has_stdin() const {
    return std::any_of(shards_.begin(), shards_.end(),
                       [](const Shard& s) { return s.path == "-"; });
  }
  int64_t bytes_total() const {
    int64_t bytes = 0;
    for (const Shard& shard : shards_) bytes += shard.stored_bytes;
    return has_stdin() ? -1 : bytes;
  }

  const CorpusOptions& options_;
  std::vector<Shard> shards_;
  int64_t vocab_;
  TokenType type_;
  bool has_mask_;
  std::filesystem::path prefix_;
  Json identity_;
  WorkFolder folder_;
  std::vector<ShardRecord> records_;  // of the shards that were read to their end
  CorpusCounts shard_, total_;
  int64_t lines_ = 0;  // of the shard so far
  std::chrono::steady_clock::time_point last_commit_;
};

}  // namespace

CorpusReport build_corpus(const CorpusOptions& options) {
  if (options.workers < 1 || options.workers > 1024) {
    throw ConfigError(fmt::format("data build: {} workers; allowed: 1 .. 1024", options.workers));
  }
  if (options.documents.max_document_bytes < 1) {
    throw ConfigError(fmt::format("data build: documents of at most {} bytes; allowed: 1 or more",
                                  options.documents.max_document_bytes));
  }
  (void)field_paths(options.documents);
  (void)stored_type(options.format, corpus_vocab(options));
  std::vector<Shard> shards = find_shards(options.inputs, {.kind = options.kind});
  check_outside(options, shards, corpus_prefix(options.output));
  check_replaceable_tokenizer(tokenizer_folder_of(corpus_prefix(options.output)));
  return CorpusBuild(options, std::move(shards)).run();
}

}  // namespace trireme::data
