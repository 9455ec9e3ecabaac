// SPDX-License-Identifier: Apache-2.0
// Words of published runs for what changes their price: number formats, recompute and schedules.
// A text is understood if it begins as the table says and all of its words are known; another one
// throws Unpriced, so that no run is priced as something else.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plan/job.h"

namespace trireme::plan {

// "bf16 mixed", "fp8 (delayed scaling)", "float8 tensorwise", "NVFP4". An empty text has none.
std::optional<Precision> stated_precision(std::string_view text);
// "full", "selective (attention core)", "none (-r 0)". An empty text has none.
std::optional<spec::Recompute> stated_recompute(std::string_view text);
// Checks the schedule of a run with stages: "1F1B", "interleaved 1F1B (v=2)", "ZB-2p".
void check_stated_schedule(std::string_view text);

}  // namespace trireme::plan
