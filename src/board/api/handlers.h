// SPDX-License-Identifier: Apache-2.0
// The answers below /api, one function per path. They are functions of the state of a run and of
// the time.
#pragma once

#include <cstddef>
#include <string>

#include "base/text/json.h"
#include "board/request.h"

namespace trireme::board {

class Board;
class RunView;

base::Json runs_json(const Board& board, bool has_planner);
base::Json run_json(const RunView& run, size_t id, double now);
base::Json diagnosis_json(const RunView& run);
base::Json ledger_json(const RunView& run);
base::Json checkpoints_json(const RunView& run, double now);
base::Json memory_json(const RunView& run);
// The file of traced steps: "pipeline" or "collectives".
base::Json traced_json(const RunView& run, const std::string& name);

Response series_response(const RunView& run, const Request& request);
Response raw_response(const RunView& run, const Request& request);
Response heat_response(const RunView& run, const Request& request);
Response events_response(const RunView& run, const Request& request);

std::string update_event(const Board& board);  // one server-sent event

// A number as JSON; NaN and infinities as texts.
base::Json number_json(double value);

}  // namespace trireme::board
