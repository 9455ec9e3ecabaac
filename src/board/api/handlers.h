// SPDX-License-Identifier: Apache-2.0
// The answers below /api, one function per path. They are functions of the state of a run and of
// the time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "board/request.h"
#include "board/run/run_view.h"

namespace trireme::board {

class Board;

// The list of runs; with ?ids=3,7 only these.
Response runs_response(const Board& board, bool has_planner, const Request& request);
// The keys of configurations: "keys" that differ between runs, with the values of every run, and
// "same", the others with their value.
base::Json configs_json(const Board& board);
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

// One server-sent event with the runs whose part differs from `sent`, which becomes what is sent.
std::string update_event(const Board& board, std::vector<std::string>& sent);

// A number as JSON; NaN and infinities as texts.
base::Json number_json(double value);
base::Json optional_json(std::optional<double> value);  // null if there is none
// What the list of runs and the page of one run have in common.
base::Json head_json(const RunView& view, const RunView::Glance& run, size_t id);
// The dollars of all attempts; null without a price.
base::Json dollars_json(const RunFacts& facts);

}  // namespace trireme::board
