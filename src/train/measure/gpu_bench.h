// SPDX-License-Identifier: Apache-2.0
// Measures one GPU with the kernels that training uses. Every function waits for the GPU and
// returns figures with units in the names of the keys: an array of objects, or one object.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_fwd.h"
#include "device/memory.h"
#include "spec/facts/backend.h"
#include "spec/model.h"

namespace trireme::train {

// A GPU with a stream, the workspace of the stream, and memory that the measurements reuse.
class GpuBench {
 public:
  struct Options {
    int index = 0;
    bool deterministic = false;
    bool is_quick = false;                                // fewer shapes, fewer repetitions
    std::function<void(std::string_view what)> measured;  // after each figure; may be empty
  };
  // Throws ConfigError if there is no usable GPU, and OutOfMemory if too little memory is free.
  explicit GpuBench(Options options);

  base::Json gemm(const std::vector<spec::ModelSpec>& models);
  base::Json attention(bool with_forward);
  base::Json memory();
  base::Json host_copies();
  base::Json launches();

 private:
  struct Product {
    std::string what;
    int64_t m = 0, n = 0, k = 0;
    std::string layout = "nt";
    base::DType out = base::DType::bf16;
    bool accumulates = false;
  };
  std::vector<Product> products(const std::vector<spec::ModelSpec>& models) const;
  base::Json measure(const Product& product);
  void measure_attention(const spec::AttentionShape& shape, bool with_forward, base::Json& out);

  // Returns the seconds of one call: the median over several rounds of many calls, after a warm-up.
  double seconds_of(const std::function<void()>& queue);
  // Allocates a tensor until the next release() and fills it with normal random numbers, or with
  // zeros for types other than f32 and bf16. REQUIRES: fits().
  device::Tensor tensor(const base::TensorSpec& spec);
  bool fits(const std::vector<base::TensorSpec>& specs) const;
  void release();
  void done(std::string_view what) const;

  Options options_;
  spec::Backend backend_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Buffer> workspace_;
  int64_t capacity_bytes_ = 0;
  std::unique_ptr<device::Arena> arena_;
  std::unique_ptr<device::Arena::Mark> mark_;  // frees the tensors of the last measurement
};

}  // namespace trireme::train
