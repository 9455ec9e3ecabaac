// SPDX-License-Identifier: Apache-2.0
// Times of operations on this machine, measured through the rows that training uses
// (kernels/ops.h), of shapes like those of models: what `calibrate` fits constants to.
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
    std::function<void(std::string_view what)> measured;  // after each row; may be empty
  };
  // `platform` must outlive it. bf16 on a GPU, fp32 on a CPU.
  OperationTimer(Platform& platform, Options options);

  // Rows that add_all() measures, if all of them fit the device.
  int64_t rows() const;
  // Products, attention and what only moves bytes. Waits for the device.
  void add_all(plan::Times& times);

 private:
  struct Linear {
    int64_t rows, out, in;
  };
  std::vector<Linear> linears() const;
  std::vector<spec::AttentionShape> attentions() const;
  std::vector<int64_t> widths() const;  // of streams, in rows of stream_width elements

  void add_product(const Linear& linear, const char* pass, plan::Times& times);
  void add_attention(const spec::AttentionShape& shape, plan::Times& times);
  void add_streams(int64_t rows, plan::Times& times);
  void add_update(plan::Times& times);

  // Seconds of one call: the median (on a CPU the least) of several rounds of many calls in a row,
  // after a warm-up.
  double seconds_of(const std::function<void()>& queue);
  device::Tensor tensor(const base::TensorSpec& spec);  // of normal random numbers, or zeros
  void done(std::string_view what) const;

  Platform& platform_;
  Options options_;
  base::DType dtype_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Arena> arena_;
};

}  // namespace trireme::train
