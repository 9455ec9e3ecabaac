// SPDX-License-Identifier: Apache-2.0
#include "data/corpus/rejected.h"

#include <fstream>

#include "base/text/json.h"
#include "data/corpus/counts.h"

namespace trireme::data {

using base::Json;

std::string rejected_line(const RejectedDocument& document) {
  Json line = Json::object();
  line["file"] = json_name(document.origin.file);
  if (document.origin.line > 0) line["line"] = document.origin.line;
  if (!document.origin.member.empty()) line["member"] = json_name(document.origin.member);
  line["offset"] = document.origin.offset;
  line["reason"] = std::string(name_of(document.rejection.reason));
  line["detail"] = document.rejection.detail;
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<RejectedLine> first_rejected(const std::filesystem::path& file, size_t count) {
  std::vector<RejectedLine> found;
  std::ifstream in(file, std::ios::binary);
  for (std::string text; found.size() < count && std::getline(in, text);) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) break;
    const Origin origin{.file = line.value("file", std::string()),
                        .line = line.value("line", int64_t{0}),
                        .member = line.value("member", std::string())};
    found.push_back({.place = to_text(origin),
                     .reason = line.value("reason", std::string()),
                     .detail = line.value("detail", std::string())});
  }
  return found;
}

}  // namespace trireme::data
