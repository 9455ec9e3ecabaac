// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "device/host_memory.h"
#include "device/host_registration.h"
#include "device/memory.h"

namespace trireme::device {
namespace {

// Devices need a reference to a table; these tests do not call it.
const kernels::Kernels& no_kernels() {
  alignas(64) static const std::byte memory[512] = {};
  return *reinterpret_cast<const kernels::Kernels*>(memory);
}

CpuDevice::Options options(StreamMode mode, int64_t budget_bytes = 1 << 20) {
  return {.threads = 1, .streams = mode, .budget_bytes = budget_bytes};
}

TEST(LedgerTest, counts_live_bytes_and_keeps_the_peak) {
  CpuDevice device(no_kernels(), options(StreamMode::inline_calls));
  {
    const Buffer a(device, Mem::params, 512, "a");
    const Buffer b(device, Mem::stash, 256, "b");
    EXPECT_EQ(device.ledger().live(Mem::params), 512);
    EXPECT_EQ(device.ledger().live(), 768);
  }
  const Buffer c(device, Mem::params, 256, "c");
  EXPECT_EQ(device.ledger().live(), 256);
  EXPECT_EQ(device.ledger().peak(Mem::params), 512);
  EXPECT_EQ(device.ledger().peak(), 768);
  EXPECT_EQ(device.ledger().reservations(), 3);
}

TEST(LedgerTest, host_ledger_counts_host_buffers_also_after_the_device_is_frozen) {
  CpuDevice device(no_kernels(), options(StreamMode::inline_calls, 64));
  device.ledger().freeze();
  {
    HostBuffer a = device.make_host_buffer(Mem::checkpoint, 4096, "a");
    const HostBuffer none = device.make_host_buffer(Mem::staging, 0, "none");
    const HostBuffer moved = std::move(a);
    EXPECT_EQ(moved.bytes(), 4096);
    EXPECT_EQ(moved.data()[4095], std::byte{0});
    EXPECT_EQ(device.host_ledger().live(Mem::checkpoint), 4096);
  }
  EXPECT_EQ(device.host_ledger().live(), 0);
  EXPECT_EQ(device.host_ledger().peak(Mem::checkpoint), 4096);
  EXPECT_EQ(device.ledger().reservations(), 0);
}

TEST(LedgerTest, refuses_a_request_beyond_the_budget_and_does_not_count_it) {
  CpuDevice device(no_kernels(), options(StreamMode::inline_calls, 1024));
  const Buffer a(device, Mem::params, 1000, "a");
  try {
    const Buffer b(device, Mem::grads, 25, "too much");
    FAIL() << "was allowed";
  } catch (const base::OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("'too much' needs 25 bytes of grads"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(device.ledger().live(), 1000);
}

TEST(LedgerDeathTest, an_allocation_after_freeze_is_a_bug) {
  CpuDevice device(no_kernels(), options(StreamMode::inline_calls));
  device.ledger().freeze();
  EXPECT_DEATH(Buffer(device, Mem::scratch, 256, "late"), "after the ledger was frozen");
}

TEST(ArenaTest, measuring_and_allocating_agree) {
  CpuDevice device(no_kernels(), options(StreamMode::inline_calls));
  Arena measured = Arena::measuring();
  Arena real(Buffer(device, Mem::scratch, 4096, "arena"));
  for (Arena* arena : {&measured, &real}) {
    arena->take({{3, 5}, base::DType::f32});
    {
      const Arena::Mark mark(*arena);
      arena->take({{100}, base::DType::f32});
      arena->take({{100}, base::DType::bf16});
    }
    EXPECT_EQ(arena->used(), 256);
    arena->take({{10}, base::DType::i64});
  }
  EXPECT_EQ(measured.high_water(), 256 + 512 + 256);
  EXPECT_EQ(real.high_water(), measured.high_water());
}

TEST(ArenaDeathTest, taking_more_than_the_buffer_has_is_a_bug) {
  CpuDevice device(no_kernels(), options(StreamMode::inline_calls));
  Arena arena(Buffer(device, Mem::scratch, 256, "arena"));
  arena.take({{64}, base::DType::f32});
  EXPECT_DEATH(arena.take({{1}, base::DType::f32}), "more requested for");
}

TEST(TensorTest, views_keep_their_address_and_stride) {
  std::vector<float> data(6 * 10);
  const Tensor whole =
      view_of(reinterpret_cast<std::byte*>(data.data()), {{6, 10}, base::DType::f32});
  const Tensor heads = whole.slice_heads(2, 2, 3);
  EXPECT_EQ(heads.shape, (base::Shape{6, 2, 3}));
  EXPECT_EQ(heads.row_stride, 10);
  EXPECT_FALSE(heads.is_contiguous());
  EXPECT_EQ(heads.slice_rows(4, 2).data, reinterpret_cast<std::byte*>(data.data() + 42));
  EXPECT_EQ(whole.slice_rows(1, 2).reshape({4, 5}).row_stride, 5);
  EXPECT_FALSE(static_cast<bool>(Tensor{}));
}

// Work of one stream runs in order; another stream sees it only through an event.
TEST(StreamTest, events_order_streams) {
  for (const StreamMode mode : {StreamMode::inline_calls, StreamMode::worker_threads}) {
    CpuDevice device(no_kernels(), options(mode));
    const auto a = device.make_stream("a"), b = device.make_stream("b");
    auto& first = dynamic_cast<CpuStream&>(*a);
    auto& second = dynamic_cast<CpuStream&>(*b);
    for (int round = 0; round < 50; ++round) {
      int value = 0, seen = -1;
      first.enqueue([&value] {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        value = 1;
      });
      first.enqueue([&value] { value *= 10; });
      second.wait(first.record());
      second.enqueue([&value, &seen] { seen = value; });
      second.synchronize();
      EXPECT_EQ(seen, 10);
    }
  }
}

TEST(StreamTest, inline_and_side_streams_wait_for_each_other) {
  CpuDevice device(no_kernels(), options(StreamMode::inline_calls));
  const auto inline_stream = device.make_stream("compute");
  const auto side_stream = device.make_side_stream("messages");
  auto& compute = dynamic_cast<CpuStream&>(*inline_stream);
  auto& messages = dynamic_cast<CpuStream&>(*side_stream);
  for (int round = 0; round < 50; ++round) {
    int value = 0, seen = -1;
    std::atomic<bool> is_open = false;
    messages.enqueue([&] {
      while (!is_open) std::this_thread::yield();
      value = 1;
    });
    is_open = true;  // the host reaches this line while the side stream is blocked
    compute.wait(messages.record());
    compute.enqueue([&] { value += 10; });
    messages.wait(compute.record());
    messages.enqueue([&] { seen = value; });
    messages.synchronize();
    EXPECT_EQ(seen, 11);
  }
}

TEST(StreamTest, an_inline_wait_throws_the_failure_of_a_side_stream) {
  CpuDevice device(no_kernels(), options(StreamMode::inline_calls));
  const auto compute = device.make_stream("compute");
  const auto messages = device.make_side_stream("messages");
  const Event before = messages->record();
  dynamic_cast<CpuStream&>(*messages).enqueue([] { throw base::IoError("lost"); });
  const Event after = messages->record();
  compute->wait(before);
  EXPECT_THROW(compute->wait(after), base::IoError);
  compute->synchronize();  // it still works
}

TEST(StreamTest, copies_are_queued_like_kernels) {
  CpuDevice device(no_kernels(), options(StreamMode::worker_threads));
  Arena arena(Buffer(device, Mem::staging, 256, "copies"));
  const Tensor tensor = arena.take({{4}, base::DType::i32});
  const auto stream = device.make_stream("copy");
  const std::vector<int32_t> in = {1, 2, 3, 4};
  std::vector<int32_t> out(4);
  stream->upload(tensor, std::as_bytes(std::span(in)));
  stream->download(std::as_writable_bytes(std::span(out)), tensor);
  stream->synchronize();
  EXPECT_EQ(in, out);
}

TEST(StreamTest, queued_work_is_done_before_the_stream_is_destroyed) {
  CpuDevice device(no_kernels(), options(StreamMode::worker_threads));
  std::atomic<int> done{0};
  {
    const auto stream = device.make_stream("s");
    for (int i = 0; i < 20; ++i) dynamic_cast<CpuStream&>(*stream).enqueue([&done] { ++done; });
  }
  EXPECT_EQ(done, 20);
}

TEST(StreamTest, a_worker_that_failed_skips_later_work_and_throws_every_time) {
  CpuDevice device(no_kernels(), options(StreamMode::worker_threads));
  const auto stream = device.make_stream("s");
  auto& queue = dynamic_cast<CpuStream&>(*stream);
  int done = 0;
  queue.enqueue([&done] { ++done; });
  const Event before = stream->record();
  queue.enqueue([] { throw base::IoError("first"); });
  queue.enqueue([] { throw base::IoError("second"); });
  queue.enqueue([&done] { ++done; });
  const Event after = stream->record();
  for (int i = 0; i < 2; ++i) {
    try {
      stream->synchronize();
      FAIL() << "did not throw";
    } catch (const base::IoError& error) {
      EXPECT_STREQ(error.what(), "first");
    }
  }
  EXPECT_EQ(done, 1);

  // A stream that waits for a point after the failure also fails; one that waits for an earlier
  // point does not.
  const auto healthy = device.make_stream("healthy");
  healthy->wait(before);
  dynamic_cast<CpuStream&>(*healthy).enqueue([&done] { ++done; });
  healthy->synchronize();
  EXPECT_EQ(done, 2);
  healthy->wait(after);
  dynamic_cast<CpuStream&>(*healthy).enqueue([&done] { ++done; });
  EXPECT_THROW(healthy->synchronize(), base::IoError);
  EXPECT_EQ(done, 2);
}

TEST(StreamTest, an_event_is_reached_when_the_work_before_it_is_done) {
  CpuDevice device(no_kernels(), options(StreamMode::worker_threads));
  const auto stream = device.make_stream("a");
  EXPECT_TRUE(stream->is_reached({}));
  std::promise<void> go;
  stream->call_host([ready = go.get_future().share()] { ready.wait(); });
  const Event event = stream->record();
  EXPECT_FALSE(stream->is_reached(event));
  go.set_value();
  stream->synchronize();
  EXPECT_TRUE(stream->is_reached(event));
  // The result of work that was skipped must not be read.
  stream->call_host([] { throw base::IoError("broken"); });
  const Event after = stream->record();
  EXPECT_THROW(stream->synchronize(), base::IoError);
  EXPECT_THROW(stream->is_reached(after), base::IoError);
  EXPECT_TRUE(stream->is_reached(event));
}

TEST(StreamTest, inline_work_throws_at_the_call_and_the_stream_still_works) {
  CpuDevice device(no_kernels(), options(StreamMode::inline_calls));
  const auto stream = device.make_stream("s");
  auto& queue = dynamic_cast<CpuStream&>(*stream);
  int done = 0;
  EXPECT_THROW(queue.enqueue([] { throw base::IoError("now"); }), base::IoError);
  queue.enqueue([&done] { ++done; });
  stream->synchronize();
  EXPECT_EQ(done, 1);
}

// ---- host memory

TEST(GraphTest, every_launch_runs_the_work_of_all_streams_in_the_order_of_events) {
  CpuDevice device(no_kernels(), options(StreamMode::worker_threads));
  const auto main = device.make_stream("main"), side = device.make_stream("side");
  auto& main_queue = dynamic_cast<CpuStream&>(*main);
  auto& side_queue = dynamic_cast<CpuStream&>(*side);
  int number = 1, counted = 0;
  main_queue.enqueue([&] { number = 2; });
  const Event before = main->record();
  const std::vector<Stream*> others = {side.get()};
  Event inside;
  const auto graph = main->capture(others, [&] {
    EXPECT_TRUE(main->is_capturing());
    EXPECT_TRUE(side->is_capturing());
    side->wait(before);
    main_queue.enqueue([&] { number *= 3; });
    side->wait(main->record());
    side_queue.enqueue([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      number += 1;
    });
    inside = side->record();
    main->wait(inside);
    main_queue.enqueue([&] { number *= 10; });
    side->at_launch([&] { ++counted; });
  });
  ASSERT_NE(graph, nullptr);
  EXPECT_FALSE(main->is_capturing());
  main->synchronize();
  EXPECT_EQ(number, 2);  // captured work does not run
  for (int expected : {70, 2110, 63310}) {
    main->launch(*graph);
    side->wait(inside);  // as reached after the launch
    main->synchronize();
    EXPECT_EQ(number, expected);
  }
  side->synchronize();
  EXPECT_EQ(counted, 2);  // the capture has counted for the first launch
}

TEST(GraphTest, inline_streams_cannot_capture) {
  CpuDevice device(no_kernels(), options(StreamMode::inline_calls));
  const auto stream = device.make_stream("main");
  EXPECT_EQ(stream->capture([] { FAIL() << "was called"; }), nullptr);
  EXPECT_FALSE(stream->is_capturing());
}

class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest() {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ / "cgroup");
    files_ = {root_ / "meminfo", {root_ / "self", root_ / "cgroup"}};
    write("meminfo", "MemTotal:       8000 kB\nMemFree:   1 kB\nMemAvailable:    4000 kB\n");
  }
  ~HostMemoryTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  int64_t available() const { return host_memory_available(files_); }

  std::filesystem::path root_ = std::filesystem::temp_directory_path() /
                                ("trireme_host_memory_" + std::to_string(::getpid()));
  HostMemoryFiles files_;
};

TEST_F(HostMemoryTest, is_the_memory_available_on_the_machine) {
  EXPECT_EQ(available(), 4000 * 1024);
  std::filesystem::remove(root_ / "meminfo");
  EXPECT_EQ(available(), std::numeric_limits<int64_t>::max());
}

TEST_F(HostMemoryTest, a_group_of_version_2_limits_it_without_its_file_cache) {
  write("self", "0::/\n");
  write("cgroup/memory.max", "max\n");
  write("cgroup/memory.current", "123\n");
  EXPECT_EQ(available(), 4000 * 1024);
  write("cgroup/memory.max", "1000000\n");
  write("cgroup/memory.current", "900000\n");
  EXPECT_EQ(available(), 100000);
  write("cgroup/memory.stat", "anon 5\ninactive_file 500000\nactive_file 9\n");
  EXPECT_EQ(available(), 600000);
  write("cgroup/memory.current", "1600000\n");
  EXPECT_EQ(available(), 0);
}

TEST_F(HostMemoryTest, outer_groups_limit_inner_ones) {
  write("self", "0::/job/step\n");
  write("cgroup/job/memory.max", "3000\n");
  write("cgroup/job/memory.current", "1000\n");
  write("cgroup/job/step/memory.max", "5000\n");
  write("cgroup/job/step/memory.current", "500\n");
  EXPECT_EQ(available(), 2000);
}

TEST_F(HostMemoryTest, a_group_of_version_1_limits_it) {
  write("self", "12:cpu,cpuacct:/x\n9:memory:/job\n0::/elsewhere\n");
  write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("cgroup/memory/memory.usage_in_bytes", "77\n");
  EXPECT_EQ(available(), 4000 * 1024);
  write("cgroup/memory/job/memory.limit_in_bytes", "7000\n");
  write("cgroup/memory/job/memory.usage_in_bytes", "3000\n");
  write("cgroup/memory/job/memory.stat", "total_inactive_file 1000\n");
  EXPECT_EQ(available(), 5000);
}

TEST_F(HostMemoryTest, of_this_machine_is_not_zero) { EXPECT_GT(host_memory_available(), 0); }

class CallLog final : public CallObserver {
 public:
  void begins(Stream& stream, const StreamCall& call) override { add("begins", stream, call); }
  void ends(Stream& stream, const StreamCall& call) override { add("ends", stream, call); }
  std::vector<std::string> lines;

