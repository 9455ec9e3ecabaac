// SPDX-License-Identifier: Apache-2.0
#include "data/clean/clean_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text/count_text.h"
#include "base/text/json.h"
#include "data/clean/words.h"

namespace trireme::data {
namespace {

using base::count_text;
using base::Json;

// Four digits: figures of a report, the same on every machine.
double rounded(double value) { return std::round(value * 1e4) / 1e4; }

template <typename Rule, size_t size>
Json by_rule(const std::array<int64_t, size>& counts) {
  Json json = Json::object();
  for (size_t i = 0; i < size; ++i) {
    if (counts[i] > 0) json[std::string(name_of(static_cast<Rule>(i)))] = counts[i];
  }
  return json;
}

Json json_of(const CleanCounts& counts) {
  return {{"documents", counts.documents},
          {"text_bytes", counts.text_bytes},
          {"kept", counts.kept},
          {"kept_bytes", counts.kept_bytes},
          {"removed", counts.documents - counts.kept},
          {"exact_duplicates", counts.exact_duplicates},
          {"near_duplicates", counts.near_duplicates},
          {"repetition", by_rule<RepetitionRule>(counts.repetition)},
          {"rejected", by_rule<RejectReason>(counts.rejected)}};
}

struct Bin {
  int64_t min, max, clusters;
};

// 2, 3 to 4, 5 to 8, and so on.
std::vector<Bin> bins_of(const std::map<int64_t, int64_t>& clusters) {
  std::vector<Bin> bins;
  int64_t min = 2, max = 2;
  for (const auto& [size, count] : clusters) {
    while (size > max) {
      min = max + 1;
      max *= 2;
    }
    if (bins.empty() || bins.back().max != max) bins.push_back({min, max, 0});
    bins.back().clusters += count;
  }
  return bins;
}

Json json_of(const NearReport& near) {
  return {
      {"threshold", near.threshold},
      {"shingles", near.shingles},
      {"permutations", near.permutations},
      {"bands", near.bands.bands},
      {"rows", near.bands.rows},
      {"verify", near.compares_texts ? "exact" : "estimate"},
      {"detection_at_threshold", rounded(detection(near.bands, near.threshold))},
      {"detection_0.1_above", rounded(detection(near.bands, std::min(1.0, near.threshold + 0.1)))},
      {"groups", near.counts.groups},
      {"candidates", near.counts.candidates},
      {"compared", near.counts.compared}};
}

Json json_of(const CleanExample& example) {
  Json json{{"reason", example.reason},
            {"removed", example.removed},
            {"removed_text", example.removed_text}};
  if (!example.kept.empty()) {
    json["kept"] = example.kept;
    json["kept_text"] = example.kept_text;
  }
  if (!example.detail.empty()) json["detail"] = example.detail;
  if (example.similarity) json["similarity"] = rounded(*example.similarity);
  if (example.part) json["part"] = rounded(*example.part);
  return json;
}

std::string percent(int64_t part, int64_t all) {
  return fmt::format("{:.1f} %",
                     all == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(all));
}

std::string reason_line(std::string_view name, int64_t count, int64_t all) {
  return fmt::format("  {:<32} {:>12}  {:>7}\n", name, count, percent(count, all));
}

template <typename Rule, size_t size>
std::string rule_lines(std::string_view group, const std::array<int64_t, size>& counts,
                       int64_t all) {
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    if (counts[i] == 0) continue;
    text +=
        reason_line(fmt::format("{}: {}", group, name_of(static_cast<Rule>(i))), counts[i], all);
  }
  return text;
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return std::string(text_prefix(text, 76));
}

std::string example_lines(const CleanExample& example) {
  std::string text = fmt::format("  {}: {}", example.reason, example.removed);
  if (!example.kept.empty()) text += fmt::format(", kept: {}", example.kept);
  if (example.similarity) text += fmt::format(", similarity {:.3f}", *example.similarity);
  if (example.part) text += fmt::format(", part {:.3f}", *example.part);
  text += '\n';
  for (const std::string& shown : {example.removed_text, example.kept_text, example.detail}) {
    if (!shown.empty()) text += fmt::format("    {}\n", one_line(shown));
  }
  return text;
}

}  // namespace

