// SPDX-License-Identifier: Apache-2.0
#include "data/clean/clean.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/system/threads.h"
#include "base/text/count_text.h"
#include "data/clean/block_cleaner.h"
#include "data/clean/clean_output.h"
#include "data/clean/clean_writer.h"
#include "data/clean/near/near_duplicates.h"
#include "data/corpus/counts.h"
#include "data/corpus/in_order.h"
#include "data/readers/compress.h"

namespace trireme::data {
namespace {

using base::ConfigError;
using base::IoError;

constexpr int64_t max_documents = (int64_t{1} << 31) - 1;

// Compares the shingles of texts that are read again.
class TextComparer final : public Comparer {
 public:
  TextComparer(const Spool& spool, const ShingleOptions& options)
      : spool_(spool), shingler_(options) {}

  double similarity(uint32_t document, uint32_t other) override {
    if (!has_set_ || document != document_) read_set(document, set_);
    document_ = document;
    has_set_ = true;
    read_set(other, other_set_);
    return jaccard(set_, other_set_);
  }

 private:
  void read_set(uint32_t document, std::vector<uint64_t>& set) {
    spool_.read(document, text_);
    shingler_.hash(text_.parts(), set);
    make_set(set);
  }

  const Spool& spool_;
  Shingler shingler_;
  SpooledDocument text_;
  uint32_t document_ = 0;
  bool has_set_ = false;
  std::vector<uint64_t> set_, other_set_;
};

class CleanJob {
 public:
  CleanJob(const CleanOptions& options, std::vector<Shard> shards, const CleanFiles& files)
      : options_(options),
        shards_(std::move(shards)),
        files_(files),
        folder_(files.documents.parent_path()),
        bands_(bands_of(options)),
        minhash_(options.near ? options.near->permutations : 1),
        spool_(folder_),
        hashes_(folder_, "hashes"),
        pool_(options.workers) {
    if (options.near) index_.emplace(folder_, options.near->permutations, bands_);
  }

  CleanReport run() {
    read();
    if (spool_.documents() == 0) {
      throw IoError(fmt::format("{}: the {} hold no document", files_.documents.string(),
                                base::count_text(static_cast<int64_t>(shards_.size()), "file")));
    }
    if (options_.removes_exact || options_.near) outcomes_.resize_matches();
    if (options_.removes_exact) remove_exact();
    CleanReport report;
    for (const std::string& input : options_.inputs) report.inputs.push_back(json_name(input));
    if (options_.near) report.near = remove_near();
    resolve_exact();
    write_clean_files({options_, shards_, spool_, outcomes_}, files_, report);
    return report;
  }

 private:
  static Bands bands_of(const CleanOptions& options) {
    if (!options.near) return {};
    return options.near->bands.value_or(
        choose_bands(options.near->permutations, options.near->threshold));
  }

  void read() {
    std::vector<BlockCleaner> cleaners;
    for (int i = 0; i < options_.workers; ++i) cleaners.emplace_back(options_, minhash_, bands_);
    BlockReader reader(shards_, options_.documents);
    InOrder<CleanBlock>(
        {.read = [&](CleanBlock& block) { return reader.next(block.source); },
         .work = [&](CleanBlock& block,
                     size_t worker) { cleaners[worker].clean(block, shards_[block.source.shard]); },
         .write = [this](CleanBlock& block) { append(block); }},
        options_.workers)
        .run();
    spool_.finish();
    hashes_.flush();
  }

  void append(CleanBlock& block) {
    const int64_t first = spool_.documents();
    spool_.append(block.records, lines_);
    if (spool_.documents() > max_documents) {
      throw IoError(fmt::format("{}: more than {} documents; clean the inputs in several calls",
                                files_.documents.string(), max_documents));
    }
    check_rejected(block, first);
    outcomes_.outcome.insert(outcomes_.outcome.end(), block.outcomes.begin(), block.outcomes.end());
    hashes_.append(std::as_bytes(std::span(block.hashes)));
    if (index_) append_signatures(block);
    lines_ = block.source.end ? 0 : lines_ + block.lines;
    bytes_ += block.source.end ? block.source.end->stored_bytes : 0;
    if (options_.progress) {
      options_.progress({.phase = CleanProgress::Phase::reading,
                         .done = bytes_ + (block.source.end ? 0 : block.source.stored_bytes),
                         .total = bytes_total(),
                         .documents = spool_.documents()});
    }
  }

  void append_signatures(const CleanBlock& block) {
    const auto values = static_cast<size_t>(minhash_.permutations());
    const auto bands = static_cast<size_t>(bands_.bands);
    size_t at = 0;
    for (const Outcome outcome : block.outcomes) {
      if (outcome != Outcome::kept) {
        index_->add_none();
        continue;
      }
      index_->add(std::span(block.signatures).subspan(at * values, values),
                  std::span(block.keys).subspan(at * bands, bands));
      ++at;
    }
  }

