// SPDX-License-Identifier: Apache-2.0
// Which known word was meant by an unknown one.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace trireme::config {

// Letters to insert, remove, replace, or swap with their neighbour.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, if it is near enough to be a slip: at most a third of the
// letters, and at least two, may differ. The first of several equally near ones.
std::optional<std::string_view> nearest(std::string_view word,
                                        const std::vector<std::string_view>& candidates);

}  // namespace trireme::config
