// SPDX-License-Identifier: Apache-2.0
#include "data/sources/document.h"

#include <fmt/core.h>

namespace trireme::data {
namespace {

constexpr std::array<std::string_view, reject_reasons> reason_names = {
    "invalid_utf8", "empty",       "nul",        "end_of_document_byte",
    "too_long",     "wrong_field", "json_error", "invalid_token"};

}  // namespace

std::string to_text(const Origin& origin) {
  if (origin.line > 0) return fmt::format("{}:{}", origin.file, origin.line);
  if (!origin.member.empty()) return fmt::format("{}: {}", origin.file, origin.member);
  return origin.file;
}

std::string_view name_of(RejectReason reason) { return reason_names[static_cast<size_t>(reason)]; }

}  // namespace trireme::data
