// SPDX-License-Identifier: Apache-2.0
#include "data/clean/clean_writer.h"

#include <fmt/core.h>

#include <map>
#include <optional>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"
#include "data/clean/words.h"
#include "data/corpus/in_order.h"
#include "data/readers/compress.h"

namespace trireme::data {
namespace {

using base::Json;

constexpr int64_t output_block_bytes = 4 << 20;
constexpr uint32_t output_block_documents = 1 << 16;

// A removed document, for examples.
struct RemovedDocument {
  uint32_t document = 0;
  std::string reason;
  std::optional<double> part;
};

// Consecutive documents; where blocks begin depends on the documents only.
struct OutputBlock {
  uint32_t first = 0, end = 0;

  std::string lines, compressed, removed_lines;
  std::map<size_t, CleanCounts> counts;  // by source
  std::vector<RemovedDocument> removed;
};

class CleanWriter {
 public:
  CleanWriter(const CleanResult& result, const CleanFiles& files, CleanReport& report)
      : result_(result),
        files_(files),
        report_(report),
        documents_(static_cast<uint32_t>(result.spool.documents())) {
    report_.sources.resize(result.options.inputs.size());
  }

  void run() {
    OutputFile removed(files_.removed);
    removed_ = &removed;
    std::optional<DocumentFiles> output;
    if (result_.options.writes_documents) output.emplace(files_, result_.options.part_bytes);
    output_ = output ? &*output : nullptr;
    InOrder<OutputBlock>({.read = [this](OutputBlock& block) { return read(block); },
                          .work = [this](OutputBlock& block, size_t) { work(block); },
                          .write = [this](OutputBlock& block) { write(block); }},
                         result_.options.workers)
        .run();
    count_clusters();
    if (output && report_.total.kept == 0) {
      throw base::IoError(
          fmt::format("{}: no document is left of {}: {} rejected, {} above a limit of repetition",
                      files_.documents.string(), report_.total.documents,
                      report_.total.all_rejected(), report_.total.all_repetition()));
    }
    const std::string text =
        to_json(report_).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
    OutputFile report(files_.report);
    report.append(std::as_bytes(std::span(text)));
    report.sync();
    removed.sync();
    removed.rename();
    report.rename();
    report_.files = {files_.removed, files_.report};
    if (!output) return;
    for (const auto& file : output->publish()) report_.files.push_back(file);
  }

 private:
  bool read(OutputBlock& block) {
    if (next_ == documents_) return false;
    block.first = next_;
    for (int64_t bytes = 0; next_ < documents_ && bytes < output_block_bytes &&
                            next_ - block.first < output_block_documents;) {
      bytes += result_.spool.record_bytes(next_++);
    }
    block.end = next_;
    return true;
  }

  void work(OutputBlock& block) const {
    block.lines.clear();
    block.compressed.clear();
    block.removed_lines.clear();
    block.counts.clear();
    block.removed.clear();
    SpooledDocument document;
    for (uint32_t i = block.first; i < block.end; ++i) {
      result_.spool.read(i, document);
      CleanCounts& counts = block.counts[result_.shards[document.shard].source];
      const auto bytes =
          static_cast<int64_t>(document.text.size() + document.completion.value_or("").size());
      ++counts.documents;
      counts.text_bytes += document.rejected ? 0 : bytes;
      if (result_.outcomes.is_kept(i)) {
        ++counts.kept;
        counts.kept_bytes += bytes;
        if (output_ != nullptr) append_json_line(document, block.lines);
      } else {
        append_removed(i, document, counts, block);
      }
    }
    if (!block.lines.empty()) append_compressed(files_.compression, block.lines, block.compressed);
  }

