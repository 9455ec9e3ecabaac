// SPDX-License-Identifier: Apache-2.0
// JSON values, with keys in the order they were written. Their members are compiled once, in
// json.cpp: a second less for each of a hundred files.
#pragma once

#include <nlohmann/json.hpp>

#include "base/text/json_fwd.h"

NLOHMANN_JSON_NAMESPACE_BEGIN
extern template class basic_json<ordered_map>;
namespace detail {
extern template class serializer<ordered_json>;
extern template class json_sax_dom_parser<ordered_json>;
extern template class json_sax_dom_callback_parser<ordered_json>;
}  // namespace detail
NLOHMANN_JSON_NAMESPACE_END