int64_t CleanCounts::all_repetition() const {
  return std::accumulate(repetition.begin(), repetition.end(), int64_t{0});
}
int64_t CleanCounts::all_rejected() const {
  return std::accumulate(rejected.begin(), rejected.end(), int64_t{0});
}

void CleanCounts::add(const CleanCounts& other) {
  documents += other.documents;
  text_bytes += other.text_bytes;
  kept += other.kept;
  kept_bytes += other.kept_bytes;
  exact_duplicates += other.exact_duplicates;
  near_duplicates += other.near_duplicates;
  for (size_t i = 0; i < repetition.size(); ++i) repetition[i] += other.repetition[i];
  for (size_t i = 0; i < rejected.size(); ++i) rejected[i] += other.rejected[i];
}

Json to_json(const CleanReport& report) {
  Json sources = Json::array(), clusters = Json::array(), examples = Json::array();
  for (size_t i = 0; i < report.sources.size(); ++i) {
    sources.push_back({{"input", report.inputs.at(i)}, {"counts", json_of(report.sources[i])}});
  }
  for (const Bin& bin : bins_of(report.clusters)) {
    clusters.push_back(
        {{"min_documents", bin.min}, {"max_documents", bin.max}, {"clusters", bin.clusters}});
  }
  for (const CleanExample& example : report.examples) examples.push_back(json_of(example));
  Json json{{"trireme_clean", 1},
            {"counts", json_of(report.total)},
            {"sources", sources},
            {"clusters", clusters},
            {"examples", examples},
            {"largest_cluster", report.clusters.empty() ? 0 : report.clusters.rbegin()->first}};
  if (report.near) json["near_duplicates"] = json_of(*report.near);
  return json;
}

std::string to_text(const CleanReport& report) {
  const CleanCounts& all = report.total;
  std::string text =
      fmt::format("{} read, {} kept ({} of the documents, {} of the {} bytes)\n",
                  count_text(all.documents, "document"), all.kept, percent(all.kept, all.documents),
                  percent(all.kept_bytes, all.text_bytes), all.text_bytes);
  if (report.near) {
    text += fmt::format(
        "near-duplicates: similarity of {} from {}, {} with {}; a pair at the threshold is found "
        "with {}\n",
        report.near->shingles, report.near->threshold, count_text(report.near->bands.bands, "band"),
        count_text(report.near->bands.rows, "row"),
        fmt::format("{:.1f} %", 100 * detection(report.near->bands, report.near->threshold)));
  }
  if (all.kept < all.documents) text += "removed:\n";
  text += rule_lines<RejectReason>("rejected", all.rejected, all.documents);
  text += rule_lines<RepetitionRule>("repetition", all.repetition, all.documents);
  if (all.exact_duplicates > 0) {
    text += reason_line("exact_duplicate", all.exact_duplicates, all.documents);
  }
  if (all.near_duplicates > 0) {
    text += reason_line("near_duplicate", all.near_duplicates, all.documents);
  }
  if (report.sources.size() > 1) {
    text += "sources:\n";
    for (size_t i = 0; i < report.sources.size(); ++i) {
      const CleanCounts& source = report.sources[i];
      text += fmt::format("  {}: {}, {} kept ({})\n", report.inputs.at(i),
                          count_text(source.documents, "document"), source.kept,
                          percent(source.kept, source.documents));
    }
  }
  const std::vector<Bin> bins = bins_of(report.clusters);
  if (!bins.empty()) text += "clusters of duplicates by documents:\n";
  for (const Bin& bin : bins) {
    const std::string range =
        bin.min == bin.max ? fmt::format("{}", bin.min) : fmt::format("{} to {}", bin.min, bin.max);
    text += fmt::format("  {:<32} {:>12}\n", range, bin.clusters);
  }
  if (!report.examples.empty()) text += "examples:\n";
  for (const CleanExample& example : report.examples) text += example_lines(example);
  return text;
}

}  // namespace trireme::data