 private:
  void add(const char* what, Stream& stream, const StreamCall& call) {
    lines.push_back(fmt::format("{} {} {} of '{}', {} bytes", stream.name(), what, call.op, call.of,
                                call.bytes));
  }
};

TEST(CallObserverTest, is_notified_of_waits_and_copies_until_it_is_removed) {
  CpuDevice device(no_kernels(), options(StreamMode::worker_threads));
  const auto first = device.make_stream("first"), second = device.make_stream("second");
  const Buffer memory(device, Mem::staging, 256, "memory");
  const Tensor tensor = view_of(memory.data(), {{8}, base::DType::u8});
  const std::vector<std::byte> bytes(8);
  CallLog log;
  second->add_call_observer(log);
  second->wait(first->record());
  second->wait({});  // has been reached: nothing is queued
  second->upload(tensor, bytes);
  first->upload(tensor, bytes);
  second->remove_call_observer(log);
  second->upload(tensor, bytes);
  first->synchronize();
  second->synchronize();
  EXPECT_EQ(log.lines,
            (std::vector<std::string>{
                "second begins wait of 'first', 0 bytes", "second ends wait of 'first', 0 bytes",
                "second begins upload of '', 8 bytes", "second ends upload of '', 8 bytes"}));
}

// Notes what is registered, and refuses what lies beyond `room` pieces.
class Registering final : public CpuDevice {
 public:
  explicit Registering(size_t room_for)
      : CpuDevice(no_kernels(), options(StreamMode::inline_calls)), room(room_for) {}
  bool registers_host_memory() const override { return true; }

