// SPDX-License-Identifier: Apache-2.0
// Mistakes in writing or reading a checkpoint, planted one at a time. Crashlab must find each of
// them; otherwise it proves nothing.
#pragma once

#include <memory>
#include <string_view>

#include "ckpt/disk/disk.h"

namespace trireme::crashlab {

enum class Fault : uint8_t {
  none,
  // ---- faults of the disk below the code
  draft_folder_not_synced,
  root_not_synced,
  data_not_synced,
  index_not_synced,
  manifest_not_synced,
  nothing_synced,
  rename_before_data_sync,
  rename_by_copying,
  writes_cut_short,
  write_errors_swallowed,
  sync_errors_swallowed,
  // ---- faults of the code that saves
  committed_too_early,
  old_removed_before_new_is_durable,
  old_files_removed_before_their_name,
  index_hash_of_another_file,
  stale_draft_reused,
  leftovers_removed_while_writing,
  rank_not_waited_for,
  // ---- faults of the code that loads
  chunk_hashes_not_checked,
  manifest_hash_not_checked,
  drafts_taken_for_generations,
  count
};
std::string_view name_of(Fault);

// Returns the disk with the fault; faults of the code leave it unchanged. REQUIRES: `disk` outlives
// it.
std::unique_ptr<ckpt::Disk> planted(ckpt::Disk& disk, Fault);

}  // namespace trireme::crashlab
