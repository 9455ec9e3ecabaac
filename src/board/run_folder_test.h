// SPDX-License-Identifier: Apache-2.0
// For tests: the folder of a run with all files that the board reads.
#pragma once

#include <filesystem>
#include <string>

#include "board/series/written_metrics_test.h"
#include "obs/files/rank_columns.h"
#include "obs/files/table_file.h"

namespace trireme::board {

struct RunFolderOptions {
  std::string name = "kjv";
  int steps = 200;
  int ranks = 4;
  std::string event_text = "step 120 was skipped";
};

// Writes a run that was killed after its last step.
inline void write_run(const std::filesystem::path& folder, const RunFolderOptions& options = {}) {
  std::filesystem::create_directories(folder);
  const auto quoted = [](const std::string& text) { return base::Json(text).dump(); };
  write_text(folder / "run.json",
             fmt::format("{{\"job\":{{\"name\":{}}},\"training\":{{\"steps\":{}}},"
                         "\"checkpoint\":{{\"folder\":\"checkpoint\",\"keep_latest_k\":2}},"
                         "\"alerts\":{{\"webhook\":\"https://x/secret\"}},"
                         "\"metrics\":{{\"command\":\"bridge --api-key hunter2 --port 1\"}},"
                         "\"program\":{{\"version\":\"0.1.0\"}}}}",
                         quoted(options.name), options.steps));
  write_text(folder / "prediction.json",
             R"({"seconds":0.9,"memory":{"limit_bytes":100,"items":{"params":60},"total_bytes":60},
                 "price_per_hour":2.5})");
  std::string metrics = "{\"kind\":\"start\",\"attempt\":1,\"step\":0,\"time\":1000}\n";
  for (int step = 1; step <= options.steps; ++step) {
    metrics += train_line(step, 1000 + step,
                          fmt::format("\"loss_metrics/global_avg_loss\":{},\"grad_norm\":{},"
                                      "\"tokens\":{},\"lr\":0.001",
                                      8.0 - 0.01 * step, 1 + step % 7, step * 1024));
  }
  write_text(folder / "metrics.jsonl", metrics);
  write_text(folder / "events.jsonl",
             fmt::format("{{\"time\":1000,\"attempt\":1,\"kind\":\"start\",\"severity\":\"info\","
                         "\"text\":\"begins\"}}\n{{\"time\":1120,\"step\":120,\"attempt\":1,"
                         "\"kind\":\"skip\",\"severity\":\"warning\",\"text\":{}}}\n",
                         quoted(options.event_text)));
  obs::TableShape shape{.table = "ranks", .about = R"({"nodes":["n0","n0","n1","n1"]})"};
  for (int rank = 0; rank < options.ranks; ++rank)
    shape.rows.push_back(fmt::format("rank {}", rank));
  for (size_t column = 0; column < obs::rank_columns; ++column) {
    shape.columns.emplace_back(obs::name_of(static_cast<obs::RankColumn>(column)));
  }
  obs::TableWriter ranks(folder / "ranks.bin");
  ranks.begin(shape);
  for (int step = 20; step <= options.steps; step += 20) {
    std::vector<float> values(shape.rows.size() * shape.columns.size());
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((i * 7 + static_cast<size_t>(step)) % 13);
    ranks.add({.step = step, .attempt = 1, .time = 1000.0 + step, .values = values});
  }
}

}  // namespace trireme::board
