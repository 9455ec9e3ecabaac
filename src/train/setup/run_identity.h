// SPDX-License-Identifier: Apache-2.0
// What must be equal on all ranks of a run: the configuration, the data and the build. Ranks that
// differ would train together without an error, to a wrong result.
#pragma once

#include <string>

#include "base/text/json_fwd.h"
#include "config/config.h"

namespace trireme::train {

// As text, equal for ranks that fit together. Left out is what may differ from host to host: paths
// of data (their content counts), threads, GPU numbers, caches. `data` is DataSets::identity().
std::string run_identity(const config::Config&, const base::Json& data);

// What differs, a line each: "optimizer.lr: 0.1 there, 0.001 here"; empty: nothing. REQUIRES: both
// are of run_identity().
std::string identity_difference(const std::string& there, const std::string& here);

}  // namespace trireme::train
