// SPDX-License-Identifier: Apache-2.0
// The failure domains of the nodes of a run, as all its ranks agree on them.
#pragma once

#include <string>
#include <vector>

#include "train/setup/rank.h"

namespace trireme::train {

// Returns the domain of each node of Rank::nodes(): by the file (failure_domains.h), which the
// first rank reads, and the names of the hosts; without a file, and for hosts that it does not
// have, a node is a domain. Throws ConfigError on the first rank if the file has a mistake; with
// `only_warns` that is logged, and every node is a domain. Collective.
std::vector<std::string> domains_of_nodes(Rank&, const std::string& file, bool only_warns);

}  // namespace trireme::train