  // REQUIRES: the documents of the block are the last ones of the spool, from `first` on.
  void check_rejected(const CleanBlock& block, int64_t first) {
    for (size_t i = 0; i < block.outcomes.size() && options_.max_rejected >= 0; ++i) {
      if (block.outcomes[i] != Outcome::rejected || ++rejected_ <= options_.max_rejected) continue;
      spool_.finish();
      SpooledDocument document;
      spool_.read(static_cast<uint32_t>(first + static_cast<int64_t>(i)), document);
      throw IoError(fmt::format("{}: {}: {}; {} rejected, allowed: {}", place_of(document, shards_),
                                name_of(document.rejected.value()), document.text,
                                base::count_text(rejected_, "document"), options_.max_rejected));
    }
  }

  void remove_exact() {
    const HashVisit visit = [this](const std::function<void(uint32_t, TextHash)>& use) {
      std::vector<TextHash> part(1 << 14);
      for (int64_t first = 0; first < spool_.documents();) {
        const auto count = static_cast<size_t>(
            std::min(static_cast<int64_t>(part.size()), spool_.documents() - first));
        hashes_.read_at(first * static_cast<int64_t>(sizeof(TextHash)),
                        std::as_writable_bytes(std::span(part).first(count)));
        for (size_t i = 0; i < count; ++i) {
          const auto document = static_cast<uint32_t>(first + static_cast<int64_t>(i));
          if (outcomes_.is_kept(document)) use(document, part[i]);
        }
        first += static_cast<int64_t>(count);
      }
    };
    find_exact_duplicates(pool_, visit, [this](uint32_t document, uint32_t first) {
      outcomes_.remove(document, Outcome::exact_duplicate, first, 1);
    });
  }

  NearReport remove_near() {
    const NearOptions& near = *options_.near;
    NearSearch search{
        .threshold = near.threshold,
        .takes_part =
            [this](uint32_t document) { return outcomes_.outcome[document] == Outcome::kept; },
        .removed =
            [this](uint32_t document, const NearDuplicate& found) {
              outcomes_.remove(document, Outcome::near_duplicate, found.kept, found.similarity);
            },
        .progress =
            [this](int64_t done, int64_t total) {
              if (!options_.progress) return;
              options_.progress({.phase = CleanProgress::Phase::comparing,
                                 .done = done,
                                 .total = total,
                                 .documents = spool_.documents()});
            }};
    if (near.compares_texts) {
      search.make_comparer = [this, shingles = near.shingles]() -> std::unique_ptr<Comparer> {
        return std::make_unique<TextComparer>(spool_, shingles);
      };
    }
    const NearCounts counts = index_->search(pool_, search);
    index_.reset();
    return {.threshold = near.threshold,
            .permutations = near.permutations,
            .bands = bands_,
            .shingles = fmt::format("{} {}", near.shingles.size, name_of(near.shingles.unit)),
            .compares_texts = near.compares_texts,
            .counts = counts};
  }

  // An exact duplicate of a document that was removed as a near-duplicate is as similar to the kept
  // one.
  void resolve_exact() {
    for (size_t i = 0; i < outcomes_.outcome.size(); ++i) {
      if (outcomes_.outcome[i] != Outcome::exact_duplicate) continue;
      const uint32_t first = outcomes_.kept[i];
      if (outcomes_.is_kept(first)) continue;
      outcomes_.kept[i] = outcomes_.kept[first];
      outcomes_.similarity[i] = outcomes_.similarity[first];
    }
  }

  int64_t bytes_total() const {
    int64_t bytes = 0;
    for (const Shard& shard : shards_) {
      if (shard.stored_bytes < 0) return -1;
      bytes += shard.stored_bytes;
    }
    return bytes;
  }

  const CleanOptions& options_;
  std::vector<Shard> shards_;
  const CleanFiles& files_;
  std::filesystem::path folder_;  // of work files
  Bands bands_;
  MinHash minhash_;
  Spool spool_;
  ScratchFile hashes_;
  std::optional<NearDuplicateIndex> index_;
  base::ThreadPool pool_;
  Outcomes outcomes_;
  int64_t lines_ = 0, bytes_ = 0, rejected_ = 0;  // lines of the shard so far, bytes of shards
};

}  // namespace

CleanReport clean_documents(const CleanOptions& given) {
  CleanOptions options = given;
  if (options.near) options.near->shingles.normalized = options.normalized;
  check(options);
  const CleanFiles files = clean_files(options.output);
  std::string ignored;
  append_compressed(files.compression, "", ignored);  // refused in a build without the library
  std::vector<Shard> shards = find_shards(options.inputs, {.kind = options.kind});
  for (const Shard& shard : shards) {
    if (shard.kind != SourceKind::tokens) continue;
    throw ConfigError(fmt::format(
        "{}: holds tokens; data clean reads texts: text, jsonl, tar or mds", shard.path.string()));
  }
  check_clean_files(files, options.inputs, shards, options.replaces_output);
  return CleanJob(options, std::move(shards), files).run();
}

}  // namespace trireme::data
