// SPDX-License-Identifier: Apache-2.0
#include "engine/step/signal_ring.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "base/shape.h"
#include "kernels/step_records.h"
#include "spec/facts/op_shapes.h"

namespace trireme::engine {
namespace {

constexpr int64_t line_bytes = 64;

// Sets the statistics of the mean losses of data ranks that have tokens; of an even number of them
// the median is the mean of the middle two.
void set_losses(std::span<const kernels::DataLoss> ranks, StepSignals& signals) {
  std::vector<double> means;
  for (const kernels::DataLoss& rank : ranks) {
    if (rank.tokens > 0) means.push_back(rank.loss / static_cast<double>(rank.tokens));
  }
  if (means.empty()) return;
  // A loss that is not a number is greater than any other, and must not be lost in an order.
  std::ranges::sort(means,
                    [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; });
  const size_t middle = means.size() / 2;
  signals.loss_min = means.front();
  signals.loss_max = means.back();
  signals.loss_median =
      means.size() % 2 == 1 ? means[middle] : (means[middle - 1] + means[middle]) / 2;
}

}  // namespace

SignalRing::SignalRing(device::Device& device, int64_t layers, int64_t data_ranks)
    : layers_(layers),
      data_ranks_(data_ranks),
      bytes_(spec::step_state_bytes + spec::step_totals_bytes(layers, data_ranks)),
      slot_bytes_(base::round_up(bytes_, line_bytes)),
      host_(device.make_host_buffer(device::Mem::staging, slots * slot_bytes_, "step signals")) {}

void SignalRing::push(device::Stream& stream, device::ConstTensor signals) {
  if (pushed_ - taken_ == slots) {
    if (!stream.is_reached(arrival(taken_))) stream.synchronize();
    ++taken_;
  }
  stream.download({slot(pushed_), static_cast<size_t>(bytes_)}, signals);
  arrival(pushed_) = stream.record();
  ++pushed_;
}

std::vector<StepSignals> SignalRing::take(device::Stream& stream) {
  std::vector<StepSignals> all;
  for (; taken_ < pushed_ && stream.is_reached(arrival(taken_)); ++taken_) {
    arrival(taken_) = {};
    all.push_back(read(taken_));
  }
  return all;
}

StepSignals SignalRing::read(int64_t step) const {
  kernels::StepState state{};
  std::memcpy(&state, slot(step), sizeof state);
  const kernels::Totals totals =
      kernels::totals_at(slot(step) + spec::step_state_bytes, data_ranks_);
  StepSignals signals{.index = step,
                      .mean_loss = state.mean_loss,
                      .grad_norm = state.grad_norm,
                      .clip_limit = state.clip_limit,
                      .learning_rate = state.learning_rate,
                      .update_norm = static_cast<float>(std::sqrt(totals.counts->update_squares)),
                      .loss_scale = state.step_scale,
                      .next_loss_scale = state.step_scale > 0 ? state.loss_scale : 0,
                      .was_skipped = state.skip != 0,
                      .was_clipped = state.skip == 0 && state.grad_norm > state.clip_limit,
                      .overflow = state.overflow,
                      .tokens = state.tokens,
                      .masked = totals.counts->masked,
                      .padding = totals.counts->padding,
                      .layer_grad_norms = {}};
  set_losses({totals.losses, static_cast<size_t>(data_ranks_)}, signals);
  const double tokens = static_cast<double>(std::max<int64_t>(1, state.tokens));
  const auto factor = static_cast<double>(state.step_factor);
  for (int64_t layer = 0; layer < layers_; ++layer) {
    signals.layer_grad_norms.push_back(
        static_cast<float>(std::sqrt(totals.squares[layer]) / tokens / factor));
  }
  return signals;
}

}  // namespace trireme::engine
