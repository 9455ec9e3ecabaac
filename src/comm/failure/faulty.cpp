// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/faulty.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/float16.h"
#include "comm/tensors.h"

namespace trireme::comm {
namespace {

using What = Fault::What;

void enqueue(Stream& stream, std::function<void()> work) {
  TRIREME_CHECK(stream.host_calls() != Stream::HostCalls::none,
                "faults need a CPU stream, which '{}' is not", stream.name());
  stream.call_host(std::move(work));
}

void scale(std::byte* data, int64_t bytes, base::DType dtype, float factor) {
  if (dtype == base::DType::f32) {
    auto* values = reinterpret_cast<float*>(data);
    for (int64_t i = 0; i < bytes / 4; ++i) values[i] *= factor;
  } else if (dtype == base::DType::bf16) {
    auto* values = reinterpret_cast<base::Bf16*>(data);
    for (int64_t i = 0; i < bytes / 2; ++i) {
      values[i] = base::Bf16(static_cast<float>(values[i]) * factor);
    }
  } else if (dtype == base::DType::f16) {
    auto* values = reinterpret_cast<base::F16*>(data);
    for (int64_t i = 0; i < bytes / 2; ++i) {
      values[i] = base::F16(static_cast<float>(values[i]) * factor);
    }
  }
}

void zero_all_but(std::byte* data, int64_t bytes, int64_t chunks, int64_t own) {
  const int64_t chunk_bytes = bytes / chunks;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk == own) continue;
    std::memset(data + chunk * chunk_bytes, 0, static_cast<size_t>(chunk_bytes));
  }
}

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

}  // namespace

std::string_view name_of(What what) {
  switch (what) {
    case What::drop:
      return "drop";
    case What::doubled:
      return "doubled";
    case What::scale:
      return "scale";
    case What::wrong_order:
      return "wrong_order";
    case What::stale:
      return "stale";
    case What::skip_wait:
      return "skip_wait";
    case What::absent:
      return "absent";
    case What::resent:
      return "resent";
    case What::swapped:
      return "swapped";
    case What::silent_end:
      return "silent_end";
    case What::unflagged:
      return "unflagged";
    case What::delay:
      return "delay";
  }
  return "unknown";
}

FaultyCommunicator::FaultyCommunicator(std::unique_ptr<Communicator> inner,
                                       std::vector<Fault> faults)
    : Communicator(inner->rank(), inner->world_ranks(), inner->options(), inner->recorder_),
      inner_(std::move(inner)),
      faults_(std::move(faults)) {}

bool FaultyCommunicator::is_planted(What what) const {
  return std::any_of(faults_.begin(), faults_.end(), [&](const Fault& fault) {
    return fault.what == what && fault.op == call().op &&
           (fault.group.empty() || fault.group == name());
  });
}

bool FaultyCommunicator::has(What what) const {
  return std::ranges::find(faults_, what, &Fault::what) != faults_.end();
}

void FaultyCommunicator::forward(const std::function<void()>& inner) {
  const bool was_aborted = inner_->abort_flags() != nullptr && inner_->abort_flags()->value() > 0;
  try {
    inner();
  } catch (const base::CommAborted&) {
    if (was_aborted || !has(What::silent_end)) throw;
    ++happened_;
  }
}

const Fault* FaultyCommunicator::due() {
  if (call().record_id != seen_record_) {
    seen_record_ = call().record_id;
    ++calls_[call().op];
  }
  const int64_t number = calls_[call().op] - 1;
  const int here = world_ranks()[static_cast<size_t>(rank())];
  const auto found = std::find_if(faults_.begin(), faults_.end(), [&](const Fault& fault) {
    return fault.op == call().op && (fault.group.empty() || fault.group == name()) &&
           (fault.call < 0 || fault.call == number) &&
           (fault.world_rank < 0 || fault.world_rank == here);
  });
  return found == faults_.end() ? nullptr : &*found;
}

