// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl and TensorBoard files, byte by byte.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "obs/jsonl_sink.h"
#include "obs/scratch_folder_test.h"
#include "obs/tensorboard_sink.h"
#include "obs/tfevents.h"

namespace trireme::obs {
namespace {

std::string from_hex(std::string_view hex) {
  std::string bytes;
  std::string digits;
  for (const char c : hex) {
    if (c == ' ') continue;
    digits += c;
    if (digits.size() < 2) continue;
    bytes += static_cast<char>(std::stoi(digits, nullptr, 16));
    digits.clear();
  }
  return bytes;
}

double at_one() { return 1.0; }

TEST(Tfevents, checksum_of_the_standard_text) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
}

TEST(Tfevents, first_record_is_byte_exact) {
  EXPECT_EQ(framed(version_event(1.0)),
            from_hex("1800000000000000 a37f4b22 09000000000000f03f 1a0d "
                     "627261696e2e4576656e743a32 86bf577a"));
}

TEST(Tfevents, scalar_event_is_byte_exact) {
  const std::vector<Metric> metrics = {{"loss", 2.5}};
  EXPECT_EQ(scalar_event(1.0, 7, metrics),
            from_hex("09000000000000f03f 1007 2a0d 0a0b 0a046c6f7373 1500002040"));
}

TEST(Tfevents, long_steps_and_zeros) {
  const std::vector<Metric> metrics = {{"a", 0.0}};
  // Step 0 is left out, a value of 0 is not.
  EXPECT_EQ(scalar_event(1.0, 0, metrics),
            from_hex("09000000000000f03f 2a0a 0a08 0a0161 1500000000"));
  EXPECT_EQ(scalar_event(1.0, 300, metrics),
            from_hex("09000000000000f03f 10ac02 2a0a 0a08 0a0161 1500000000"));
}

TEST(Tfevents, session_start_is_byte_exact) {
  EXPECT_EQ(session_start_event(1.0, 81), from_hex("09000000000000f03f 1051 3a02 0801"));
}

TEST(TensorboardSink, a_resumed_run_purges_what_was_logged_after_its_checkpoint) {
  const ScratchFolder folder;
  TensorboardSink sink(folder / "tb", at_one);
  sink.resumed(80);
  EXPECT_EQ(content_of(sink.path()),
            framed(version_event(1.0)) + framed(session_start_event(1.0, 81)));
}

TEST(TensorboardSink, writes_version_and_steps_at_once) {
  const ScratchFolder folder;
  TensorboardSink sink(folder / "tb" / "deep", at_one);
  const std::string name = sink.path().filename().string();
  EXPECT_EQ(name.rfind("events.out.tfevents.1.", 0), 0U) << name;
  EXPECT_TRUE(name.ends_with("." + std::to_string(::getpid()) + ".0")) << name;
  const std::vector<Metric> metrics = {{"loss_metrics/global_avg_loss", 2.5}, {"mfu(%)", 40.25}};
  sink.step("train", 7, metrics);
  EXPECT_EQ(content_of(sink.path()),
            framed(version_event(1.0)) + framed(scalar_event(1.0, 7, metrics)));
}

TEST(TensorboardSink, a_folder_that_cannot_be_made_is_reported) {
  const ScratchFolder folder;
  std::ofstream(folder / "file") << "x";
  EXPECT_THROW(TensorboardSink(folder / "file" / "tb"), base::IoError);
}

TEST(JsonlSink, one_object_a_line_seen_at_once) {
  const ScratchFolder folder;
  JsonlSink sink(folder / "metrics.jsonl", 1, [] { return 1700000000.25; });
  const std::vector<Metric> metrics = {{"loss", 4.5}, {"grad_norm", 0.1}};
  sink.step("train", 1, metrics);
  EXPECT_EQ(content_of(folder / "metrics.jsonl"),
            "{\"kind\":\"train\",\"attempt\":1,\"step\":1,\"time\":1700000000.25,\"loss\":4.5,"
            "\"grad_norm\":0.1}\n");
  const std::vector<Metric> diverged = {{"loss", std::nan("")},
                                        {"grad_norm", std::numeric_limits<double>::infinity()}};
  sink.step("train", 2, diverged);
  const std::string text = content_of(folder / "metrics.jsonl");
  const auto second = base::Json::parse(text.substr(text.find('\n') + 1));
  EXPECT_TRUE(second["loss"].is_null() && second["grad_norm"].is_null());
}

TEST(JsonlSink, continues_a_file_and_drops_half_a_line) {
  const ScratchFolder folder;
  const auto file = folder / "metrics.jsonl";
  std::ofstream(file) << "{\"step\":1}\n{\"st";
  JsonlSink(file, 2, at_one).resumed(1);
  EXPECT_EQ(content_of(file),
            "{\"step\":1}\n{\"kind\":\"resume\",\"attempt\":2,\"step\":1,\"time\":1.0,"
            "\"resumed_from\":1}\n");
  std::ofstream(file) << "{\"st";
  JsonlSink(file, 1, at_one).step("train", 3, {});
  EXPECT_EQ(content_of(file), "{\"kind\":\"train\",\"attempt\":1,\"step\":3,\"time\":1.0}\n");
}

TEST(JsonlSink, a_full_disk_is_reported) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  JsonlSink sink("/dev/full", 1);
  try {
    sink.step("train", 1, {});
    FAIL() << "nothing was thrown";
  } catch (const base::IoError& error) {
    EXPECT_NE(std::string(error.what()).find("/dev/full: cannot be written"), std::string::npos);
  }
}

}  // namespace
}  // namespace trireme::obs
