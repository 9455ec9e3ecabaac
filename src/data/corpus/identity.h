// SPDX-License-Identifier: Apache-2.0
// What the bytes of a corpus depend on: options, tokenizer and shards. A build that continues must
// have the same identity, and its shards must not have changed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/text/json_fwd.h"
#include "data/corpus/corpus.h"
#include "data/corpus/counts.h"

namespace trireme::data {

// Returns the vocabulary with the special tokens. Throws ConfigError about the latter.
int64_t corpus_vocab(const CorpusOptions&);

base::Json identity_of(const CorpusOptions&, const std::vector<Shard>&, int64_t vocab);

// Throws ConfigError if the output would be read as an input, now or by a later build.
void check_outside(const CorpusOptions&, const std::vector<Shard>&,
                   const std::filesystem::path& prefix);

int64_t modified_ns(const Shard&);  // time of change of the file, 0 for stdin

// Throws IoError if the shard has another content than when it was recorded. Reads it only if its
// time of change differs; the identity has compared the sizes.
void check_unchanged(const Shard&, const ShardRecord&);

}  // namespace trireme::data
