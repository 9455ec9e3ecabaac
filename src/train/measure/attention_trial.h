// SPDX-License-Identifier: Apache-2.0
// Arguments of attention as a layer calls it, with q, k and v in one tensor, for timing by `bench
// gpu` and `calibrate`.
#pragma once

#include <functional>
#include <vector>

#include "device/device.h"
#include "kernels/args.h"
#include "spec/facts/backend.h"

namespace trireme::train {

struct AttentionTrial {
  kernels::AttentionForwardArgs forward;
  kernels::AttentionBackwardArgs backward;  // reads the output of the forward
};

// Returns the specs of all tensors that attention_trial() allocates, to check whether they fit.
std::vector<base::TensorSpec> attention_tensors(const spec::AttentionShape& shape,
                                                const spec::Backend& backend);

// `tensor` allocates and fills a tensor. Waits for the stream.
AttentionTrial attention_trial(
    const spec::AttentionShape& shape, const spec::Backend& backend, device::Stream& stream,
    const std::function<device::Tensor(const base::TensorSpec&)>& tensor);

}  // namespace trireme::train
