// SPDX-License-Identifier: Apache-2.0
// verify(): checks that a layout of ranks trains like one rank. It keeps the user's layout, scales
// the model down without changing its structure, and runs both as threads of this process on the
// same global batch: the ranks of the layout, and one rank. It compares the results of the two, and
// each rank's predicted memory and traffic with the measured ones.
//
// The error of a parameter is |a - b| / |b| in the norm of all its elements, where b belongs to the
// one rank: for gradients the gradient; for weights their change since the start, so that a missing
// step is an error of its full size. If |b| is below 1e-4 of the norm of all parameters together
// (gradients that are zero but for rounding), that bound replaces it. Differences of a weight of up
// to (steps + 1) units in the last place are ignored.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_fwd.h"
#include "comm/communicator.h"
#include "config/config.h"
#include "device/device.h"
#include "engine/engine.h"
#include "engine/step/input.h"
#include "spec/parallel/data_parallel.h"
#include "spec/plan.h"

namespace trireme::train {

// A job with the user's layout.
struct VerifyJob {
  spec::ModelDims dims;
  spec::Workload work;
  spec::Layout layout;
  engine::EngineOptions engine;
  config::System system;   // the device; all ranks share it
  double deadline_s = 30;  // of one communication
  // Called after every step, of verify_total_steps(); on one thread at a time.
  std::function<void(int64_t done, std::string_view what)> progress;
};
// Returns the job of a configuration.
VerifyJob make_verify_job(const config::Config&);
int64_t verify_total_steps(const VerifyJob&);

// Lets tests decorate what a rank is made of. Each may be empty; each is called on the thread of
// its rank, for the ranks of the layout only, except `backend`, which all ranks get.
struct VerifyHooks {
  std::function<void(spec::Backend&)> backend;
  std::function<std::unique_ptr<comm::Communicator>(int rank, std::unique_ptr<comm::Communicator>)>
      communicator;
  std::function<std::unique_ptr<engine::MicrobatchSource>(
      int rank, device::Device&, std::unique_ptr<engine::MicrobatchSource>)>
      source;
  // The table of a CPU device; it outlives the run.
  std::function<const kernels::Kernels&(int rank)> kernels;
  std::function<void(int rank, engine::EngineOptions&)> options;
  std::function<double(int rank, double learning_rate)> learning_rate;
};

struct VerifyCheck {
  std::string name;    // "gradients"
  std::string recipe;  // of the run that was checked
  bool ok = false;
  double error = 0, bound = 0;  // bound 0: the check has no error
  std::string detail;           // what was found
  std::string hint;             // where to look; empty if ok
};

struct VerifyRank {
  int rank = 0;
  spec::Coord coord;
  spec::TrafficTable predicted_bytes, counted_bytes;  // of all steps
  spec::MemoryTable predicted_memory, measured_memory;
};

struct VerifyReport {
  spec::ModelDims dims;  // of the model that ran
  spec::Layout layout;   // that ran
  int ranks = 1;
  std::vector<std::string> notes;  // which degrees of the job were reduced
  std::vector<VerifyCheck> checks;
  std::string worst_parameter;  // by gradient, in the fp32 run
  double worst_error = 0;
  std::vector<VerifyRank> by_rank;  // of the last run that completed

  bool ok() const;
  const VerifyCheck* first_failed() const;  // null: none
};

constexpr int verify_steps = 3;

// Throws ConfigError for a job that is not legal, or a device that does not exist. A failure while
// the ranks run is reported as a failed check.
VerifyReport verify(const VerifyJob&, const VerifyHooks& hooks = {});

// Human-readable, and for programs.
std::string to_text(const VerifyReport&);
base::Json to_json(const VerifyReport&);

}  // namespace trireme::train
