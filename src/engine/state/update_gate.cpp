// SPDX-License-Identifier: Apache-2.0
#include "engine/state/update_gate.h"

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "base/check.h"
#include "kernels/ops.h"
#include "kernels/step_state.h"

namespace trireme::engine {
namespace {

namespace ops = kernels::ops;
using device::Tensor;

constexpr int64_t number_count = 2;

int32_t& number_at(const std::optional<device::HostBuffer>& buffer, int index) {
  TRIREME_CHECK(buffer.has_value(), "an update without gates");
  return reinterpret_cast<int32_t*>(buffer->data())[index];
}

Tensor skip_of(const Tensor& step_state) {
  return device::view_of(step_state.data + offsetof(kernels::StepState, skip),
                         {{1}, base::DType::i32});
}

}  // namespace

UpdateGate::UpdateGate(device::Device& device, comm::Mesh* mesh)
    : flags_(mesh == nullptr || mesh->world().size() == 1 ? nullptr : mesh->world().abort_flags()) {
  if (flags_ == nullptr) return;
  numbers_ = device.make_host_buffer(device::Mem::comm, number_count * int64_t{sizeof(int32_t)},
                                     "gates of updates");
  flags_->add(number_at(numbers_, 0));
}

UpdateGate::~UpdateGate() {
  if (flags_ != nullptr) flags_->remove(number_at(numbers_, 0));
}

int32_t UpdateGate::flag_value() const {
  return flags_ == nullptr ? 0 : std::atomic_ref(number_at(numbers_, 0)).load();
}

void UpdateGate::raise() noexcept {
  if (flags_ == nullptr) return;
  int32_t expected = 0;
  std::atomic_ref(number_at(numbers_, 0))
      .compare_exchange_strong(expected, comm::AbortFlags::raised);
}

bool UpdateGate::has_updated_all() const {
  return std::ranges::all_of(updates_, [](Update update) { return update == Update::done; });
}

Tensor UpdateGate::number(int index) const {
  return device::view_of(reinterpret_cast<std::byte*>(&number_at(numbers_, index)),
                         {{1}, base::DType::i32});
}

void UpdateGate::mark(device::Stream& compute, Tensor sums) const {
  if (flags_ == nullptr) return;
  // The low half of the number.
  const Tensor unlike =
      device::view_of(sums.data + offsetof(kernels::StepSums, unlike), {{1}, base::DType::i32});
  ops::gate(compute, {.flag = abort_flag(), .cell = unlike, .value = kernels::StepSums::aborted});
}

void UpdateGate::confirm(device::Stream& data, int bucket) const {
  if (flags_ == nullptr) return;
  ops::gate(data, {.flag = abort_flag(), .cell = number(1), .value = level(bucket)});
}

void UpdateGate::open_confirmed(device::Stream& compute, int bucket, Tensor step_state) const {
  if (flags_ == nullptr) return;
  ops::gate(compute, {.flag = number(1),
                      .threshold = level(bucket),
                      .cell = skip_of(step_state),
                      .value = kernels::StepSkip::torn});
}

void UpdateGate::open(device::Stream& compute, Tensor step_state) const {
  if (flags_ == nullptr) return;
  ops::gate(compute,
            {.flag = abort_flag(), .cell = skip_of(step_state), .value = kernels::StepSkip::torn});
}

// Work of a stream that has failed is skipped, so what was queued may not have run. A GPU's stream
// runs all that was queued.
void UpdateGate::set_in_order(device::Stream& compute, int bucket, Update to) {
  if (flags_ == nullptr) return;
  const auto set = [this, bucket, to] { updates_[static_cast<size_t>(bucket)] = to; };
  if (compute.host_calls() == device::Stream::HostCalls::none) {
    set();
  } else {
    compute.call_host(set);
  }
}

void UpdateGate::step_closes(device::Stream& compute) {
  for (int b = 0; b < buckets(); ++b) set_in_order(compute, b, Update::missing);
  set_in_order(compute, buckets(), Update::begun);
}

void UpdateGate::step_closed(device::Stream& compute) {
  set_in_order(compute, buckets(), Update::done);
}

void UpdateGate::update_begins(device::Stream& compute, int bucket) {
  set_in_order(compute, bucket, Update::begun);
}

void UpdateGate::update_ends(device::Stream& compute, int bucket) {
  set_in_order(compute, bucket, Update::done);
}

}  // namespace trireme::engine
