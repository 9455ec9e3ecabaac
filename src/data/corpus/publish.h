// SPDX-License-Identifier: Apache-2.0
// The end of a build: the remaining files are written in the work folder, then all are renamed.
#pragma once

#include <filesystem>
#include <vector>

#include "base/text/json_fwd.h"
#include "data/corpus/work_folder.h"
#include "data/files/token_data.h"

namespace trireme::data {

// The output's prefix: the path without .bin or .idx at its end.
std::filesystem::path corpus_prefix(const std::filesystem::path& output);

struct FinishedCorpus {
  TokenFormat format = TokenFormat::megatron;
  TokenType type = TokenType::u16;
  int64_t tokens = 0;
  bool has_mask = false, has_rejected = false;
  bool has_tokenizer = false;  // the work folder has, or had, the folder tokenizer
  bool has_manifest = true;
};

// Writes headers, indexes and the manifest into the work folder and commits it as complete. Throws
// IoError, also for more tokens than the format can hold.
void complete(WorkFolder&, const FinishedCorpus&, const base::Json& manifest,
              std::vector<ShardRecord> shards);

// Renames the files of a complete work folder to their final names and removes the folder. Can be
// repeated after a crash. At no moment is there an index or a manifest beside tokens that do not
// belong to it. Returns the files, the manifest, if there is one, last.
std::vector<std::filesystem::path> publish(WorkFolder&, const FinishedCorpus&,
                                           const std::filesystem::path& prefix);

}  // namespace trireme::data
