// SPDX-License-Identifier: Apache-2.0
// What the parts of grouped_speed share: options, memory and clocks of one GPU, and lines of the
// report.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "device/accelerator.h"
#include "device/memory.h"
#include "kernels/ops.h"
#include "kernels/table.h"
#include "spec/facts/backend.h"

namespace trireme::bench {

using base::DType;
using base::Shape;
using device::Tensor;
namespace ops = kernels::ops;

struct Options {
  int64_t rows = 4096;  // of an expert, on average
  int64_t width = 2048, hidden = 1024, experts = 64, chosen = 8;
  double skew = 1;  // rows of the fullest expert over those of the emptiest
  int rounds = 10;
  bool has_bf16_grads = false;
  bool is_json = false;
  std::string precision = "bf16";
};

// Memory, streams and clocks of one GPU.
class Bench {
 public:
  explicit Bench(int rounds)
      : rounds_(rounds),
        device_(device::make_gpu(kernels::cuda_kernels(), {})),
        stream_(device_->make_stream("bench")) {
    const int64_t bytes = spec::cuda_backend(true).stream_workspace_bytes;
    stream_->set_workspace(tensor({bytes}, DType::u8));
  }

  device::Stream& stream() { return *stream_; }
  Tensor tensor(const Shape& shape, DType dtype) {
    const base::TensorSpec spec = {shape, dtype};
    buffers_.push_back(std::make_unique<device::Buffer>(*device_, device::Mem::scratch,
                                                        base::bytes_of(spec), "bench"));
    return device::view_of(buffers_.back()->data(), spec);
  }
  Tensor normal(const Shape& shape, DType dtype, float std_dev) {
    const Tensor t = tensor(shape, dtype);
    ops::init_normal(*stream_, {.d = t.as_matrix(),
                                .key = base::rng_key(buffers_.size(), "bench"),
                                .global_row_stride = static_cast<uint64_t>(t.cols()),
                                .std_dev = std_dev});
    return t;
  }
  Tensor integers(const std::vector<int32_t>& values) {
    const Tensor t = tensor({std::ssize(values)}, DType::i32);
    stream_->upload(t, std::as_bytes(std::span(values)));
    stream_->synchronize();
    return t;
  }
  // The median times of calls, in seconds. They run in turn, so that all see the same clocks.
  std::vector<double> times(const std::vector<std::function<void()>>& calls) {
    std::vector<device::Event> events;
    for (int round = -2; round < rounds_; ++round) {  // the first two are not measured
      if (round == 0) events.push_back(stream_->record_timed());
      for (const auto& call : calls) {
        call();
        if (round >= 0) events.push_back(stream_->record_timed());
      }
    }
    stream_->synchronize();
    std::vector<double> medians;
    for (size_t c = 0; c < calls.size(); ++c) {
      std::vector<double> all;
      for (size_t i = c; i + 1 < events.size(); i += calls.size()) {
        all.push_back(stream_->seconds_between(events[i], events[i + 1]));
      }
      std::ranges::sort(all);
      medians.push_back(all[all.size() / 2]);
    }
    return medians;
  }

 private:
  int rounds_;
  std::unique_ptr<device::Device> device_;
  std::vector<std::unique_ptr<device::Buffer>> buffers_;
  std::unique_ptr<device::Stream> stream_;
};

// Starts of groups whose sizes fall linearly from `skew` times the last one, in multiples of 128,
// in an order that mixes large and small ones.
inline std::vector<int32_t> starts_of(const Options& o) {
  std::vector<int32_t> starts = {0};
  for (int64_t e = 0; e < o.experts; ++e) {
    const double at = o.experts == 1 ? 0.5
                                     : static_cast<double>(e * 37 % o.experts) /
                                           static_cast<double>(o.experts - 1);
    const double share = 2 / (1 + o.skew) * (1 + (o.skew - 1) * at);
    const auto rows = static_cast<int32_t>(static_cast<double>(o.rows) * share / 128 + 0.5) * 128;
    starts.push_back(starts.back() + rows);
  }
  return starts;
}

struct Row {
  std::string name;
  double seconds = 0, flops = 0, dense_seconds = 0, bytes = 0, copy_seconds = 0;
};

// The products of a layer in 8 bits, each beside the library's in bf16, and what makes their
// operands (grouped_codes_speed.cpp).
std::vector<Row> products_of_codes(Bench&, const Options&);

}  // namespace trireme::bench
