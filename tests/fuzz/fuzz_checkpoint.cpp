// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "ckpt/disk/memory_disk.h"
#include "ckpt/generation/format.h"
#include "ckpt/generation/generation.h"
#include "ckpt/generation/save.h"
#include "readers.h"

namespace trireme::fuzz {
namespace {

// The text as given, or with the closing hash line that the reader requires: no fuzzer guesses a
// hash.
template <typename Parse>
bool parses(const std::string& text, const Parse& parse) {
  bool is_taken = false;
  for (const std::string& given : {text, ckpt::sealed(text)}) {
    std::optional<decltype(parse(given, "input"))> parsed;
    try {
      parsed = parse(given, "input");
    } catch (const base::Error&) {
      continue;  // refused
    }
    is_taken = true;
    // An error here is a finding: what was accepted must be readable again.
    const std::string again = ckpt::to_text(*parsed);
    TRIREME_CHECK(parse(again, "again") == *parsed, "\n{}\nreads back as\n{}", given, again);
  }
  return is_taken;
}

// Writes a checkpoint with this manifest, or with this index and a manifest that has its hash.
void open(const std::string& text, bool is_manifest) {
  ckpt::MemoryDisk disk;
  disk.put_folder("/run/step-00000001");
  try {
    std::string manifest = ckpt::sealed(text);
    if (!is_manifest) {
      const std::string index_text = ckpt::sealed(text);
      const ckpt::Index index = ckpt::parse_index(index_text, "index");
      if (index.data_bytes > 1 << 20) return;
      ckpt::write_text(disk, "/run/step-00000001/index-00000", index_text);
      disk.create("/run/step-00000001/data-00000", index.data_bytes);
      ckpt::Manifest made;
      made.step = 1;
      for (const ckpt::SavedTensor& saved : index.tensors) made.tensors.push_back(saved.tensor);
      made.files = {{0, index.data_bytes, std::ssize(index_text), ckpt::hash_of(index_text)}};
      manifest = ckpt::to_text(made);
    }
    ckpt::write_text(disk, "/run/step-00000001/manifest", manifest);
    const auto generation = ckpt::Generation::open(disk, "/run/step-00000001");
    (void)generation.damage({.queue_depth = 1});
  } catch (const base::Error&) {
    return;  // refused
  }
}

}  // namespace

// A text that parses is written to text that parses to the same; a checkpoint with it opens or is
// refused.
bool read_checkpoint(Input input) {
  const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  const bool is_manifest = parses(text, ckpt::parse_manifest);
  const bool is_index = parses(text, ckpt::parse_index);
  open(text, true);
  open(text, false);
  return is_manifest || is_index;
}

}  // namespace trireme::fuzz
