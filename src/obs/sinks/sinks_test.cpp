// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl and TensorBoard files, byte by byte.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/system/descriptor.h"
#include "base/text/json.h"
#include "obs/scratch_folder_test.h"
#include "obs/sinks/jsonl_sink.h"
#include "obs/sinks/tensorboard_sink.h"
#include "obs/sinks/tfevents.h"

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
  // Step 0 is omitted, a value of 0 is not.
  EXPECT_EQ(scalar_event(1.0, 0, metrics),
            from_hex("09000000000000f03f 2a0a 0a08 0a0161 1500000000"));
  EXPECT_EQ(scalar_event(1.0, 300, metrics),
            from_hex("09000000000000f03f 10ac02 2a0a 0a08 0a0161 1500000000"));
}

TEST(Tfevents, session_start_is_byte_exact) {
  EXPECT_EQ(session_start_event(1.0, 81), from_hex("09000000000000f03f 1051 3a02 0801"));
}

TEST(TensorboardSink, a_resumed_run_purges_events_after_its_checkpoint) {
  const ScratchFolder folder;
  TensorboardSink sink(folder / "tb", at_one);
  sink.begin({.resumed_from = 80});
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

TEST(TensorboardSink, a_folder_that_cannot_be_created_is_reported) {
  const ScratchFolder folder;
  std::ofstream(folder / "file") << "x";
  EXPECT_THROW(TensorboardSink(folder / "file" / "tb"), base::IoError);
}

TEST(JsonlSink, one_object_per_line_visible_at_once) {
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
  EXPECT_EQ(second["loss"], "NaN");
  EXPECT_EQ(second["grad_norm"], "Infinity");
}

TEST(JsonlSink, steps_are_written_together_and_copied) {
  const ScratchFolder folder;
  std::string copied;
  JsonlSink sink(folder / "m", 2, at_one, [&](std::string_view lines) { copied += lines; });
  const std::vector<Metric> first = {{"loss", 0.1}}, second = {{"a \"name\"", -1e300}};
  const std::vector<TimedMetrics> steps = {{.step = 1, .time = 2.5, .metrics = first},
                                           {.step = 2, .time = 3, .metrics = second}};
  sink.steps("train", steps);
  EXPECT_EQ(
      copied,
      "{\"kind\":\"train\",\"attempt\":2,\"step\":1,\"time\":2.5,\"loss\":0.1}\n"
      "{\"kind\":\"train\",\"attempt\":2,\"step\":2,\"time\":3.0,\"a \\\"name\\\"\":-1e+300}\n");
  EXPECT_EQ(content_of(folder / "m"), copied);
}

TEST(JsonlSink, the_first_line_names_run_and_program) {
  const ScratchFolder folder;
  JsonlSink(folder / "m", 1, at_one).begin({.name = "kjv", .program = {"0.1.0", "0123"}});
  EXPECT_EQ(content_of(folder / "m"),
            "{\"kind\":\"start\",\"attempt\":1,\"step\":0,\"time\":1.0,\"name\":\"kjv\","
            "\"version\":\"0.1.0\",\"commit\":\"0123\"}\n");
}

TEST(JsonlSink, continues_a_file_and_drops_an_incomplete_line) {
  const ScratchFolder folder;
  const auto file = folder / "metrics.jsonl";
  std::ofstream(file) << "{\"step\":1}\n{\"st";
  JsonlSink(file, 2, at_one)
      .begin({.name = "kjv", .program = {"0.1.0", "0123"}, .resumed_from = 1});
  EXPECT_EQ(content_of(file),
            "{\"step\":1}\n{\"kind\":\"resume\",\"attempt\":2,\"step\":1,\"time\":1.0,"
            "\"name\":\"kjv\",\"version\":\"0.1.0\",\"commit\":\"0123\",\"resumed_from\":1}\n");
  std::ofstream(file) << "{\"st";
  JsonlSink(file, 1, at_one).step("train", 3, {});
  EXPECT_EQ(content_of(file), "{\"kind\":\"train\",\"attempt\":1,\"step\":3,\"time\":1.0}\n");
}

TEST(JsonlSink, megabytes_of_zeros_at_the_end_are_removed) {
  const ScratchFolder folder;
  const auto file = folder / "metrics.jsonl";
  // The line ends at the last byte, at the first byte and inside of a block.
  for (const size_t before : {0U, 65535U, 65536U, 100000U}) {
    const std::string line = std::string(before, 'x') + "\n";
    std::ofstream(file, std::ios::binary) << line << std::string(1 << 17, '\0');
    JsonlSink(file, 1, at_one).step("train", 2, {});
    EXPECT_TRUE(content_of(file) ==
                line + "{\"kind\":\"train\",\"attempt\":1,\"step\":2,\"time\":1.0}\n")
        << before;
  }
  std::ofstream(file, std::ios::binary) << std::string(1 << 17, '\0');
  JsonlSink(file, 1, at_one).step("train", 3, {});
  EXPECT_EQ(content_of(file), "{\"kind\":\"train\",\"attempt\":1,\"step\":3,\"time\":1.0}\n");
}

TEST(JsonlSink, a_pipe_is_refused) {
  const ScratchFolder folder;
  const auto pipe = folder / "metrics.jsonl";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(JsonlSink(pipe, 1, at_one), base::IoError);
  const base::Descriptor reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  ASSERT_GE(reader.value(), 0);
  EXPECT_THROW(JsonlSink(pipe, 1, at_one), base::IoError);
}

// Limits the size of files of this process, which has the effect of a full disk: an error after a
// part of the bytes.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(JsonlSink, a_full_disk_drops_lines_until_space_is_free) {
  const ScratchFolder folder;
  const auto file = folder / "metrics.jsonl";
  const std::string first = "{\"kind\":\"train\",\"attempt\":1,\"step\":1,\"time\":1.0}\n",
                    last = "{\"kind\":\"train\",\"attempt\":1,\"step\":4,\"time\":1.0}\n";
  JsonlSink sink(file, 1, at_one);
  sink.step("train", 1, {});
  {
    const FullDisk full(first.size() + 5);
    sink.step("train", 2, {});
    EXPECT_EQ(content_of(file), first);
    sink.step("train", 3, {});
  }
  EXPECT_EQ(sink.dropped(), 2);
  testing::internal::CaptureStderr();
  sink.step("train", 4, {});
  EXPECT_EQ(content_of(file), first + last);
  EXPECT_EQ(sink.dropped(), 2);
  sink.step("train", 5, {});
  const std::string message = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 1) << message;
  EXPECT_NE(message.find("metrics.jsonl: can be written again; 2 records were lost"),
            std::string::npos)
      << message;
}

TEST(JsonlSink, lines_lost_at_the_end_are_counted) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  testing::internal::CaptureStderr();
  {
    JsonlSink sink("/dev/full", 1);
    for (const int64_t step : {1, 2, 3}) sink.step("train", step, {});
  }
  const std::string message = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 2) << message;
  EXPECT_NE(message.find("/dev/full: cannot be written: No space left on device"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("/dev/full: the last 3 records could not be written"), std::string::npos)
      << message;
}

TEST(TensorboardSink, a_full_disk_drops_complete_events) {
  const ScratchFolder folder;
  TensorboardSink sink(folder / "tb", at_one);
  const std::vector<Metric> metrics = {{"loss", 2.5}};
  const std::string version = framed(version_event(1.0));
  {
    const FullDisk full(version.size() + 5);
    sink.step("train", 1, metrics);
    EXPECT_EQ(content_of(sink.path()), version);
  }
  sink.step("train", 2, metrics);
  EXPECT_EQ(content_of(sink.path()), version + framed(scalar_event(1.0, 2, metrics)));
  EXPECT_EQ(sink.dropped(), 1);
}

}  // namespace
}  // namespace trireme::obs
