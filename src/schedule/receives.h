// SPDX-License-Identifier: Apache-2.0
// Where receives stand. Each ordered pair of ranks has one channel for activations and one for
// gradients, channels are first-in first-out, and one message may be under way on each: a receive
// that stands directly before its consumer is sometimes too late. Moving it up takes the memory of
// its slot earlier: see lives.h.
#pragma once

#include "schedule/schedule.h"

namespace trireme::schedule {

// On each channel, receives in the order of the sends: where consumers take messages in another
// order, a receive moves up to the first one that must come behind it. No named generator needs
// that; an order found under a cap may.
void receive_in_order(Schedule&);

// Where ranks would wait for each other with one send buffer, the next receive of one of them moves
// up to where it stands, of activations if there is a choice. Interleaved groups that are larger
// than the number of ranks need that.
void receive_without_deadlock(Schedule&);

}  // namespace trireme::schedule
