// SPDX-License-Identifier: Apache-2.0
// Ranges of keys that the host knows, as chunks of query rows for the kernels.
#pragma once

#include <vector>

#include "kernels/args.h"
#include "spec/parallel/token_slice.h"

namespace trireme::engine {

// Returns the ranges as chunks of rows with the same keys, or one more key with each row.
std::vector<kernels::QueryChunk> chunks_of(const spec::KeyRanges& keys);

}  // namespace trireme::engine
