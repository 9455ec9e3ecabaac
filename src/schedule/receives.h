// SPDX-License-Identifier: Apache-2.0
// Moves receives up. Each ordered pair of ranks has one channel for activations and one for
// gradients, channels are first-in first-out, and one message may be in flight on each: a receive
// directly before its consumer is sometimes too late. Moving it up makes its slot live earlier
// (lives.h).
#pragma once

#include "schedule/schedule.h"

namespace trireme::schedule {

// Puts the receives of each channel into the order of the sends: if consumers use messages in
// another order, a receive moves up to the first one that must follow it. No named generator needs
// that; an order found under a cap may.
void receive_in_order(Schedule&);

// If ranks would deadlock with one send buffer, moves the next receive of one of them up to the
// position where it waits, of activations if there is a choice. Interleaved groups that are larger
// than the number of ranks need that.
void receive_without_deadlock(Schedule&);

}  // namespace trireme::schedule
