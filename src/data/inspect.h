// SPDX-License-Identifier: Apache-2.0
// `data inspect`: statistics of a data set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "data/files/token_data.h"

namespace trireme::data {

struct LengthStatistics {
  int64_t min = 0, median = 0, p90 = 0, p99 = 0, max = 0;  // of the documents, in tokens; exact
  double mean = 0;
  double skew = 0;  // third moment about the mean, in standard deviations; 0 if all are equal
};

struct TokenCount {
  int32_t token = 0;
  int64_t count = 0;
};

struct FileSize {
  std::string path;
  int64_t bytes = 0;
};

struct DatasetReport {
  std::string name, format, type;
  std::vector<FileSize> files;
  int64_t documents = 0, tokens = 0;
  LengthStatistics length;
  int32_t token_min = 0, token_max = 0;  // -1 without tokens
  int64_t distinct_tokens = 0;
  std::vector<TokenCount> top_tokens;  // most frequent first, at most 10, ids below 2^20 only
};

// One pass over the tokens. Memory does not grow with the data set: there are at most
// sqrt(2 tokens) different document lengths, and ids above 2^20 are counted as distinct only (one
// bit each). `progress` may be empty.
DatasetReport inspect(const TokenData&, const ScanProgress& progress);

std::string to_text(const DatasetReport&);  // lines for a terminal
base::Json to_json(const DatasetReport&);

}  // namespace trireme::data
