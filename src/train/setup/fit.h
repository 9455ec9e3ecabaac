// SPDX-License-Identifier: Apache-2.0
// Checks whether a plan fits the memory of a device, before anything is allocated; a refusal has
// the itemised table and the cheapest changes that would fit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "spec/plan.h"
#include "train/setup/setup.h"

namespace trireme::train {

// Memory of a CUDA process that is not in the ledger: context, cuBLAS, cuDNN, the captured step.
// Measured: `bench train` reports it as library_bytes, and as context_bytes the part that exists as
// soon as the device is made, so that Device::available_bytes() has it subtracted already.
constexpr int64_t cuda_library_bytes = int64_t{640} << 20;
constexpr int64_t cuda_context_bytes = int64_t{526} << 20;

// The options by which the user changes each setting; empty: it cannot be changed.
struct FitKeys {
  std::string micro_batch, global_batch, accumulate, head_chunk, grad_dtype, master_dtype,
      recompute;
};
FitKeys train_fit_keys();  // the keys of a configuration

// A plan and the layout that it was solved from: changes are made to the layout, so that the mesh,
// the shards and the schedule stay as requested.
struct FitJob {
  const spec::ModelSpec& model;
  const spec::Backend& backend;
  spec::Workload work;  // its batch follows from the layout
  spec::Layout layout;  // settled
  spec::Plan plan;
  // ---- a rank that runs without its peers
  int pp_rank = -1;            // the rank along pp whose memory counts; -1: the largest
  int64_t stand_in_bytes = 0;  // that the plan does not have (comm::AloneWorld)

  // Returns the predicted memory that counts. REQUIRES: a plan of this job, or of one of its
  // changes.
  const spec::MemoryTable& memory(const spec::Plan& of) const {
    return pp_rank < 0 ? of.predicted.largest()
                       : of.predicted.memory.at(static_cast<size_t>(pp_rank));
  }
};
// Both references must outlive the job.
FitJob make_fit_job(const spec::ModelSpec&, const spec::Backend&, const spec::Workload&,
                    const spec::Layout&);

// A plan with some changes that save memory.
struct FitOption {
  spec::Plan plan;
  std::string how;           // "--training.local_batch_size=4 --training.global_batch_size=8"
  std::string price;         // "about 3 % more time; gradients are summed in bf16, less exactly"
  double relative_cost = 0;  // by which options are ordered
};

// Returns the minimal changes with which the rank that counts needs at most `bytes`, the cheapest
// first: no option contains a smaller one. Times are estimates from FLOPs and bytes of all
// operations; the global batch stays. Changes that the layout does not allow are left out.
std::vector<FitOption> options_within(const FitJob&, int64_t bytes, const FitKeys&);
// Returns all changes together, each as far as it goes: the least memory that the model needs.
FitOption smallest_option(const FitJob&, const FitKeys&);

// Throws OutOfMemory unless the predicted memory of the rank that counts, its stand-ins and
// `external_bytes`, which libraries will take, are at most `available_bytes`.
void check_fits(const FitJob&, int64_t available_bytes, int64_t external_bytes,
                const FitKeys& keys = train_fit_keys());

// Host memory of a rank besides that of its plan: copies of its state, and the buffers of its
// engine. Saves release their copy before the engine is rebuilt; those that outlive the process
// stay.
struct HostBytes {
  int64_t checkpoint_bytes = 0;  // for saves
  int64_t rebuild_bytes = 0;     // while the engine is replaced; 0: it never is
  int64_t peer_bytes = 0;        // that outlive the process (elastic.peer)
  int64_t kept_bytes = 0;        // likewise, of the states of other ranks
  int64_t buffer_bytes = 0;      // host_buffer_bytes()

  int64_t largest() const {
    return std::max(checkpoint_bytes, rebuild_bytes) + peer_bytes + kept_bytes + buffer_bytes;
  }
};

// The same on a platform that has just been made and that `sharers` ranks share in equal parts. On
// a CPU the sum over all ranks of this host, with HostBytes::largest() for each, is compared with
// Platform::host_available_bytes. A device without a limit accepts any plan.
void check_fits(const FitJob&, Platform&, int sharers, const FitKeys& keys,
                const HostBytes& copies);
void check_fits(const FitJob&, Platform&, int sharers = 1, const FitKeys& keys = train_fit_keys());

// On a GPU: throws OutOfMemory unless these bytes of `ranks` ranks of this host fit the memory that
// the host has left.
void check_host_fits(const HostBytes&, int ranks, int64_t host_available_bytes);

// Returns the host memory that `ranks` ranks of this host need beyond what is available there, with
// these bytes for each; at most 0: they fit. REQUIRES: `platform` has just been made, or is on a
// GPU.
int64_t missing_host_bytes(const FitJob&, Platform& platform, int ranks, const HostBytes&,
                           int64_t host_available_bytes);

// Returns the host memory that saves of a rank take under this configuration, as
// Checkpointer::memory_bytes(); 0 if it saves nothing.
int64_t checkpoint_bytes(const config::Config&, const FitJob&, int rank);

}  // namespace trireme::train
