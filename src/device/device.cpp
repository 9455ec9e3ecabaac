// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/system/rank_activity.h"

namespace trireme::device {

namespace {

StreamCall copy_call(const char* op, int64_t bytes) {
  return {.kind = StreamCall::Kind::copy, .op = op, .bytes = bytes};
}

}  // namespace

void Stream::wait(const Event& event) {
  if (event.state() == nullptr) return;
  observed({.kind = StreamCall::Kind::wait, .op = "wait", .of = event.source()},
           [&] { do_wait(event); });
}

void Stream::upload(Tensor to, std::span<const std::byte> from) {
  TRIREME_CHECK(to.is_contiguous() && to.bytes() == static_cast<int64_t>(from.size()),
                "upload of {} bytes to a tensor of {}", from.size(), to.bytes());
  base::RankActivity::current().set_op("upload", to.bytes());
  observed(copy_call("upload", to.bytes()), [&] { copy(to.data, from.data(), to.bytes()); });
}

void Stream::download(std::span<std::byte> to, ConstTensor from) {
  TRIREME_CHECK(from.is_contiguous() && from.bytes() == static_cast<int64_t>(to.size()),
                "download to {} bytes from a tensor of {}", to.size(), from.bytes());
  base::RankActivity::current().set_op("download", from.bytes());
  observed(copy_call("download", from.bytes()), [&] { copy(to.data(), from.data, from.bytes()); });
}

void Stream::copy_bytes(Tensor to, ConstTensor from) {
  TRIREME_CHECK(to.is_contiguous() && from.is_contiguous() && to.bytes() == from.bytes(),
                "copy of {} bytes to {}", from.bytes(), to.bytes());
  base::RankActivity::current().set_op("copy_bytes", from.bytes());
  observed(copy_call("copy", from.bytes()), [&] { copy(to.data, from.data, from.bytes()); });
}

std::unique_ptr<Graph> Stream::capture(std::span<Stream* const> others,
                                       const std::function<void()>& queue_work) {
  std::vector<Stream*> all(others.begin(), others.end());
  all.push_back(this);
  std::vector<std::function<void()>> host_work;
  const auto set = [&all](std::vector<std::function<void()>>* to) {
    for (Stream* stream : all) stream->host_work_ = to;
  };
  struct Reset {
    const decltype(set)& set_all;
    ~Reset() { set_all(nullptr); }
  } const reset{set};
  set(&host_work);
  std::unique_ptr<Graph> graph = do_capture(others, queue_work);
  if (graph) graph->host_work_ = std::move(host_work);
  return graph;
}

void Stream::launch(Graph& graph) {
  if (std::exchange(graph.was_launched_, true)) {
    for (const auto& work : graph.host_work_) work();
  }
  base::RankActivity::current().set_op("graph");
  do_launch(graph);
}

void Stream::at_launch(std::function<void()> work) {
  TRIREME_CHECK(is_capturing(), "stream '{}' is not being captured", name());
  host_work_->push_back(std::move(work));
}

void Stream::do_launch(const Graph& /*graph*/) {
  TRIREME_CHECK(false, "device '{}' cannot capture graphs", device_.name());
}

void Stream::call_host(std::function<void()> /*work*/) {
  TRIREME_CHECK(false, "stream '{}' of device '{}' cannot call the host", name(), device_.name());
}

HostBuffer Device::make_host_buffer(Mem mem, int64_t bytes, std::string_view what) {
  host_ledger_.reserve(mem, bytes, what);
  HostBuffer::Memory memory;
  try {
    memory = allocate_host(bytes);
  } catch (...) {
    host_ledger_.release(mem, bytes);
    throw;
  }
  auto release = memory.get_deleter();
  return {{memory.release(),
           [this, mem, bytes, release = std::move(release)](std::byte* data) {
             release(data);
             host_ledger_.release(mem, bytes);
           }},
          bytes};
}

HostBuffer::Memory Device::allocate_host(int64_t bytes) {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  const auto lines = static_cast<size_t>(bytes) / sizeof(Line) + 1;
  // Owned by the release function.
  auto memory = std::make_shared<std::vector<Line>>(lines);
  return {memory->data()->bytes, [memory](std::byte*) {}};
}

}  // namespace trireme::device
