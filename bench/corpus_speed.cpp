// SPDX-License-Identifier: Apache-2.0
// Speed of build_corpus() from JSON lines to bytes as tokens, by number of workers:
//   corpus_speed [MB [WORKERS]]     writes MB (400) of JSON lines to the temporary folder first
// Prints MB/s of input, CPU time over wall time, and MB/s per second of CPU time.
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/rng.h"
#include "data/corpus/corpus.h"

namespace {

using namespace trireme;

void write_lines(const std::filesystem::path& path, int64_t bytes) {
  const std::string_view words[] = {"the ",  "of ",          "house ",      "and ",
                                    "ship ", "rowing ",      "water ",      "\\n",
                                    "end. ", "caf\xc3\xa9 ", "\\\"so\\\" ", "training "};
  const base::RngKey key = base::rng_key(1, "corpus_speed");
  std::ofstream file(path, std::ios::binary);
  uint64_t at = 0;
  for (int64_t written = 0; written < bytes;) {
    std::string line =
        fmt::format("{{\"id\":{},\"url\":\"https://example.org/{}\",\"text\":\"", at, at);
    const uint64_t count = 50 + base::rng_below(key, at++, 600);
    for (uint64_t i = 0; i < count; ++i) line += words[base::rng_below(key, at++, 12)];
    line += "\",\"meta\":{\"score\":0.5,\"language\":\"en\"}}\n";
    file << line;
    written += static_cast<int64_t>(line.size());
  }
}

double cpu_seconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t megabytes = argc > 1 ? std::atoll(argv[1]) : 400;
  const int max_workers = argc > 2 ? std::atoi(argv[2]) : 2;
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("trireme_corpus_speed_{}", ::getpid());
  std::filesystem::create_directories(folder);
  write_lines(folder / "in.jsonl", megabytes * 1000000);
  const double input = static_cast<double>(std::filesystem::file_size(folder / "in.jsonl")) * 1e-6;
  for (int workers = 1; workers <= max_workers; ++workers) {
    const double cpu = cpu_seconds();
    const auto start = std::chrono::steady_clock::now();
    const auto report = data::build_corpus(
        {.inputs = {(folder / "in.jsonl").string()}, .output = folder / "out", .workers = workers});
    const double wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double used = cpu_seconds() - cpu;
    fmt::print(
        "{} workers: {:.0f} MB/s, CPU over wall {:.2f}, {:.0f} MB per CPU second, {} tokens\n",
        workers, input / wall, used / wall, input / used, report.total.tokens);
  }
  std::filesystem::remove_all(folder);
  return 0;
}
