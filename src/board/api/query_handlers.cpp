// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "board/api/handlers.h"
#include "board/board.h"
#include "board/series/buckets.h"
#include "board/series/raw_points.h"

namespace trireme::board {
namespace {

constexpr size_t max_tags_asked = 32;
constexpr int64_t max_px = 4000;
constexpr int64_t max_cols = 4000;

// A parameter that a handler cannot use; becomes status 400.
class BadParameter : public base::Error {
 public:
  using Error::Error;
};

template <typename T>
T number_parameter(const Request& request, std::string_view name, T otherwise, T least, T most) {
  const auto text = request.parameter(name);
  if (!text || text->empty()) return otherwise;
  double value = 0;
  const char* end = text->data() + text->size();
  const auto [at, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || at != end || !std::isfinite(value)) {
    throw BadParameter(fmt::format("{}: must be a number", name));
  }
  if (value < static_cast<double>(least) || value > static_cast<double>(most)) {
    throw BadParameter(fmt::format("{}={}: must be from {} to {}", name, value, least, most));
  }
  return static_cast<T>(value);
}

constexpr double max_x = 9e15;

int64_t step_parameter(const Request& request, std::string_view name, int64_t otherwise) {
  return static_cast<int64_t>(std::llround(
      number_parameter<double>(request, name, static_cast<double>(otherwise), -max_x, max_x)));
}

Response guarded(const std::function<Response()>& answer) {
  try {
    return answer();
  } catch (const BadParameter& error) {
    return error_response(400, error.what());
  }
}

}  // namespace

Response series_response(const RunView& view, const Request& request) {
  return guarded([&]() -> Response {
    std::vector<std::string> tags;
    for (const auto& [key, value] : request.query) {
      if (key == "tag") tags.push_back(value);
    }
    if (tags.empty()) throw BadParameter("tag: is missing; give one to 32");
    if (tags.size() > max_tags_asked) {
      throw BadParameter(fmt::format("tag: {} are given; at most {}", tags.size(), max_tags_asked));
    }
    const std::string_view x = request.parameter("x").value_or("step");
    const std::optional<Axis> axis = axis_from(x);
    if (!axis) throw BadParameter("x: must be step, tokens or time");
    constexpr double infinity = std::numeric_limits<double>::infinity();
    BucketQuery query{.axis = *axis};
    query.px = static_cast<int>(number_parameter<int64_t>(request, "px", 1000, 1, max_px));
    query.from = request.parameter("from").value_or("").empty()
                     ? -infinity
                     : number_parameter<double>(request, "from", 0, -max_x, max_x);
    query.to = request.parameter("to").value_or("").empty()
                   ? infinity
                   : number_parameter<double>(request, "to", 0, -max_x, max_x);

    const RunView::Reading run(view);
    const MetricStore& metrics = run.metrics();
    size_t asked = std::hash<std::string>()(request.path);
    for (const auto& [key, value] : request.query) {
      asked = asked * 31 + std::hash<std::string>()(key + "=" + value);
    }
    const std::string etag =
        fmt::format("\"{:x}-{:x}-{:x}\"", metrics.restarts(), metrics.bytes(), asked);
    Response response;
    response.headers.emplace_back("ETag", etag);
    if (request.header("if-none-match") == etag) {
      response.status = 304;
      return response;
    }
    double first = infinity, last = -infinity;
    std::string& out = response.body;
    out = fmt::format("{{\"x\":\"{}\",\"revision\":{},\"series\":{{", x, run.revision());
    for (size_t i = 0; i < tags.size(); ++i) {
      const std::optional<int> tag = metrics.find(tags[i]);
      std::vector<Bucket> buckets;
      if (tag) {
        buckets = buckets_of(metrics, *tag, query);
        const std::vector<Bucket> whole = buckets_of(metrics, *tag, {.axis = *axis, .px = 1});
        if (!whole.empty()) {
          first = std::min(first, whole.front().first_x);
          last = std::max(last, whole.back().last_x);
        }
      }
      out += i == 0 ? "" : ",";
      out += text_of(base::Json(tags[i])) + ":";
      append_json(out, buckets);
    }
    out += "},\"first\":";
    const bool has_points = first <= last;
    has_points ? append_number(out, first) : void(out += "null");
    out += ",\"last\":";
    has_points ? append_number(out, last) : void(out += "null");
    out += '}';
    return response;
  });
}

Response raw_response(const RunView& view, const Request& request) {
  return guarded([&]() -> Response {
    const auto tag = request.parameter("tag");
    if (!tag) throw BadParameter("tag: is missing");
    RawQuery query{.tag = std::string(*tag)};
    query.from = step_parameter(request, "from", -static_cast<int64_t>(max_x));
    query.to = step_parameter(request, "to", static_cast<int64_t>(max_x));
    const std::string_view format = request.parameter("format").value_or("csv");
    if (format != "csv" && format != "json") throw BadParameter("format: must be csv or json");
    const RunView::Reading run(view);
    const std::optional<int> found = run.metrics().find(*tag);
    if (!found) return error_response(404, "tag: the run has no such tag; /api/run/ID lists them");
    if (format == "json") return {.body = drawn_points_json(run.metrics(), *found, query)};
    Response response{.type = "text/csv; charset=utf-8"};
    response.headers.emplace_back("Content-Disposition", "attachment; filename=\"points.csv\"");
    response.stream = [path = run.metrics().path(), query](const Sink& sink) {
      write_raw(path, query, sink);
    };
    return response;
  });
}

Response heat_response(const RunView& view, const Request& request) {
  return guarded([&]() -> Response {
    const std::string table(request.parameter("table").value_or("ranks"));
    if (table != "ranks" && table != "layers" && table != "numerics") {
      throw BadParameter("table: must be ranks, layers or numerics");
    }
    const auto column = request.parameter("column");
    if (!column) throw BadParameter("column: is missing; /api/run/ID lists them as rank_columns");
    HeatQuery query;
    query.from = step_parameter(request, "from", -static_cast<int64_t>(max_x));
    query.to = step_parameter(request, "to", static_cast<int64_t>(max_x));
    query.cols = static_cast<int>(number_parameter<int64_t>(request, "cols", 500, 1, max_cols));
    const std::string_view cell = request.parameter("cell").value_or("largest");
    if (cell != "largest" && cell != "lowest") {
      throw BadParameter("cell: must be largest or lowest");
    }
    query.lowest = cell == "lowest";
    const std::optional<HeatMap> map = view.heat(table, std::string(*column), query);
    if (!map) {
      return error_response(
          404, fmt::format("column: {}.bin is missing, or no record in it has this column", table));
    }
    return {.type = "application/octet-stream", .body = heat_bytes(*map, std::string(*column))};
  });
}

Response events_response(const RunView& view, const Request& request) {
  return guarded([&]() -> Response {
    const int64_t since = step_parameter(request, "since", 0);
    return json_response(RunView::Reading(view).events().since(since));
  });
}

}  // namespace trireme::board
