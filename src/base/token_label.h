// SPDX-License-Identifier: Apache-2.0
// Labels of tokens that have no loss. Ops treat every negative label alike; the two values let the
// engine count why a token is not learned.
#pragma once

#include <cstdint>

namespace trireme::base {

constexpr int32_t masked_label = -1;   // a token of a document whose successor is not learned
constexpr int32_t padding_label = -2;  // a token of no document

}  // namespace trireme::base
