// SPDX-License-Identifier: Apache-2.0
// Which keys of a configuration are made of which flags of Megatron-LM, and why others are dropped.
#pragma once

#include <span>

#include "plan/convert/conversion.h"

namespace trireme::plan {

std::span<const KeyOrigin> megatron_origins();
std::span<const DropReason> megatron_drop_reasons();

}  // namespace trireme::plan
