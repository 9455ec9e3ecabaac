// SPDX-License-Identifier: Apache-2.0
// Which known word was meant by an unknown one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::config {

// Letters to insert, remove, replace, or swap with their neighbour.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, if it is near enough to be a slip: at most a third of the
// letters, and at least two, may differ. The first of several equally near ones.
std::optional<std::string_view> nearest(std::string_view word,
                                        const std::vector<std::string_view>& candidates);

// The choice that `word` stands for: itself or, where choices are element types, the one of the
// same type in another spelling ("float32" for "fp32"). Nothing: it stands for none.
std::optional<std::string_view> choice_of(std::string_view word,
                                          const std::vector<std::string_view>& choices);

// What follows "must be one of ...": the nearest choice or, for the name of an element type that is
// no choice, that it is not supported. Empty: nothing helps.
std::string choice_hint(std::string_view word, const std::vector<std::string_view>& choices);

}  // namespace trireme::config
