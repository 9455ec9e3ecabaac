// SPDX-License-Identifier: Apache-2.0
#include "board/report/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "base/text/json.h"
#include "board/assets.h"
#include "board/report/page_text.h"
#include "obs/terminal/number_text.h"

namespace trireme::board {
namespace {

// Returns the text of a page that is part of the program.
std::string asset_text(std::string_view name) {
  for (const Asset& asset : embedded_assets()) {
    if (asset.name == name) return std::string(asset.plain);
  }
  throw base::ConfigError(fmt::format("{}: this build has no such page", name));
}

// Returns the name in src="/app/NAME" or href="/app/NAME" of a line; empty if there is none.
std::string asset_in(std::string_view line) {
  constexpr std::string_view mark = "=\"/app/";
  const size_t begin = line.find(mark);
  if (begin == std::string_view::npos) return "";
  const size_t end = line.find('"', begin + mark.size());
  return std::string(line.substr(begin + mark.size(), end - begin - mark.size()));
}

// Collects answers by URL.
class Answers {
 public:
  explicit Answers(const Board& board) : board_(board) {}

  void add(const std::string& url) {
    const Response answer = board_.handle(request_of(url));
    if (answer.status == 200) put(url, answer.body);
  }
  void put(const std::string& url, const std::string& json) {
    text_ += text_.empty() ? "{" : ",";
    text_ += text_of(base::Json(url)) + ":" + json;
  }
  std::string take() { return text_.empty() ? "{}" : std::move(text_) + "}"; }

