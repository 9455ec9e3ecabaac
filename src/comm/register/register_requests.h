// SPDX-License-Identifier: Apache-2.0
// The requests of StoreRegister, as the server of a store answers them.
#pragma once

#include <optional>

#include "comm/register/register.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {

// Answers a register_read or a register_swap; none if the request is malformed. A failure of the
// register, or that there is none (null), is an answer, too: the client stays connected, and a
// member.
std::optional<StoreMessage> answer_from(Register* run_register, const StoreMessage& request);

}  // namespace trireme::comm
