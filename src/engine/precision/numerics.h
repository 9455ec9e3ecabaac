// SPDX-License-Identifier: Apache-2.0
// Numerics: what quantising did to the values of a rank's blocks in a step, by spec::Quantized:
// largest magnitudes always, the other counts of steps that measure.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device/device.h"
#include "device/memory.h"
#include "spec/plan.h"

namespace trireme::engine {

struct RoleNumerics {
  double amax = 0;  // largest magnitude; infinity or NaN if a value was not finite
  // In a step that measured, otherwise 0: values, values that became zero, values beyond the range.
  int64_t values = 0, flushed = 0, saturated = 0;
  double signal = 0, noise = 0;  // sums of squares of values, and of their errors
};
struct LayerNumerics {
  int layer = 0;  // of the model
  std::array<RoleNumerics, spec::quantized_count> by;
};

class Numerics {
 public:
  // Takes the memory of spec::numerics_spec() from `optim`.
  Numerics(const spec::ModelSpec&, const spec::Plan&, int pp_rank, device::Stream& compute,
           device::Arena& optim);

  // Sets all counts to zero, on the compute stream.
  void begin_step();
  // Do steps count more than the largest magnitudes?
  bool measures() const { return measures_; }
  void set_measures(bool on) { measures_ = on; }
  // Returns the cells of a layer, one row for each spec::Quantized; empty if its products are not
  // in 8 bits.
  device::Tensor counts(int layer) const;
  static device::Tensor cell(const device::Tensor& counts, spec::Quantized);
  // Returns those of the last step, of this rank's tokens. Waits for the device.
  std::vector<LayerNumerics> read() const;

 private:
  device::Stream& compute_;
  std::vector<int> layers_;
  device::Tensor all_;  // [layers * quantized_count, sizeof(QuantizeCounts)] u8; empty: none
  bool measures_ = false;
};

}  // namespace trireme::engine
