// SPDX-License-Identifier: Apache-2.0
#include "data/sources/document.h"

#include <fmt/core.h>

#include "base/text/printable.h"

namespace trireme::data {
namespace {

constexpr std::array<std::string_view, reject_reasons> reason_names = {
    "invalid_utf8", "empty",       "nul",        "end_of_document_byte",
    "too_long",     "wrong_field", "json_error", "invalid_token"};

}  // namespace

std::string to_text(const Origin& origin) {
  const std::string file = base::printable(origin.file);
  if (origin.line > 0) return fmt::format("{}:{}", file, origin.line);
  if (!origin.member.empty()) return fmt::format("{}: {}", file, base::printable(origin.member));
  return file;
}

std::string_view name_of(RejectReason reason) { return reason_names[static_cast<size_t>(reason)]; }

}  // namespace trireme::data
