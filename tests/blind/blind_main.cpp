// SPDX-License-Identifier: Apache-2.0
// blind_run FIRST:LAST [KIND]: plants every kind of trouble (or those whose name contains KIND)
// with the seeds FIRST to LAST, prints every answer and a table. Exit code 1: fewer than 90 % of a
// kind are right, or a wrong rank was named.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include "tests/blind/plants.h"

namespace {

struct Count {
  int cases = 0, right = 0, wrong_ranks = 0;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace trireme::tests;
  int first = 0, last = 0;
  if (argc < 2 || std::sscanf(argv[1], "%d:%d", &first, &last) != 2 || last < first) {
    fmt::print(stderr, "usage: blind_run FIRST:LAST [KIND]\n");
    return 2;
  }
  const std::string wanted = argc > 2 ? argv[2] : "";
  std::map<std::string, Count> counts;
  const double begin = seconds_now();
  for (const Plant& plant : all_plants()) {
    if (plant.name.find(wanted) == std::string::npos) continue;
    for (int seed = first; seed <= last; ++seed) {
      BlindResult result;
      try {
        result = plant.run(static_cast<uint64_t>(seed));
      } catch (const std::exception& error) {
        result.details = error.what();
      }
      Count& count = counts[plant.name];
      ++count.cases;
      count.right += is_right(plant, result) ? 1 : 0;
      count.wrong_ranks += is_wrong_rank(result) ? 1 : 0;
      fmt::print("{:6.0f} s  {:<22} seed {:>3}  {:<5}  {:<18} {}\n", seconds_now() - begin,
                 plant.name, seed, is_right(plant, result) ? "right" : "WRONG",
                 result.cause.empty() ? "(nothing)" : result.cause, result.details);
      std::fflush(stdout);
    }
  }
  fmt::print("\n{:<24} {:>6} {:>6} {:>12}\n", "kind", "cases", "right", "wrong rank");
  bool is_good = true;
  for (const Plant& plant : all_plants()) {
    const auto found = counts.find(plant.name);
    if (found == counts.end()) continue;
    const Count& count = found->second;
    const bool is_exact = plant.cause.empty();  // nothing wrong may be said of these
    is_good = is_good && count.wrong_ranks == 0 &&
              (is_exact ? count.right == count.cases : 10 * count.right >= 9 * count.cases);
    fmt::print("{:<24} {:>6} {:>6} {:>12}\n", plant.name, count.cases, count.right,
               count.wrong_ranks);
  }
  return is_good ? 0 : 1;
}
