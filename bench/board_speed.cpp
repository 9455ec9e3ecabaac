// SPDX-License-Identifier: Apache-2.0
// How fast the board reads metrics and answers: board_speed [STEPS [FOLDER]]. Writes metrics.jsonl
// with eight tags into the folder if it has none, then prints the speed of the first reading, of
// the cache, and of the answer that a page of 2,000 pixels asks for.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "board/api/handlers.h"
#include "board/run/run_view.h"
#include "obs/clock.h"

namespace {

namespace fs = std::filesystem;
using trireme::obs::steady_seconds;

constexpr const char* tags[] = {"loss_metrics/global_avg_loss",
                                "loss_metrics/min",
                                "loss_metrics/max",
                                "grad_norm",
                                "update_norm",
                                "lr",
                                "tokens/trained",
                                "tokens"};

void write_metrics(const fs::path& file, int64_t steps) {
  std::ofstream out(file, std::ios::binary);
  std::string line;
  for (int64_t step = 1; step <= steps; ++step) {
    const auto x = static_cast<double>(step);
    line = fmt::format("{{\"kind\":\"train\",\"attempt\":1,\"step\":{},\"time\":{}", step,
                       1.79e9 + x / 3);
    for (size_t tag = 0; tag < std::size(tags); ++tag) {
      const double value =
          tag == 7 ? x * 4096 : 8 / std::sqrt(x) + std::sin(x * (1 + static_cast<double>(tag)));
      line += fmt::format(",\"{}\":{}", tags[tag], value);
    }
    out << line << "}\n";
  }
}

double median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 1'000'000;
  const fs::path folder = argc > 2 ? argv[2] : "runs/board_speed";
  fs::create_directories(folder);
  const fs::path file = folder / "metrics.jsonl", cache = folder / "test.cache";
  if (!fs::exists(file)) write_metrics(file, steps);
  const double megabytes = static_cast<double>(fs::file_size(file)) / 1e6;

  double begin = steady_seconds();
  trireme::board::RunView run(folder, folder.string());
  run.poll();
  double seconds = steady_seconds() - begin;
  fmt::print("first reading: {:.0f} MB in {:.2f} s, {:.0f} MB/s\n", megabytes, seconds,
             megabytes / seconds);
  begin = steady_seconds();
  run.save_cache(cache);
  fmt::print("cache written: {:.0f} MB in {:.2f} s\n",
             static_cast<double>(fs::file_size(cache)) / 1e6, steady_seconds() - begin);
  begin = steady_seconds();
  trireme::board::RunView again(folder, folder.string());
  const bool is_loaded = again.load_cache(cache);
  fmt::print("cache read: {:.3f} s{}\n", steady_seconds() - begin, is_loaded ? "" : ", refused");
  fs::remove(cache);

  std::string url = "/api/run/0/series?px=2000";
  for (const char* tag : tags) url += "&tag=" + trireme::board::percent_encoded(tag);
  for (const auto& [what, range] :
       {std::pair<const char*, std::string>{"whole range", ""},
        {"a tenth", fmt::format("&from={}&to={}", steps * 4 / 10, steps / 2)},
        {"1,000 steps", fmt::format("&from={}&to={}", steps / 2, steps / 2 + 1000)}}) {
    std::vector<double> times;
    size_t bytes = 0;
    for (int i = 0; i < 11; ++i) {
      begin = steady_seconds();
      bytes = series_response(run, trireme::board::request_of(url + range)).body.size();
      times.push_back(steady_seconds() - begin);
    }
    fmt::print("series of 8 tags, 2,000 pixels, {}: {:.1f} ms, {} bytes\n", what,
               1e3 * median(times), bytes);
  }
}
