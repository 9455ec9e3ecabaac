// SPDX-License-Identifier: Apache-2.0
#include "base/text/json.h"

NLOHMANN_JSON_NAMESPACE_BEGIN
template class basic_json<ordered_map>;
namespace detail {
template class serializer<ordered_json>;
template class json_sax_dom_parser<ordered_json>;
template class json_sax_dom_callback_parser<ordered_json>;
}  // namespace detail
NLOHMANN_JSON_NAMESPACE_END
