// SPDX-License-Identifier: Apache-2.0
// GpuTimer: operands and times of ops on one GPU, for programs that measure them.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
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

// Memory, a stream and clocks of one GPU.
class GpuTimer {
 public:
  explicit GpuTimer(int rounds)
      : rounds_(rounds),
        device_(device::make_gpu(kernels::cuda_kernels(), {})),
        stream_(device_->make_stream("bench")) {
    const int64_t bytes = spec::cuda_backend(true).stream_workspace_bytes;
    stream_->set_workspace(tensor({bytes}, DType::u8));
  }

  device::Stream& stream() { return *stream_; }
  Tensor tensor(const base::TensorSpec& spec) {
    buffers_.push_back(std::make_unique<device::Buffer>(*device_, device::Mem::scratch,
                                                        base::bytes_of(spec), "bench"));
    return device::view_of(buffers_.back()->data(), spec);
  }
  Tensor tensor(const Shape& shape, DType dtype) { return tensor(base::TensorSpec{shape, dtype}); }
  Tensor like(const Tensor& t) { return tensor(t.shape, t.dtype); }
  Tensor zero(const Shape& shape, DType dtype) {
    const Tensor t = tensor(shape, dtype);
    ops::fill(*stream_, {.d = t});
    return t;
  }
  Tensor normal(const Shape& shape, DType dtype, float std_dev = 1) {
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
  template <typename T>
  std::vector<T> read(const device::ConstTensor& t) {
    std::vector<T> values(static_cast<size_t>(t.bytes()) / sizeof(T));
    stream_->download(std::as_writable_bytes(std::span(values)), t);
    stream_->synchronize();
    return values;
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

}  // namespace trireme::bench