void FaultyCommunicator::with_fault(Stream& stream, const Step& step,
                                    const std::function<void()>& inner) {
  inner_->call_ = call_;  // the back end uses this call in messages and records
  const Fault* fault = due();
  const int64_t bytes = step.out.bytes();
  std::byte* out = step.out.data;
  std::shared_ptr<Bytes> before;
  if (fault != nullptr) {
    ++happened_;
    if (fault->what == What::delay) {
      const auto seconds = fault->seconds + fault->seconds_per_byte * static_cast<double>(bytes);
      enqueue(stream, [seconds] { sleep(seconds); });
    } else if (fault->what == What::skip_wait) {
      before = std::make_shared<Bytes>(bytes);
      enqueue(stream, [=] { std::memcpy(before->data(), out, before->size()); });
    }
  }
  if (fault == nullptr || fault->what != What::absent) forward(inner);
  if (is_planted(What::stale)) {
    auto& last = last_[{call().op, bytes}];
    if (last == nullptr) last = std::make_shared<Bytes>(bytes);
    const bool is_stale = fault != nullptr && fault->what == What::stale;
    enqueue(stream, [last, out, is_stale] {
      const Bytes now(out, out + last->size());
      if (is_stale) std::memcpy(out, last->data(), last->size());
      *last = now;
    });
  }
  if (fault == nullptr) return;
  const base::DType dtype = call().dtype;
  switch (fault->what) {
    case What::drop:
      enqueue(stream, [=] { zero_all_but(out, bytes, step.chunks, step.own); });
      break;
    case What::doubled:
      enqueue(stream, [=] { scale(out, bytes, dtype, 2); });
      break;
    case What::scale:
      enqueue(stream, [=, factor = fault->factor] { scale(out, bytes, dtype, factor); });
      break;
    case What::wrong_order:
      enqueue(stream, [=] { std::rotate(out, out + bytes / step.chunks, out + bytes); });
      break;
    case What::skip_wait:
      enqueue(stream, [=] { std::memcpy(out, before->data(), before->size()); });
      break;
    case What::resent:
      inner();
      traffic_.bytes +=
          std::string_view(call().op) == "shift" ? bytes : bytes / step.chunks * (step.chunks - 1);
      break;
    case What::stale:
    case What::absent:
    case What::swapped:
    case What::silent_end:
    case What::unflagged:
    case What::delay:
      break;
  }
}

// In an all_reduce, faults of values are injected in do_exchange(), wrong order here.
void FaultyCommunicator::do_all_gather(Stream& stream, Tensor out, ConstTensor in) {
  const auto gather = [&] { inner_->do_all_gather(stream, out, in); };
  const bool is_gather = std::string_view(call().op) == "all_gather";
  const Fault* fault = due();
  if (is_gather || (fault != nullptr && fault->what == What::wrong_order)) {
    with_fault(stream, {out, size(), rank()}, gather);
  } else {
    inner_->call_ = call_;
    forward(gather);
  }
}

void FaultyCommunicator::do_exchange(Stream& stream, Tensor out, const std::byte* in,
                                     int64_t stride_bytes, int64_t chunk_bytes,
                                     std::span<const int> from) {
  const auto own = std::find(from.begin(), from.end(), rank());
  const Step step = {out, static_cast<int64_t>(from.size()),
                     own == from.end() ? -1 : own - from.begin()};
  const Fault* fault = due();
  const bool is_shifted = fault != nullptr && fault->what == What::wrong_order;
  inner_->call_ = call_;
  if (is_shifted &&
      std::string_view(call().op) == "all_reduce") {  // injected in its do_all_gather()
    inner_->do_exchange(stream, out, in, stride_bytes, chunk_bytes, from);
    return;
  }
  if (!is_shifted) {
    with_fault(stream, step,
               [&] { inner_->do_exchange(stream, out, in, stride_bytes, chunk_bytes, from); });
    return;
  }
  // Every rank receives the chunk of the rank after it.
  ++happened_;
  auto staged = std::make_shared<Bytes>(static_cast<size_t>(size() * chunk_bytes));
  if (in != nullptr) {
    enqueue(stream, [staged, in, stride_bytes, chunk_bytes, ranks = size()] {
      for (int rank = 0; rank < ranks; ++rank) {
        std::memcpy(staged->data() + rank * chunk_bytes, in + (rank + 1) % ranks * stride_bytes,
                    static_cast<size_t>(chunk_bytes));
      }
    });
  }
  inner_->do_exchange(stream, out, in == nullptr ? nullptr : staged->data(), chunk_bytes,
                      chunk_bytes, from);
  enqueue(stream, [staged] {});  // keeps the memory until all ranks have read it
}

