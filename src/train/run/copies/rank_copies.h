// SPDX-License-Identifier: Apache-2.0
// The copies of the state in memory that an incarnation begins with: those that an earlier epoch
// has left, and the memory for new ones.
#pragma once

#include <optional>

#include "train/run/incarnation.h"
#include "train/run/state/copy_choice.h"

namespace trireme::train {

// Opens the channel to ranks that keep copies, if copies are sent or an earlier epoch may have left
// some. Collective.
void open_copies(Incarnation&, const CopyChoice&);
// agree_on_state() with the copies that an earlier epoch has left. Collective.
void agree_on_kept(Incarnation&, const CopyChoice&, std::optional<KeptState>& kept);
// Reserves the memory of copies, and of those that ranks keep for others, if all ranks have it. No
// rank fetches any more. Collective.
void reserve_copies(Incarnation&, const CopyChoice&);

}  // namespace trireme::train
