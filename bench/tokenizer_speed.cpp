// SPDX-License-Identifier: Apache-2.0
// How fast a tokenizer encodes, in MB of text per second and thread:
//   tokenizer_speed TOKENIZER FILE [THREADS]
// The file is cut at line breaks into texts of about 64 KB. Each figure is the best of five passes;
// a first pass fills the caches.
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <fstream>
#include <iterator>

#include "text/tokenizer.h"

namespace {

using namespace trireme;

std::vector<std::string_view> texts_of(std::string_view all) {
  constexpr size_t text_bytes = 64 << 10;
  std::vector<std::string_view> texts;
  while (!all.empty()) {
    const size_t end = std::min(all.find('\n', std::min(text_bytes, all.size())), all.size() - 1);
    texts.push_back(all.substr(0, end + 1));
    all.remove_prefix(end + 1);
  }
  return texts;
}

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <typename Work>
double best_seconds(int passes, clockid_t clock, Work&& work) {
  double best = 1e9;
  for (int pass = 0; pass < passes; ++pass) {
    const double start = seconds_of(clock);
    work();
    best = std::min(best, seconds_of(clock) - start);
  }
  return best;
}

void run(int argc, char** argv) {
  const auto tokenizer = text::open_tokenizer(argv[1]);
  std::ifstream in(argv[2], std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  const auto texts = texts_of(all);
  const double megabytes = static_cast<double>(all.size()) / 1e6;
  size_t tokens = 0;
  const auto encode_all = [&] {
    tokens = 0;
    for (const std::string_view text : texts) tokens += tokenizer->encode(text).size();
  };
  const double first = best_seconds(1, CLOCK_THREAD_CPUTIME_ID, encode_all);
  const double later = best_seconds(5, CLOCK_THREAD_CPUTIME_ID, encode_all);
  fmt::print("{:.1f} MB, {} tokens, {:.2f} bytes a token\n", megabytes, tokens,
             static_cast<double>(all.size()) / static_cast<double>(std::max(tokens, size_t{1})));
  fmt::print("one thread, first pass: {:6.1f} MB/s\n", megabytes / first);
  fmt::print("one thread, later:      {:6.1f} MB/s\n", megabytes / later);
  const int threads = argc > 3 ? std::stoi(argv[3]) : 1;
  if (threads > 1) {
    base::ThreadPool pool(threads);
    const double seconds =
        best_seconds(5, CLOCK_MONOTONIC, [&] { (void)tokenizer->encode_batch(texts, {}, pool); });
    fmt::print("{} threads:              {:6.1f} MB/s, {:.1f} a thread\n", threads,
               megabytes / seconds, megabytes / seconds / threads);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: tokenizer_speed TOKENIZER FILE [THREADS]\n");
    return 2;
  }
  try {
    run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
