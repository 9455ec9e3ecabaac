// SPDX-License-Identifier: Apache-2.0
// Faults for verify, as decorators of a rank's communicator, source of batches, table of kernels or
// options.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/failure/faulty.h"
#include "kernels/table.h"
#include "train/verify/verify.h"

namespace trireme::tests {

// Gives every rank's communicator these faults.
train::VerifyHooks with_faults(std::vector<comm::Fault> faults);

// Groups called `name` consist of the ranks for which `color` returns the same value, instead of
// the requested ones.
train::VerifyHooks with_group(std::string name, std::function<int(int rank)> color);

// In groups called `name` the ranks are ordered by `key`.
train::VerifyHooks with_order(std::string name, std::function<int(int rank)> key);

// Gives rank `rank` (-1: every rank) this table.
train::VerifyHooks with_kernels(int rank, const kernels::Kernels& table);

// Groups of an expert's rows start at multiples of `tile` rows, on all ranks.
train::VerifyHooks with_tile(int64_t tile, train::VerifyHooks hooks);

// Applies `change`, which receives the number of the call, to batches of rank `rank` (-1: of every
// rank).
using Change = std::function<void(int call, const engine::HostMicrobatch&)>;
train::VerifyHooks with_batches(int rank, Change change);

// Rank `to` receives the batches of rank `from`.
train::VerifyHooks with_batches_of(int from, int to);

// Rank `rank` receives the second batch of its source instead of the first.
train::VerifyHooks with_skipped_batch(int rank);

// Rank `rank` reports another hash of its samples.
train::VerifyHooks with_hash(int rank);

// Rank `rank` allocates `bytes` more with its first batch.
train::VerifyHooks with_allocation(int rank, int64_t bytes);

}  // namespace trireme::tests