void FaultyCommunicator::do_transfer(Stream& stream, std::span<const Outgoing> sends,
                                     std::span<const Incoming> receives) {
  inner_->call_ = call_;
  inner_->do_transfer(stream, sends, receives);
}

void FaultyCommunicator::do_broadcast(Stream& stream, Tensor inout, int root) {
  with_fault(stream, {inout, 1, rank() == root ? 0 : -1},
             [&] { inner_->do_broadcast(stream, inout, root); });
}

void FaultyCommunicator::do_shift(Stream& stream, Tensor out, ConstTensor in) {
  with_fault(stream, {out, 1, -1}, [&] { inner_->do_shift(stream, out, in); });
}

void FaultyCommunicator::do_send(Stream& stream, ConstTensor in, int to) {
  inner_->call_ = call_;
  inner_->do_send(stream, in, to);
}

std::unique_ptr<Sent> FaultyCommunicator::do_start_send(Stream& stream, ConstTensor in, int to) {
  inner_->call_ = call_;
  return inner_->do_start_send(stream, in, to);
}

void FaultyCommunicator::do_recv(Stream& stream, Tensor out, int from) {
  const Fault* fault = due();
  if (held_) {
    enqueue(stream, [held = std::exchange(held_, nullptr), data = out.data] {
      std::memcpy(data, held->data(), held->size());
    });
  } else if (fault != nullptr && fault->what == What::swapped) {
    ++happened_;
    held_ = std::make_shared<Bytes>(static_cast<size_t>(out.bytes()));
    Tensor first = out;
    first.data = held_->data();
    inner_->call_ = call_;
    inner_->do_recv(stream, first, from);
    ++inner_->call_.sequence;
    inner_->do_recv(stream, out, from);
  } else {
    with_fault(stream, {out, 1, -1}, [&] { inner_->do_recv(stream, out, from); });
  }
}

void FaultyCommunicator::do_barrier() {
  inner_->call_ = call_;
  inner_->do_barrier();
}

std::unique_ptr<Communicator> FaultyCommunicator::do_split(int color, int key, Options options) {
  inner_->call_ = call_;
  return std::make_unique<FaultyCommunicator>(inner_->do_split(color, key, std::move(options)),
                                              faults_);
}

bool FaultyCommunicator::do_all_reduce(Stream& stream, Tensor inout, Reduce reduce) {
  inner_->call_ = call_;
  return inner_->do_all_reduce(stream, inout, reduce);
}

bool FaultyCommunicator::do_reduce_scatter(Stream& stream, Tensor out, ConstTensor in) {
  inner_->call_ = call_;
  return inner_->do_reduce_scatter(stream, out, in);
}

bool FaultyCommunicator::do_begin(Stream& stream) {
  inner_->call_ = call_;
  return inner_->do_begin(stream);
}

void FaultyCommunicator::do_end(Stream& stream) { inner_->do_end(stream); }

std::vector<std::string> FaultyCommunicator::do_gather_texts(const std::string& text) {
  inner_->call_ = call_;
  return inner_->do_gather_texts(text);
}

void FaultyCommunicator::do_close(End end) noexcept { inner_->close(end); }

void FaultyCommunicator::do_abort(const std::string& verdict) noexcept {
  inner_->do_abort(verdict);
}

}  // namespace trireme::comm