 private:
  const Board& board_;
  std::string text_;
};

// Returns the tags with points, those that other curves are drawn by first.
std::vector<std::string> ordered_tags(const RunView::Reading& run) {
  std::vector<std::string> tags;
  for (const std::string& tag : run.metrics().tags()) {
    if (tag != "step" && !run.metrics().track(*run.metrics().find(tag)).rows.empty()) {
      tags.push_back(tag);
    }
  }
  std::stable_sort(tags.begin(), tags.end(), [](const std::string& a, const std::string& b) {
    const auto place = [](const std::string& tag) {
      return tag == RunView::loss_tag ? 0 : tag == "tokens" ? 1 : tag == "grad_norm" ? 2 : 3;
    };
    return place(a) < place(b);
  });
  return tags;
}

void add_curves(Answers& answers, const RunView& view, const std::string& base, size_t& room) {
  std::vector<std::pair<std::string, size_t>> tags;
  {
    const RunView::Reading run(view);
    for (const std::string& tag : ordered_tags(run)) {
      tags.emplace_back(tag, run.metrics().track(*run.metrics().find(tag)).rows.size());
    }
  }
  for (const auto& [tag, points] : tags) {
    const std::string name = percent_encoded(tag);
    if (points <= room) {
      room -= points;
      answers.add(fmt::format("{}/raw?tag={}&format=json", base, name));
    } else {
      answers.add(fmt::format("{}/series?tag={}&x=step&px=2000", base, name));
    }
  }
}

// A column of a table file that a page draws. `is_lowest`: as HeatQuery::lowest.
struct WantedMap {
  std::string table, column;
  bool is_lowest = false;
  bool operator==(const WantedMap&) const = default;
};

void add_heat_maps(Answers& answers, const RunView& view, const std::string& base, size_t& room) {
  std::vector<WantedMap> wanted = {{"layers", "grad_norm"},
                                   {"numerics", "flushed_share"},
                                   {"numerics", "amax_bits"},
                                   {"numerics", "snr_db", true},
                                   {"numerics", "headroom_bits", true},
                                   {"numerics", "saturated_share"}};
  std::vector<std::string> columns;
  {
    const RunView::Reading run(view);
    columns = run.facts().rank_columns;
  }
  // The columns that say most come first; others follow while there is room.
  for (const char* name : {"compute_seconds", "step_seconds", "late_data", "late_pp", "late_tp",
                           "data_seconds", "gap_seconds", "memory_bytes", "clock_hz"}) {
    if (std::find(columns.begin(), columns.end(), name) != columns.end()) {
      wanted.push_back({"ranks", name});
    }
  }
  for (const std::string& name : columns) {
    const WantedMap one{"ranks", name};
    if (std::find(wanted.begin(), wanted.end(), one) == wanted.end()) wanted.push_back(one);
  }
  for (const auto& [table, column, is_lowest] : wanted) {
    std::optional<HeatMap> map = view.heat(table, column, {.cols = 1});
    if (!map || map->rows.empty()) continue;
    const size_t cols = std::max<size_t>(1, max_report_cells_of_map / map->rows.size());
    map = view.heat(table, column,
                    {.cols = static_cast<int>(std::min<size_t>(cols, 500)), .lowest = is_lowest});
    if (!map || map->cells.size() > room) continue;
    room -= map->cells.size();
    answers.put(fmt::format("{}/heat?table={}&column={}{}", base, table, percent_encoded(column),
                            is_lowest ? "&cell=lowest" : ""),
                fmt::format("{{\"base64\":\"{}\"}}", base64_of(heat_bytes(*map, column))));
  }
}

std::string utc_text(double seconds) {
  if (!(seconds > 0 && seconds < 1e11)) return "at an unknown time";
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

// Returns a field of an event as text.
std::string field(const base::Json& event, const char* name) {
  if (!event.contains(name)) return "";
  const base::Json& value = event[name];
  return value.is_string() ? value.get<std::string>() : text_of(value);
}

// Returns a field of an event that is a number; 0 if there is none.
double number(const base::Json& event, const char* name) {
  return event.contains(name) && event[name].is_number() ? event[name].get<double>() : 0;
}

// Launchers and ranks append to one file, so that an end may stand before the verdict that led to
// it.
std::vector<base::Json> in_order_of_time(const base::Json& events) {
  std::vector<base::Json> sorted(events.begin(), events.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const base::Json& a, const base::Json& b) {
    return number(a, "time") < number(b, "time");
  });
  return sorted;
}

// Returns ", step 47". A launcher does not know the step: what it reports once the failure was
// found is after the last step of the attempt.
std::string place_text(const base::Json& event, const analysis::LedgerFailure& failure) {
  if (event.contains("step") && event["step"].is_number()) {
    return ", step " + text_of(event["step"]);
  }
  const bool is_of_end = event.value("severity", base::Json()) == "error";
  return is_of_end ? fmt::format(", after step {}", failure.step) : "";
}

}  // namespace

std::string inlined_answers(const Board& board) {
  Answers answers(board);
  size_t points = max_report_points, cells = max_report_cells;
  answers.add("/api/runs");
  const std::vector<RunView*> runs = board.runs();
  if (runs.size() > 1) answers.add("/api/configs");
  for (size_t id = 0; id < runs.size(); ++id) {
    const std::string base = fmt::format("/api/run/{}", id);
    answers.add(base);
    for (const char* what : {"events?since=0", "diagnosis", "ledger", "checkpoints", "memory",
                             "pipeline", "collectives"}) {
      answers.add(fmt::format("{}/{}", base, what));
    }
    add_curves(answers, *runs[id], base, points);
    add_heat_maps(answers, *runs[id], base, cells);
  }
  return answers.take();
}

std::string post_mortems(const RunView& view) {
  constexpr size_t max_events_shown = 12;
  const RunView::Reading run(view);
  const base::Json events = run.events().since(0)["events"];
  std::string out;
  for (const analysis::LedgerFailure& failure : run.facts().ledger.failures) {
    out +=
        fmt::format("<h3>Attempt {} failed after step {}, {}</h3>\n<p>{}</p>\n<p>", failure.attempt,
                    failure.step, utc_text(failure.time), html_escaped(failure.reason));
    out += fmt::format(
        "Lost: {} tokens, {:.1f} s of steps that were repeated{}. Detected after "
        "{:.1f} s, restarted in {:.1f} s.</p>\n<ul>\n",
        obs::grouped(failure.lost_tokens), failure.lost_seconds,
        failure.lost_dollars ? fmt::format(", ${:.2f}", *failure.lost_dollars) : "",
        failure.detect_seconds, failure.restart_seconds);
    std::vector<std::string> before;
    for (const base::Json& event : in_order_of_time(events)) {
      const base::Json attempt = event.value("attempt", base::Json(-1));
      if (attempt != failure.attempt) continue;
      before.push_back(fmt::format("<li>{}: {}{}: {}</li>\n", utc_text(number(event, "time")),
                                   html_escaped(field(event, "kind")), place_text(event, failure),
                                   html_escaped(field(event, "text"))));
    }
    const size_t first = before.size() - std::min(before.size(), max_events_shown);
    for (size_t i = first; i < before.size(); ++i) out += before[i];
    out += "</ul>\n";
  }
  if (out.empty()) return out;
  return fmt::format("<section>\n<h2>Failures of {}</h2>\n{}</section>\n",
                     html_escaped(run.facts().name), out);
}

std::string report_html(const Board& board) {
  expect_assets();
  const std::string page = asset_text("index.html");
  std::string out, scripts, styles;
  for (size_t begin = 0; begin < page.size();) {
    const size_t end = std::min(page.find('\n', begin), page.size());
    const std::string line = page.substr(begin, end - begin);
    begin = end + 1;
    const std::string name = asset_in(line);
    if (line.find("<meta charset") != std::string::npos) {
      out += line + "\n@policy@\n";
    } else if (name.empty()) {
      if (line.find("</body>") != std::string::npos) {
        std::string failures;
        for (const RunView* run : board.runs()) failures += post_mortems(*run);
        if (!failures.empty()) {
          out += "<aside id=\"post-mortems\" aria-label=\"failures\">\n" + failures + "</aside>\n";
        }
        out += fmt::format("<script type=\"application/json\" id=\"inlined\">{}</script>\n",
                           json_in_html(inlined_answers(board)));
      }
      out += line + "\n";
    } else if (line.find("modulepreload") != std::string::npos) {
      continue;
    } else if (line.find("stylesheet") != std::string::npos) {
      const std::string style = asset_text(name);
      styles += " " + policy_hash(style);
      out += "<style>" + style + "</style>\n";
    } else {
      const bool is_module = line.find("module") != std::string::npos;
      const std::string script = script_in_html(
          is_module ? joined_modules(name, [](const std::string& one) { return asset_text(one); })
                    : asset_text(name));
      scripts += " " + policy_hash(script);
      out += fmt::format("<script{}>{}</script>\n", is_module ? " type=\"module\"" : "", script);
    }
  }
  const std::string policy = fmt::format(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src{}; "
      "style-src{}; img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for "
      "'script'\">",
      scripts, styles);
  const size_t at = out.find("@policy@");
  if (at == std::string::npos) throw base::ConfigError("index.html: has no <meta charset>");
  out.replace(at, std::string_view("@policy@").size(), policy);
  return out;
}

}  // namespace trireme::board
