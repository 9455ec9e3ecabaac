// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "base/error.h"
#include "data/clean/clean.h"
#include "data/clean/near/minhash.h"

namespace trireme::data {
namespace {

using base::ConfigError;

void check_near(const NearOptions& near) {
  if (!(near.threshold > 0 && near.threshold <= 1)) {
    throw ConfigError(
        fmt::format("data clean: a threshold of {}; allowed: above 0, at most 1", near.threshold));
  }
  if (near.permutations < 1 || near.permutations > max_permutations) {
    throw ConfigError(fmt::format("data clean: {} permutations; allowed: 1 .. {}",
                                  near.permutations, max_permutations));
  }
  check(near.shingles);
  if (!near.bands) return;
  const Bands& bands = *near.bands;
  const bool fits = bands.bands >= 1 && bands.rows >= 1 &&
                    int64_t{bands.bands} * bands.rows <= int64_t{near.permutations};
  if (!fits) {
    throw ConfigError(fmt::format(
        "data clean: {} bands of {} rows; both are 1 or more, and their product is at most the {} "
        "permutations",
        bands.bands, bands.rows, near.permutations));
  }
}

}  // namespace

void check(const CleanOptions& options) {
  if (options.workers < 1 || options.workers > 1024) {
    throw ConfigError(fmt::format("data clean: {} workers; allowed: 1 .. 1024", options.workers));
  }
  if (options.examples < 0 || options.examples > 1000) {
    throw ConfigError(fmt::format("data clean: {} examples; allowed: 0 .. 1000", options.examples));
  }
  if (options.documents.max_document_bytes < 1 || options.part_bytes < 1) {
    throw ConfigError(
        fmt::format("data clean: documents of at most {} bytes, parts of {}; allowed: 1 or more",
                    options.documents.max_document_bytes, options.part_bytes));
  }
  if (options.documents.raw_bytes) {
    throw ConfigError(
        "data clean: the output is JSON, which must be UTF-8; raw bytes cannot be kept");
  }
  if (!options.removes_exact && !options.near && !options.repetition) {
    throw ConfigError(
        "data clean: nothing to remove: neither exact duplicates, near-duplicates nor repetition");
  }
  if (options.near) check_near(*options.near);
  (void)field_paths(options.documents);
}

}  // namespace trireme::data
