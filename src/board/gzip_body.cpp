// SPDX-License-Identifier: Apache-2.0
#include "board/gzip_body.h"

#include <algorithm>

namespace trireme::board {
namespace {

// Smaller bodies fit into a packet with their head.
constexpr size_t min_compressed_bytes = 1024;

std::string_view trimmed_item(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Whether a weight as "q=0.000" is zero.
bool is_zero_weight(std::string_view parameters) {
  const size_t at = parameters.find("q=");
  if (at == std::string_view::npos) return false;
  const std::string_view digits = trimmed_item(parameters.substr(at + 2));
  return !digits.empty() && digits.find_first_not_of("0.") == std::string_view::npos;
}

}  // namespace

bool takes_gzip(const Request& request) {
  std::string_view rest = request.header("accept-encoding").value_or("");
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::string_view name = trimmed_item(item.substr(0, item.find(';')));
    if (name == "gzip") return !is_zero_weight(item.substr(std::min(item.size(), item.find(';'))));
  }
  return false;
}

void compress_body(const Request& request, Response& response) {
  if (response.stream || response.body.size() < min_compressed_bytes) return;
  const auto has = [&](std::string_view name) {
    return std::any_of(response.headers.begin(), response.headers.end(),
                       [&](const auto& header) { return header.first == name; });
  };
  if (has("Content-Encoding")) return;
  if (!has("Vary")) response.headers.emplace_back("Vary", "Accept-Encoding");
  if (!takes_gzip(request)) return;
  std::optional<std::string> packed = gzip_of(response.body);
  if (!packed || packed->size() >= response.body.size()) return;
  response.body = std::move(*packed);
  response.headers.emplace_back("Content-Encoding", "gzip");
}

}  // namespace trireme::board
