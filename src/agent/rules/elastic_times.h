// SPDX-License-Identifier: Apache-2.0
// ElasticTimes: how long a job whose ranks are replaced waits for what. All of it follows from
// elastic.detect_s; launch prints it at the start.
#pragma once

#include <string>

namespace trireme::agent {

struct ElasticTimes {
  double detect = 0;        // a rank that is stopped is named within this time
  double silence = 0;       // a rank without a heartbeat for longer is stopped
  double leave = 0;         // for ranks to end their groups and keep their state
  double node_silence = 0;  // a launcher of another node that announces nothing for longer is lost
  double node_grace = 0;    // and so is one that has ended, and was not started again by then
};
ElasticTimes elastic_times(double detect_s);

// One line, which names those of several nodes if there are several.
std::string to_text(const ElasticTimes&, int nodes);

}  // namespace trireme::agent
