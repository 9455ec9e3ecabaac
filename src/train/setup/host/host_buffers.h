// SPDX-License-Identifier: Apache-2.0
// The host memory through which the engine of a rank exchanges data with its device, page-locked on
// a GPU: batches on their way to it, and the signals of steps on their way back.
#pragma once

#include <cstdint>

#include "spec/plan.h"

namespace trireme::train {

// Predicts it, to the byte: what the device's host_ledger() has as Mem::staging.
int64_t host_buffer_bytes(const spec::Plan&);

}  // namespace trireme::train
