// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "data/packing/packed_sampler.h"
#include "data/samples/batch.h"
#include "memory_file.h"
#include "readers.h"

namespace trireme::fuzz {

// The data has 40 tokens, of which each multiple of 7 ends a document. Every sequence of an
// accepted index is filled; long ones are left out, since an index of few bytes may have a seq_len
// of 2^30.
bool read_packing(Input input) {
  static const MemoryFile file;
  static const auto tokens = [] {
    std::vector<int32_t> values(40);
    std::iota(values.begin(), values.end(), 0);
    for (size_t i = 6; i < values.size(); i += 7) values[i] = 0;
    return data::tokens_in_memory(values, 0);
  }();
  file.fill(input);
  try {
    const data::PackingTable table = data::PackingTable::open(file.path(), *tokens);
    TRIREME_CHECK(table.sequences() >= 1 && table.stats().padding_slots >= 0, "{} sequences",
                  table.sequences());
    if (table.seq_len() > 4096) return true;
    const data::PackedSampler sampler(*tokens, table, {.vocab = 40});
    data::Batch batch;
    for (int64_t i = 0; i < table.sequences(); ++i) {
      data::fill_batch(sampler, std::vector<int64_t>{i}, batch);
    }
  } catch (const base::Error&) {
    return false;  // refused
  }
  return true;
}

}  // namespace trireme::fuzz
