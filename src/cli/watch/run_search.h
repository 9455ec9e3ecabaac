// SPDX-License-Identifier: Apache-2.0
// RunSearch: which runs a list shows, and in which order. A search has words and conditions, such
// as `llama state=running loss<3 optimizer.lr>=0.001`, and a run is found if all of them hold. The
// list of the board has the same language (board/assets/runlist.js).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/watch/run_summary.h"

namespace trireme::cli {

// A run as a search sees it: values by the name of a column or by the key of the configuration. A
// column without a value is there and empty.
struct SearchedRun {
  std::map<std::string, std::optional<std::string>> values;
  std::string words;  // in lower case
};

// `dollars`: none without a price.
SearchedRun searched_run(const RunSummary& summary, std::optional<double> dollars);

class RunSearch {
 public:
  // Throws ConfigError.
  explicit RunSearch(std::string_view text);

  // Returns whether a condition names this column.
  bool names(std::string_view column) const;
  // Replaces names by whole keys: see whole_name(). Throws ConfigError.
  void resolve(const std::vector<SearchedRun>& runs);
  // REQUIRES: resolve() was called.
  bool finds(const SearchedRun& run) const;

 private:
  struct Condition {
    std::string name, op, wanted;  // a word has no name
  };
  std::vector<Condition> conditions_;
};

// Returns the column or key that a name stands for: itself, or the one key that ends with it, "lr"
// for "optimizer.lr". Throws ConfigError that begins with `option` if there is none, or several.
std::string whole_name(const std::string& name, const std::vector<SearchedRun>& runs,
                       std::string_view option);

// Returns the numbers of the runs in the order of a column or key: numbers before texts, runs
// without a value at the end, also in reverse.
std::vector<size_t> order_of(const std::vector<SearchedRun>& runs, const std::string& name,
                             bool is_reverse);

}  // namespace trireme::cli
