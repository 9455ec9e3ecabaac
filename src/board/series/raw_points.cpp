// SPDX-License-Identifier: Apache-2.0
#include "board/series/raw_points.h"

#include <fmt/format.h>

#include "base/text/json.h"
#include "board/series/line_scanner.h"
#include "board/series/line_tail.h"
#include "board/series/metric_store.h"

namespace trireme::board {
namespace {

constexpr size_t text_block_bytes = 1 << 16;

bool is_number(std::string_view digits) {
  return !digits.empty() && (digits[0] == '-' ? digits != "-Infinity" : digits[0] <= '9');
}

}  // namespace

void write_raw(const std::filesystem::path& metrics, const RawQuery& query,
               const std::function<bool(std::string_view)>& write) {
  const bool is_csv = query.format == RawFormat::csv;
  std::string out;
  if (is_csv) {
    out = "step,time,value\n";
  } else {
    const base::Json tag = query.tag;
    out = fmt::format("{{\"tag\":{},\"points\":[",
                      tag.dump(-1, ' ', false, base::Json::error_handler_t::replace));
  }
  LineScanner scanner;
  const int tag = scanner.tag_of(query.tag);
  ScannedLine line;
  bool is_open = true, is_first = true;
  const auto add = [&](const ScannedValue& value) {
    if (is_csv) {
      fmt::format_to(std::back_inserter(out), "{},{},{}\n", line.step, line.time, value.digits);
      return;
    }
    const char* quote = is_number(value.digits) || value.digits == "null" ? "" : "\"";
    fmt::format_to(std::back_inserter(out), "{}[{},{},{}{}{}]", is_first ? "" : ",", line.step,
                   line.time, quote, value.digits, quote);
    is_first = false;
  };
  LineTail tail(metrics, MetricStore::max_line_bytes);
  tail.poll({.restarted = nullptr, .line = [&](std::string_view text) {
               if (!is_open || tail.offset() >= query.end) return;
               // Most lines of other tags are recognised without scanning them.
               if (!scanner.scan(text, line) || !line.has_step) return;
               if (line.step < query.from || line.step > query.to) return;
               if (line.kind == "start" || line.kind == "resume") return;
               for (const ScannedValue& value : line.values) {
                 if (value.tag == tag) add(value);
               }
               if (out.size() < text_block_bytes) return;
               is_open = write(out);
               out.clear();
             }});
  if (!is_csv) out += "]}";
  if (is_open) write(out);
}

}  // namespace trireme::board
