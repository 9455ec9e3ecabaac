// SPDX-License-Identifier: Apache-2.0
// The folder of a run's exported weights, <folder>/step-00000100 and <folder>/final: which entries
// this program wrote, and how they leave it. What anything else put there is never touched.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::ckpt {

// Metadata of every safetensors file that export_hf() writes. It lies inside the file, so that it
// survives copies, and the Hub, where a hidden file beside the weights may be left behind; loaders
// ignore keys that they do not know.
inline constexpr const char* producer_key = "producer";
inline constexpr const char* producer_name = "trireme";

// The name under which export_hf() writes the directory `name` until it is whole:
// "final.tmp4711-node1".
std::string export_draft_name(const std::string& name);

// Whether `directory` is one that export_hf() wrote and that holds nothing else: config.json, and
// weights whose files all carry the metadata above. A link to one is none.
bool is_export(const std::filesystem::path& directory);

// Removes the oldest exports named by generation_name() beyond the newest `keep` (0: none is
// removed), and drafts whose process is gone. A draft of another host is left alone: its process
// cannot be seen. Links are not followed. Returns what could not be done, with path and reason.
std::vector<std::string> prune_exports(const std::filesystem::path& folder, int64_t keep);

}  // namespace trireme::ckpt