  size_t room;
  std::vector<std::span<std::byte>> pieces;
  std::atomic<bool>* stopped_by_first = nullptr;

 private:
  void register_host(std::span<std::byte> memory) override {
    if (pieces.size() == room) throw base::OutOfMemory("no room");
    pieces.push_back(memory);
    if (stopped_by_first != nullptr) *stopped_by_first = true;
  }
  void unregister_host(std::byte* memory) noexcept override {
    std::erase_if(pieces, [memory](const auto& piece) { return piece.data() == memory; });
  }
};

// Memory that nothing touches.
std::span<std::byte> untouched(int64_t bytes) {
  return {reinterpret_cast<std::byte*>(uintptr_t{1} << 40), static_cast<size_t>(bytes)};
}

TEST(HostRegistrationTest, memory_is_registered_in_pieces) {
  constexpr int64_t piece = HostRegistration::piece_bytes;
  Registering device(100);
  const std::atomic<bool> stop = false;
  {
    HostRegistration registration(device);
    const std::span<std::byte> memory = untouched(2 * piece + 4096);
    EXPECT_TRUE(registration.add(memory, stop));
    ASSERT_EQ(device.pieces.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(device.pieces[i].data(), memory.data() + static_cast<int64_t>(i) * piece);
      EXPECT_EQ(std::ssize(device.pieces[i]), i < 2 ? piece : 4096);
    }
    EXPECT_TRUE(registration.add(untouched(0), stop));
    EXPECT_EQ(device.pieces.size(), 3U);
  }
  EXPECT_TRUE(device.pieces.empty());
}

TEST(HostRegistrationTest, it_ends_between_pieces) {
  constexpr int64_t piece = HostRegistration::piece_bytes;
  std::atomic<bool> stop = false;
  Registering device(100);
  device.stopped_by_first = &stop;
  HostRegistration registration(device);
  EXPECT_FALSE(registration.add(untouched(5 * piece), stop));
  EXPECT_EQ(device.pieces.size(), 1U);
  registration.clear();
  EXPECT_TRUE(device.pieces.empty());
}

TEST(HostRegistrationTest, a_piece_that_is_refused_leaves_those_before) {
  constexpr int64_t piece = HostRegistration::piece_bytes;
  const std::atomic<bool> stop = false;
  Registering device(2);
  {
    HostRegistration registration(device);
    EXPECT_THROW((void)registration.add(untouched(5 * piece), stop), base::OutOfMemory);
    EXPECT_EQ(device.pieces.size(), 2U);
  }
  EXPECT_TRUE(device.pieces.empty());
  CpuDevice cpu(no_kernels(), options(StreamMode::inline_calls));
  HostRegistration of_cpu(cpu);
  EXPECT_TRUE(of_cpu.add(untouched(5 * piece), stop));
}

TEST(CallObserverTest, an_event_keeps_the_name_of_a_stream_that_is_gone) {
  CpuDevice device(no_kernels(), options(StreamMode::inline_calls));
  const Event event = device.make_stream("gone")->record_timed();
  EXPECT_EQ(event.source(), "gone");
  EXPECT_EQ(Event{}.source(), "");
}

}  // namespace
}  // namespace trireme::device
