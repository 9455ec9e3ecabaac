// SPDX-License-Identifier: Apache-2.0
// `data convert`: a data set in another format, together with what lies beside it: the loss mask,
// the folder of the tokenizer and the manifest.
#pragma once

#include <filesystem>
#include <vector>

#include "data/convert.h"

namespace trireme::data {

struct ConvertedSet {
  ConvertReport report;
  bool has_mask = false, has_tokenizer = false, has_manifest = false;
  std::vector<std::filesystem::path> files;  // written
};

// Converts as convert_tokens() does. All files of the new data set appear together, as those of
// build_corpus(): until then they are in the folder PREFIX.build. The manifest of the new set names
// the old one as converted_from. Throws as convert_tokens() does, and ConfigError if `from` is
// text, which is for data build.
ConvertedSet convert_set(const ConvertOptions& options);

}  // namespace trireme::data
