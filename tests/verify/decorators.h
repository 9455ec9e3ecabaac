// SPDX-License-Identifier: Apache-2.0
// Faults for verify, as decorators of what a rank is given: its communicator, its source of
// batches, its table of kernels, its options.
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

// Every rank's communicator, with these faults.
train::VerifyHooks with_faults(std::vector<comm::Fault> faults);

// Groups called `name` are of the ranks for which `color` gives the same, instead of those that
// were asked for.
train::VerifyHooks with_group(std::string name, std::function<int(int rank)> color);

// Rank `rank` (-1: every one) has this table.
train::VerifyHooks with_kernels(int rank, const kernels::Kernels& table);

// Batches of rank `rank` (-1: of every one) after `change`, which gets the number of the call.
using Change = std::function<void(int call, const engine::HostMicrobatch&)>;
train::VerifyHooks with_batches(int rank, Change change);

// Rank `to` gets the batches of rank `from`.
train::VerifyHooks with_batches_of(int from, int to);

// Rank `rank` gets the second batch of its source in place of the first.
train::VerifyHooks with_skipped_batch(int rank);

// Rank `rank` allocates `bytes` more with its first batch.
train::VerifyHooks with_allocation(int rank, int64_t bytes);

}  // namespace trireme::tests
