// SPDX-License-Identifier: Apache-2.0
// The history of largest magnitudes, as kernels/quantize_args.h states, in floats.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"
#include "kernels/step_state.h"

namespace trireme::kernels::reference {
namespace {

float* history_floats(const Tensor& t) { return reinterpret_cast<float*>(t.data); }

}  // namespace

void collect_amax(Stream& stream, const CollectAmaxArgs& args) {
  run_on(stream, [args] {
    const auto* cells = reinterpret_cast<const QuantizeCounts*>(args.counts.data);
    for (int64_t i = 0; i < args.amax.rows(); ++i) {
      float& amax = history_floats(args.amax)[i];
      const auto found = std::bit_cast<float>(cells[i].amax_bits);
      amax = std::isfinite(amax) && std::isfinite(found) ? std::max(amax, found)
                                                         : std::numeric_limits<float>::infinity();
    }
  });
}

void rotate_amax(Stream& stream, const RotateAmaxArgs& args) {
  run_on(stream, [args] {
    const bool is_skipped =
        args.state && reinterpret_cast<const StepState*>(args.state.data)->skip != 0;
    const int64_t length = args.history.cols();
    for (int64_t i = 0; i < args.amax.rows(); ++i) {
      float& newest = history_floats(args.amax)[i];
      float* history = history_floats(args.history) + i * length;
      if (!is_skipped && newest != 0 && std::isfinite(newest)) {
        std::copy_backward(history, history + length - 1, history + length);
        history[0] = newest;
      }
      history_floats(args.largest)[i] = *std::max_element(history, history + length);
      newest = 0;
    }
  });
}

}  // namespace trireme::kernels::reference