  void append_removed(uint32_t i, const SpooledDocument& document, CleanCounts& counts,
                      OutputBlock& block) const {
    Json line = place_json(document, result_.shards);
    RemovedDocument removed{.document = i};
    switch (result_.outcomes.outcome[i]) {
      case Outcome::rejected: {
        const RejectReason rule = document.rejected.value();
        ++counts.rejected[static_cast<size_t>(rule)];
        set_rule(line, removed, "rejected", name_of(rule));
        line["detail"] = document.text;
        break;
      }
      case Outcome::repetition: {
        const RepetitionFound found = repetition_of(document);
        ++counts.repetition[static_cast<size_t>(found.rule)];
        set_rule(line, removed, "repetition", name_of(found.rule));
        removed.part = found.part;
        line["part"] = found.part;
        break;
      }
      case Outcome::exact_duplicate:
      case Outcome::near_duplicate: {
        const bool is_exact = result_.outcomes.outcome[i] == Outcome::exact_duplicate;
        ++(is_exact ? counts.exact_duplicates : counts.near_duplicates);
        removed.reason = is_exact ? "exact_duplicate" : "near_duplicate";
        line["reason"] = removed.reason;
        SpooledDocument kept;
        result_.spool.read_start(result_.outcomes.kept[i], 0, kept);
        line["kept"] = place_json(kept, result_.shards);
        line["similarity"] = static_cast<double>(result_.outcomes.similarity[i]);
        break;
      }
      case Outcome::kept:
      case Outcome::kept_without_shingles:
        TRIREME_CHECK(false, "document {} is kept", i);
    }
    block.removed_lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    block.removed.push_back(std::move(removed));
  }

  static void set_rule(Json& line, RemovedDocument& removed, std::string_view reason,
                       std::string_view rule) {
    line["reason"] = std::string(reason);
    line["rule"] = std::string(rule);
    removed.reason = fmt::format("{}: {}", reason, rule);
  }

  RepetitionFound repetition_of(const SpooledDocument& document) const {
    RepetitionMeter meter;
    for (const std::string_view part : document.parts()) {
      if (const auto found = meter.above(part, result_.options.repetition.value())) return *found;
    }
    TRIREME_CHECK(false, "no rule is broken any more");
    return {};
  }

  void write(const OutputBlock& block) {
    if (output_ != nullptr && !block.lines.empty()) {
      output_->append(block.compressed, static_cast<int64_t>(block.lines.size()));
    }
    removed_->append(std::as_bytes(std::span(block.removed_lines)));
    for (const auto& [source, counts] : block.counts) {
      report_.sources[source].add(counts);
      report_.total.add(counts);
    }
    for (const RemovedDocument& removed : block.removed) {
      if (examples_[removed.reason]++ < result_.options.examples) add_example(removed);
    }
    if (result_.options.progress) {
      result_.options.progress({.phase = CleanProgress::Phase::writing,
                                .done = block.end,
                                .total = documents_,
                                .documents = report_.total.kept});
    }
  }

  void add_example(const RemovedDocument& removed) {
    SpooledDocument document;
    result_.spool.read_start(removed.document, example_bytes + 3, document);
    CleanExample example{.reason = removed.reason,
                         .removed = place_of(document, result_.shards),
                         .part = removed.part};
    std::string shown(text_prefix(document.text, example_bytes));
    (document.rejected ? example.detail : example.removed_text) = std::move(shown);
    const Outcome outcome = result_.outcomes.outcome[removed.document];
    if (outcome == Outcome::exact_duplicate || outcome == Outcome::near_duplicate) {
      result_.spool.read_start(result_.outcomes.kept[removed.document], example_bytes + 3,
                               document);
      example.kept = place_of(document, result_.shards);
      example.kept_text = text_prefix(document.text, example_bytes);
      example.similarity = result_.outcomes.similarity[removed.document];
    }
    report_.examples.push_back(std::move(example));
  }

  void count_clusters() {
    const Outcomes& outcomes = result_.outcomes;
    if (outcomes.kept.empty()) return;
    std::vector<uint32_t> removed(documents_);
    for (uint32_t i = 0; i < documents_; ++i) {
      const bool is_duplicate = outcomes.outcome[i] == Outcome::exact_duplicate ||
                                outcomes.outcome[i] == Outcome::near_duplicate;
      if (is_duplicate) ++removed[outcomes.kept[i]];
    }
    for (const uint32_t count : removed) {
      if (count > 0) ++report_.clusters[int64_t{count} + 1];
    }
  }

  const CleanResult& result_;
  const CleanFiles& files_;
  CleanReport& report_;
  uint32_t documents_, next_ = 0;
  OutputFile* removed_ = nullptr;
  DocumentFiles* output_ = nullptr;
  std::map<std::string, int64_t> examples_;  // removed documents by reason
};

}  // namespace

void write_clean_files(const CleanResult& result, const CleanFiles& files, CleanReport& report) {
  CleanWriter(result, files, report).run();
}

}  // namespace trireme::data
