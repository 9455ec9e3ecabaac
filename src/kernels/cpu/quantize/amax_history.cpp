// SPDX-License-Identifier: Apache-2.0
// The history of largest magnitudes, as kernels/quantize_args.h states.
#include "kernels/amax_history.h"
#include "kernels/cpu/quantize/amax.h"
#include "kernels/cpu/table_ops.h"
#include "kernels/step_state.h"

namespace trireme::kernels::cpu {
namespace {

void collect_magnitudes(base::ThreadPool& /*pool*/, const CollectAmaxArgs& args) {
  const auto* cells = reinterpret_cast<const QuantizeCounts*>(args.counts.data);
  for (int64_t i = 0; i < args.amax.rows(); ++i) {
    uint32_t& bits = bits_at(args.amax, i);
    bits = larger_magnitude(bits, cells[i].amax_bits);
  }
}

void rotate_magnitudes(base::ThreadPool& /*pool*/, const RotateAmaxArgs& args) {
  const bool is_skipped =
      args.state && reinterpret_cast<const StepState*>(args.state.data)->skip != 0;
  const int64_t length = args.history.cols();
  for (int64_t i = 0; i < args.amax.rows(); ++i) {
    uint32_t& newest = bits_at(args.amax, i);
    bits_at(args.largest, i) =
        rotate_history(is_skipped ? 0 : newest, &bits_at(args.history, i * length), length);
    newest = 0;
  }
}

}  // namespace

void collect_amax(Stream& stream, const CollectAmaxArgs& args) {
  run_on(stream, args, collect_magnitudes);
}
void rotate_amax(Stream& stream, const RotateAmaxArgs& args) {
  run_on(stream, args, rotate_magnitudes);
}

}  // namespace trireme::kernels::cpu
