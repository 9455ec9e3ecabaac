// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/read_runs.h"

#include <optional>
#include <system_error>

#include "cli/shell/progress.h"

namespace trireme::cli {

void read_runs(board::Board& board, const std::string& label) {
  constexpr int64_t quick_bytes = 100 << 20;  // less than a second
  int64_t total = 0;
  for (const board::RunView* run : board.runs()) {
    std::error_code failed;
    const uintmax_t bytes = std::filesystem::file_size(run->folder() / "metrics.jsonl", failed);
    if (!failed) total += static_cast<int64_t>(bytes);
  }
  if (total < quick_bytes) {
    board.load_all();
    return;
  }
  Progress progress(label, "MiB", total >> 20);
  std::string current;
  int64_t before = 0, last = 0;  // bytes of the runs before, and of the current one
  board.load_all([&](const std::string& run, int64_t bytes, int64_t /*of*/) {
    if (run != current) {
      before += last;
      current = run;
    }
    last = bytes;
    progress.update((before + bytes) >> 20, run);
  });
  progress.finish();
}

}  // namespace trireme::cli
