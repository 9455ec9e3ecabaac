// SPDX-License-Identifier: Apache-2.0
// Finds the known word that is nearest to an unknown one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::config {

// Returns the number of letters to insert, remove, replace, or swap with their neighbour.
int edit_distance(std::string_view a, std::string_view b);

// Returns the candidate nearest to `word` if it may be a typing error: up to two letters, or a
// third of them if that is more, may differ. Returns the first of several equally near ones.
std::optional<std::string_view> nearest(std::string_view word,
                                        const std::vector<std::string_view>& candidates);

// Returns the first name that equals `word` in another case of letters, or none.
std::optional<std::string_view> in_any_case(std::string_view word,
                                            const std::vector<std::string_view>& names);

// Returns the choice that `word` names: itself, in any case of letters, or, if choices are element
// types, another spelling of the same type ("float32" for "fp32", "fp8" for "fp8-tensor"). Returns
// none if there is no such choice.
std::optional<std::string_view> choice_of(std::string_view word,
                                          const std::vector<std::string_view>& choices);

// Returns the text that follows "must be one of ...": the nearest choice or, for an element type
// that is not a choice, that it is not supported. Empty: no hint.
std::string choice_hint(std::string_view word, const std::vector<std::string_view>& choices);

}  // namespace trireme::config
