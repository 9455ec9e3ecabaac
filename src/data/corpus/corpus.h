// SPDX-License-Identifier: Apache-2.0
// Builds a data set of tokens from files of documents. docs/data.md describes the use,
// docs/formats.md the files that are written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/counts.h"
#include "data/files/token_data.h"
#include "data/sources/blocks.h"
#include "data/sources/shards.h"

namespace trireme::data {

// Appends the tokens of a text to `out`. Used from one thread.
using Encoder = std::function<void(std::string_view text, std::vector<int32_t>& out)>;

struct CorpusTokenizer {
  // Makes an encoder for each worker; called on the caller's thread. Empty: one token per byte.
  std::function<Encoder()> make_encoder;
  int64_t vocab = 256;  // every id of the encoder is below it
  std::string fingerprint = "bytes";
  // Its files, as text::Tokenizer::files(). They are copied to the folder PREFIX.tokenizer.
  std::vector<std::filesystem::path> files;
  // Before and after each document; -1: none. They may lie above the vocabulary, which then grows.
  // With bytes as tokens, a text that has the byte end_of_document is rejected unless raw_bytes.
  int32_t begin_of_document = -1, end_of_document = 0;
};

struct CorpusProgress {
  int64_t bytes_done = 0, bytes_total = 0;  // of the shards as stored; total is -1 with stdin
  int64_t documents = 0, tokens = 0, rejected = 0;
};

struct CorpusOptions {
  std::vector<std::string> inputs;  // see find_shards(); every input is a source in the counts
  SourceKind kind = SourceKind::automatic;
  DocumentOptions documents;
  CorpusTokenizer tokenizer;
  std::filesystem::path output;                // a prefix: see write_tokens()
  TokenFormat format = TokenFormat::megatron;  // or llmc, nanogpt
  int workers = 1;                             // threads; the bytes written do not depend on it
  int64_t max_rejected = -1;                   // more rejected documents fail the build; -1: any
  // Discard an unfinished build of the same output if it cannot be continued, which is an error
  // otherwise.
  bool start_over = false;
  double commit_seconds = 5;  // shards between two commits are read again
  // Called by one thread at a time, in order. It may throw, which ends the build.
  std::function<void(const CorpusProgress&)> progress;
};

struct CorpusReport {
  CorpusCounts total;
  std::vector<CorpusCounts> sources;  // by input
  int64_t shards = 0, resumed_shards = 0;
  int64_t vocab = 0;
  TokenType type = TokenType::u16;
  bool has_mask = false;
  std::vector<std::filesystem::path> files;  // written, the manifest last
};

// Writes PREFIX.bin (and .idx), PREFIX.manifest.json, PREFIX.rejected.jsonl if documents were
// rejected, PREFIX.mask.bin and .idx if there are prompts and completions, and the folder
// PREFIX.tokenizer if the tokenizer has files (tokenizer_beside.h). Files of that name are replaced
// when all are complete. Until then the work is in the folder PREFIX.build: a build that was killed
// continues with the first shard that was not committed, and gives the same bytes.
//
// Memory grows with workers and the longest document only. Throws IoError that names the file and
// the place for a shard that is damaged or changed, for more than max_rejected rejections, and,
// with the first reasons, if no document is left; ConfigError about the options and for an
// unfinished build with other options.
CorpusReport build_corpus(const CorpusOptions&);

}  // namespace trireme::data
