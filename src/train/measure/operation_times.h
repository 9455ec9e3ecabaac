// SPDX-License-Identifier: Apache-2.0
// Measures the times of operations (kernels/ops.h) on this machine, with shapes like those of
// models; `calibrate` fits constants to them.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "device/memory.h"
#include "plan/validate/fit_machine.h"
#include "train/setup/setup.h"

namespace trireme::train {

class OperationTimer {
 public:
  struct Options {
    bool is_quick = false;                                // fewer shapes, fewer repetitions
    std::function<void(std::string_view what)> measured;  // after each operation; may be empty
  };
  // `platform` must outlive the timer. Measures bf16 on a GPU and fp32 on a CPU.
  OperationTimer(Platform& platform, Options options);

  // Returns the number of operations that add_all() measures, and add_backwards().
  int64_t operations() const;
  int64_t backwards() const { return static_cast<int64_t>(attentions().size()); }
  // Measures products, attention and memory-bound operations. Waits for the device.
  void add_all(plan::Times& times);
  // Measures the backward passes of attention alone.
  void add_backwards(plan::Times& times);

 private:
  struct Linear {
    int64_t rows, out, in;
  };
  std::vector<Linear> linears() const;
  std::vector<spec::AttentionShape> attentions() const;
  std::vector<int64_t> stream_sizes() const;  // in rows of stream_width elements

  void add_product(const Linear& linear, const char* pass, plan::Times& times);
  void add_attention(const spec::AttentionShape& shape, bool with_forward, plan::Times& times);
  void add_streams(int64_t rows, plan::Times& times);
  void add_update(plan::Times& times);

  // Returns the seconds of one call: the median (on a CPU the minimum) over several rounds of many
  // calls, after a warm-up.
  double seconds_of(const std::function<void()>& queue);
  device::Tensor tensor(const base::TensorSpec& spec);  // normal random numbers, or zeros
  void done(std::string_view what) const;

  Platform& platform_;
  Options options_;
  base::DType dtype_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Arena> arena_;
};

}  // namespace trireme::train
