// SPDX-License-Identifier: Apache-2.0
// What cleaning removed and why: counts by reason and source, sizes of clusters, examples.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "data/clean/near/bands.h"
#include "data/clean/near/near_duplicates.h"
#include "data/clean/repetition.h"
#include "data/sources/document.h"

namespace trireme::data {

struct CleanCounts {
  int64_t documents = 0, text_bytes = 0;  // read; bytes without those of rejected documents
  int64_t kept = 0, kept_bytes = 0;
  int64_t exact_duplicates = 0, near_duplicates = 0;
  std::array<int64_t, repetition_rules> repetition{};
  std::array<int64_t, reject_reasons> rejected{};

  int64_t all_repetition() const;
  int64_t all_rejected() const;
  void add(const CleanCounts&);
  bool operator==(const CleanCounts&) const = default;
};

struct CleanExample {
  std::string reason;  // as in the list of removed documents; with a rule: "repetition: top_2_gram"
  std::string removed, kept;            // places; kept is empty where no document stays instead
  std::string removed_text, kept_text;  // the first bytes
  std::string detail;                   // of a rejected document
  std::optional<double> similarity;     // of duplicates
  std::optional<double> part;           // of repetition
};
inline constexpr size_t example_bytes = 200;

struct NearReport {
  double threshold = 0;
  int permutations = 0;
  Bands bands;
  std::string shingles;  // "5 words"
  bool compares_texts = true;
  NearCounts counts;
};

struct CleanReport {
  CleanCounts total;
  std::vector<std::string> inputs;
  std::vector<CleanCounts> sources;     // by input
  std::map<int64_t, int64_t> clusters;  // documents of a cluster (kept and removed) to clusters
  std::optional<NearReport> near;       // none: near-duplicates were not searched
  std::vector<CleanExample> examples;
  std::vector<std::filesystem::path> files;  // written; not part of to_json()
};

base::Json to_json(const CleanReport&);
// Returns a summary of a few lines, each with its end.
std::string to_text(const CleanReport&);

}  // namespace trireme::data
