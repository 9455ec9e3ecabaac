// SPDX-License-Identifier: Apache-2.0
// Cleans documents: removes texts that repeat themselves, exact duplicates and near-duplicates, and
// writes the others as JSON lines. docs/data.md describes the use, docs/formats.md the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/clean/clean_report.h"
#include "data/clean/near/bands.h"
#include "data/clean/near/shingles.h"
#include "data/clean/repetition.h"
#include "data/sources/blocks.h"
#include "data/sources/shards.h"

namespace trireme::data {

struct CleanProgress {
  enum class Phase : uint8_t { reading, comparing, writing };
  Phase phase = Phase::reading;
  int64_t done = 0, total = 0;  // bytes as stored (total -1 with stdin), steps, documents
  int64_t documents = 0;
};

struct NearOptions {
  double threshold = 0.8;      // Jaccard similarity from which on a document is removed
  ShingleOptions shingles;     // normalized follows CleanOptions
  int permutations = 128;      // values of a signature
  std::optional<Bands> bands;  // none: choose_bands()
  bool compares_texts = true;  // false: the estimate by signatures decides
};

struct CleanOptions {
  std::vector<std::string> inputs;  // see find_shards(); every input is a source in the counts
  SourceKind kind = SourceKind::automatic;
  DocumentOptions documents;  // raw_bytes is refused: JSON is UTF-8
  // A file that ends in .jsonl or .ndjson, also with .gz, .zst or .zstd; any other name is a folder
  // of files part-00000.jsonl and so on.
  std::filesystem::path output;
  bool replaces_output = false;
  bool writes_documents = true;  // false: the report and the list of removed documents only
  int64_t part_bytes = int64_t{1} << 30;  // of the files of a folder, before compression
  bool normalized = false;                // compare texts as normalize() returns them

  std::optional<RepetitionLimits> repetition;
  bool removes_exact = true;
  std::optional<NearOptions> near = NearOptions{};

  int64_t max_rejected = -1;  // more rejected documents fail the job; -1: any
  int64_t examples = 5;       // for every reason, in the report
  int workers = 1;            // threads; the bytes written do not depend on it
  // Called by one thread at a time. It may throw, which ends the job.
  std::function<void(const CleanProgress&)> progress;
};

// Throws ConfigError about values that are not allowed; inputs and output are not looked at.
void check(const CleanOptions&);

// Removes, in this order: rejected documents (see RejectReason), texts above a limit of repetition,
// exact duplicates, near-duplicates. Of duplicates the first document stays.
//
// Writes the output, OUTPUT.removed.jsonl and OUTPUT.report.json, each complete or not at all; the
// documents appear last. Work files have no name and lie in the folder of the output: they take the
// bytes of all texts, 4 bytes for each permutation and 12 for each band of a document. Throws
// ConfigError about options and inputs, IoError about files.
CleanReport clean_documents(const CleanOptions&);

}  // namespace trireme::data
