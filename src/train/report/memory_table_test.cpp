// SPDX-License-Identifier: Apache-2.0
#include "train/report/memory_table.h"

#include <gtest/gtest.h>

#include "obs/terminal/number_text.h"

namespace trireme::train {
namespace {

// Every field has another power of two, so that a field that no row shows changes the sum.
spec::MemoryTable distinct_table() {
  return {.params = 1,
          .grads = 2,
          .optim = 4,
          .stash_inputs = 8,
          .stash_f_to_b = 16,
          .stash_f_to_w = 32,
          .stash_b_to_w = 64,
          .stash_gradients = 128,
          .stash_recompute = 256,
          .stash_stream = 512,
          .stash_gaps = 1024,
          .scratch = 2048,
          .comm = 4096,
          .staging = 8192};
}

TEST(MemoryTable, rows_add_up_to_the_last_one) {
  const std::vector<MemoryRow> rows = memory_rows(distinct_table(), {});
  int64_t sum = 0;
  for (const MemoryRow& row : rows) sum += row.predicted;
  EXPECT_EQ(rows.back().predicted, distinct_table().total());
  EXPECT_EQ(sum, 2 * rows.back().predicted);
}

TEST(MemoryTable, leaves_out_purposes_without_bytes) {
  const std::string text = memory_table_text({.params = 1000}, {.params = 1200});
  EXPECT_NE(text.find("parameters"), std::string::npos) << text;
  EXPECT_NE(text.find("200"), std::string::npos) << text;
  EXPECT_EQ(text.find("gradients"), std::string::npos) << text;
  EXPECT_EQ(text.find("checkpoints"), std::string::npos) << text;
  const std::string saving =
      memory_table_text({}, {}, {.checkpoints = {.predicted_bytes = 7, .measured_bytes = 7}});
  EXPECT_NE(saving.find("checkpoints, on the host"), std::string::npos) << saving;
  EXPECT_EQ(saving.find("batches"), std::string::npos) << saving;
}

TEST(MemoryTable, every_purpose_of_host_memory_has_a_row) {
  const std::string text = memory_table_text({}, {},
                                             {.buffers = {.predicted_bytes = 1001},
                                              .checkpoints = {.predicted_bytes = 1002},
                                              .rebuild = {.predicted_bytes = 1003},
                                              .copies = {.predicted_bytes = 1004},
                                              .kept = {.predicted_bytes = 1005}});
  for (const char* bytes : {"1,001", "1,002", "1,003", "1,004", "1,005"}) {
    EXPECT_NE(text.find(bytes), std::string::npos) << bytes << "\n" << text;
  }
}

TEST(MemoryTable, the_line_of_the_start_has_the_largest_sum_and_its_parts) {
  const int64_t mib = int64_t{1} << 20;
  const std::string line = host_line({.checkpoint_bytes = 30 * mib,
                                      .rebuild_bytes = 20 * mib,
                                      .peer_bytes = 5 * mib,
                                      .kept_bytes = 4 * mib,
                                      .buffer_bytes = 2 * mib});
  const std::string sum = obs::bytes_text(41 * mib);
  EXPECT_NE(line.find("at most " + sum), std::string::npos) << line;
  for (const int64_t part : {30, 20, 5, 4, 2}) {
    EXPECT_NE(line.find(" " + obs::bytes_text(part * mib)), std::string::npos) << line;
  }
  EXPECT_EQ(host_line({.buffer_bytes = mib}).find("checkpoints"), std::string::npos);
}

}  // namespace
}  // namespace trireme::train
