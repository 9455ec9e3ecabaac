// SPDX-License-Identifier: Apache-2.0
// Speed and memory of clean_documents() on JSON lines:
//   clean_speed [DOCUMENTS [WORKERS [WORDS [FOLDER]]]]
// Writes DOCUMENTS (100,000) texts of WORDS (100) to three times as many words to FOLDER (the
// temporary folder) first, of which a tenth are exact copies and a fifth variants of earlier ones.
// Prints MB of text per second, CPU time over wall time, and the peak of the resident memory:
// before cleaning, after it, and the difference for each document.
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "data/clean/clean.h"

namespace {

using namespace trireme;

using Words = std::vector<uint32_t>;

std::string line_of(const Words& words) {
  std::string line = "{\"text\":\"";
  for (const uint32_t word : words) line += fmt::format("w{:x} ", word);
  line.back() = '"';
  return line + "}\n";
}

// Common words are frequent: the square of a uniform number chooses the word.
void write_documents(const std::filesystem::path& path, int64_t documents, uint64_t min_words) {
  const base::RngKey key = base::rng_key(1, "clean_speed");
  uint64_t at = 0;
  const auto below = [&](uint64_t bound) { return base::rng_below(key, at++, bound); };
  const auto word = [&] {
    const double x = base::rng_uniform(key, at++);
    return static_cast<uint32_t>(x * x * 200000);
  };
  std::ofstream file(path, std::ios::binary);
  std::deque<Words> earlier;
  for (int64_t i = 0; i < documents; ++i) {
    const uint64_t kind = earlier.empty() ? 9 : below(10);
    Words words;
    if (kind < 3) {
      words = earlier[below(earlier.size())];
      if (kind > 0) {
        for (uint64_t k = 1 + below(words.size() / 40 + 1); k > 0; --k) {
          words[below(words.size())] = word();
        }
      }
    } else {
      words.resize(min_words + below(2 * min_words + 1));
      for (uint32_t& one : words) one = word();
      earlier.push_back(words);
      if (earlier.size() > 20000) earlier.pop_front();
    }
    file << line_of(words);
  }
}

struct rusage usage() {
  struct rusage result {};
  ::getrusage(RUSAGE_SELF, &result);
  return result;
}

double cpu_seconds() {
  const struct rusage used = usage();
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t documents = argc > 1 ? std::atoll(argv[1]) : 100000;
  const int workers = argc > 2 ? std::atoi(argv[2]) : 2;
  const auto words = static_cast<uint64_t>(argc > 3 ? std::atoll(argv[3]) : 100);
  const std::filesystem::path parent =
      argc > 4 ? std::filesystem::path(argv[4]) : std::filesystem::temp_directory_path();
  const auto folder = parent / fmt::format("trireme_clean_speed_{}", ::getpid());
  std::filesystem::create_directories(folder);
  write_documents(folder / "in.jsonl", documents, words);
  const double cpu = cpu_seconds(), before = static_cast<double>(usage().ru_maxrss) * 1024;
  const auto start = std::chrono::steady_clock::now();
  data::CleanOptions options;
  options.inputs = {(folder / "in.jsonl").string()};
  options.output = folder / "out.jsonl";
  options.workers = workers;
  double phase_start = 0;
  data::CleanProgress::Phase phase{};
  options.progress = [&](const data::CleanProgress& p) {
    const double now =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (p.phase == phase) return;
    fmt::print("{:.1f} s, ", now - phase_start);
    phase_start = now;
    phase = p.phase;
  };
  const data::CleanReport report = data::clean_documents(options);
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double peak = static_cast<double>(usage().ru_maxrss) * 1024;
  fmt::print("{:.1f} s for reading, comparing, writing\n", wall - phase_start);
  const double text = static_cast<double>(report.total.text_bytes) * 1e-6;
  const double used = cpu_seconds() - cpu;
  fmt::print(
      "{} workers: {:.0f} MB of text, {:.1f} s, {:.1f} MB/s, CPU over wall {:.2f}, {:.1f} MB per "
      "CPU second\n",
      workers, text, wall, text / wall, used / wall, text / used);
  fmt::print("{} documents, {} kept, {} exact and {} near-duplicates, {} candidates, {} compared\n",
             report.total.documents, report.total.kept, report.total.exact_duplicates,
             report.total.near_duplicates, report.near->counts.candidates,
             report.near->counts.compared);
  fmt::print("peak {:.0f} MB, {:.0f} MB before: {:.0f} bytes for each document\n", peak * 1e-6,
             before * 1e-6, (peak - before) / static_cast<double>(report.total.documents));
  std::filesystem::remove_all(folder);
  return 0;
}
