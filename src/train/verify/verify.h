// SPDX-License-Identifier: Apache-2.0
// verify(): proof that a layout of ranks trains as one rank does. The user's layout is kept, the
// model is made small without changing its structure, and both are run as threads of this process
// on the same global batch: several ranks as laid out, and one rank. What the two say is compared,
// and what was predicted of each rank with what it took.
//
// Errors of a parameter are |a - b| / |b| in the norm of all its elements, b being the one rank's.
// Of gradients b is the gradient; of weights it is the change of the weights since the start, so
// that a step that was left out is an error of its whole size. Where |b| is below 1e-4 of that of
// all parameters together (gradients that are zero but for rounding), that bound takes its place.
// Of a weight, units in its last place, one for each step and one more, are no difference.
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

// A job as a user has laid it out.
struct VerifyJob {
  spec::ModelDims dims;
  spec::Workload work;
  spec::Layout layout;
  engine::EngineOptions engine;
  config::System system;   // the device; all ranks share it
  double deadline_s = 30;  // of one communication
  // Told of every step that is done, of verify_total_steps(); on one thread at a time.
  std::function<void(int64_t done, std::string_view what)> progress;
};
// The layout of a configuration.
VerifyJob make_verify_job(const config::Config&);
int64_t verify_total_steps(const VerifyJob&);

// Where tests put themselves between a rank and the rest. Each may be empty; each is called on the
// thread of its rank, for the ranks of the layout only.
struct VerifyHooks {
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
  std::string recipe;  // of the run that it is about
  bool ok = false;
  double error = 0, bound = 0;  // where it is about errors
  std::string detail;           // what was found
  std::string hint;             // where to look; empty if all is well
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
  std::vector<std::string> notes;  // what of the job was made smaller
  std::vector<VerifyCheck> checks;
  std::string worst_parameter;  // by gradient, in the fp32 run
  double worst_error = 0;
  std::vector<VerifyRank> by_rank;  // of the last run that completed

  bool ok() const;
  const VerifyCheck* first_failed() const;  // null: none
};

constexpr int verify_steps = 3;

// Throws ConfigError for a job that is not legal, or a device that is not there. Everything that
// goes wrong while the ranks run is a check that failed.
VerifyReport verify(const VerifyJob&, const VerifyHooks& hooks = {});

// For people, and for programs.
std::string to_text(const VerifyReport&);
base::Json to_json(const VerifyReport&);

}  // namespace trireme::train
