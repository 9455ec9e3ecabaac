// SPDX-License-Identifier: Apache-2.0
// The folder of a run's exported weights, <folder>/step-00000100 and <folder>/final: which entries
// this program wrote, and how they are removed. Other entries are never touched.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::ckpt {

// Metadata of every safetensors file that export_hf() writes. It is inside the file, so it survives
// copies and the Hub, where a hidden file beside the weights may be lost; loaders ignore unknown
// keys.
inline constexpr const char* producer_key = "producer";
inline constexpr const char* producer_name = "trireme";

// Returns the name under which export_hf() writes the directory `name` until it is complete:
// "final.tmp4711-node1".
std::string export_draft_name(const std::string& name);

// Returns whether export_hf() wrote `directory` and it holds nothing else: config.json, and weights
// whose files all carry the metadata above. False for a link to one.
bool is_export(const std::filesystem::path& directory);

// Removes the oldest exports named by generation_name() beyond the newest `keep` (0: removes none),
// and drafts whose process has ended. A draft of another host is left alone, because its process
// cannot be checked. Links are not followed. Returns the failures, with path and reason.
std::vector<std::string> prune_exports(const std::filesystem::path& folder, int64_t keep);

}  // namespace trireme::ckpt
