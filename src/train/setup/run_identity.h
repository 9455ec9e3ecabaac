// SPDX-License-Identifier: Apache-2.0
// run_identity(): what must be equal on all ranks of a run: the configuration, the data and the
// build. Otherwise ranks would train together without an error, to a wrong result.
#pragma once

#include <string>

#include "base/text/json_fwd.h"
#include "config/config.h"

namespace trireme::train {

// Returns the identity as text. It leaves out what may differ between hosts: paths of data (their
// content counts), threads, GPU numbers, caches. `data` is DataSets::identity().
std::string run_identity(const config::Config&, const base::Json& data);

// Returns the differences, one per line: "optimizer.lr: 0.1 there, 0.001 here"; empty: none.
// REQUIRES: run_identity() returned both.
std::string identity_difference(const std::string& there, const std::string& here);

}  // namespace trireme::train
