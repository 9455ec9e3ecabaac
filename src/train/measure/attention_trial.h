// SPDX-License-Identifier: Apache-2.0
// Attention as a layer calls it, with q, k and v side by side, on memory of any numbers: what is
// timed by bench gpu and calibrate.
#pragma once

#include <functional>
#include <vector>

#include "device/device.h"
#include "kernels/args.h"
#include "spec/facts/op_shapes.h"

namespace trireme::train {

struct AttentionTrial {
  kernels::AttentionForwardArgs forward;
  kernels::AttentionBackwardArgs backward;  // reads what the forward leaves
};

// All that it needs, for a check of what there is.
std::vector<base::TensorSpec> attention_tensors(const spec::AttentionShape& shape,
                                                const spec::Backend& backend);

// `tensor` gives memory with numbers in it. Waits for the stream.
AttentionTrial attention_trial(
    const spec::AttentionShape& shape, const spec::Backend& backend, device::Stream& stream,
    const std::function<device::Tensor(const base::TensorSpec&)>& tensor);

}  // namespace trireme::train
