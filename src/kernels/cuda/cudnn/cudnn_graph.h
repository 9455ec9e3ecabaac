// SPDX-License-Identifier: Apache-2.0
// The part of cuDNN's graph interface that attention needs: tensors, operations between them, and
// plans that run a graph. cuDNN's error codes become DeviceError here.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trireme::kernels::cuda {

// Throws DeviceError unless `status` is success. `what` describes the attempted action.
void cudnn_check(cudnnStatus_t status, const char* what);

// Owns one backend descriptor.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;

  cudnnBackendDescriptor_t get() const { return descriptor_; }
  void finalize(const char* what);

  // `values`: the attributes of `type`.
  template <typename T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           std::span<const T> values) {
    set_values(name, type, static_cast<int64_t>(values.size()), values.data());
  }
  template <typename T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set_values(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& part);

 private:
  void set_values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void* values);

  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

using Dims4 = std::array<int64_t, 4>;

// Strides of dense rows.
Dims4 dense_strides(const Dims4& dims);

// A tensor of a graph, by its number in the graph.
struct CudnnTensor {
  int64_t uid = 0;
  Dims4 dims = {}, strides = {};
};

// Lengths on the device, [batches, 1, 1, 1] i32, that replace dimensions of a matrix product.
struct CudnnLimits {
  const CudnnTensor *m = nullptr, *n = nullptr, *k = nullptr;
};

struct CudnnBinding {
  int64_t uid = 0;
  void* data = nullptr;  // device memory; host memory for scalars
};

class CudnnPlan {
 public:
  CudnnPlan(cudnnHandle_t handle, CudnnDescriptor config);

  int64_t workspace_bytes() const { return workspace_bytes_; }
  // Queues the graph on the stream of the handle. Scalars are read before this returns. Every real
  // tensor and scalar of the graph must be bound, and nothing else.
  void execute(cudnnHandle_t handle, std::span<const CudnnBinding> bindings, void* workspace) const;

 private:
  CudnnDescriptor config_, plan_;
  int64_t workspace_bytes_ = 0;
};

// Built by declaring tensors and operations; then plans() is called once.
class CudnnGraph {
 public:
  struct Tensor {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    Dims4 dims = {}, strides = {};
    // The batches start at these elements, [batches + 1, 1, 1, 1] i64 on the device; null: at
    // multiples of strides[0].
    const CudnnTensor* offsets = nullptr;
  };

  // In memory, bound when a plan is executed; aligned to 16 bytes.
  CudnnTensor real(const Tensor&);
  // Lives within the graph only.
  CudnnTensor inner(const Tensor&);
  CudnnTensor inner(cudnnDataType_t type, const Dims4& dims) {
    return inner({type, dims, dense_strides(dims)});
  }
  // One number, bound to host memory.
  CudnnTensor scalar(cudnnDataType_t type = CUDNN_DATA_FLOAT);
  // One number for every batch, in memory.
  CudnnTensor per_batch(cudnnDataType_t type, int64_t batches);

  // All compute in fp32. The result of the unary and binary ones is a new inner fp32 tensor of the
  // dimensions of x unless `to` is given.
  void matmul(const CudnnTensor& a, const CudnnTensor& b, const CudnnTensor& to,
              const CudnnLimits& limits = {});
  CudnnTensor pointwise(cudnnPointwiseMode_t mode, const CudnnTensor& x);
  CudnnTensor pointwise(cudnnPointwiseMode_t mode, const CudnnTensor& x, const CudnnTensor& b);
  void pointwise_to(cudnnPointwiseMode_t mode, const CudnnTensor& x, const CudnnTensor* b,
                    const CudnnTensor& to);
  // x if row index >= column index (dimensions 2 and 3), otherwise `other`. With `add` and
  // `subtract` (i32 scalars) these change the row index first.
  CudnnTensor causal(const CudnnTensor& x, const CudnnTensor& other,
                     const CudnnTensor* add = nullptr, const CudnnTensor* subtract = nullptr);
  // x if row index < rows and column index < columns of the batch, otherwise `other`.
  CudnnTensor within(const CudnnTensor& x, const CudnnTensor& rows, const CudnnTensor& columns,
                     const CudnnTensor& other);
  // Over the dimensions in which `to` is smaller than x.
  void reduce(cudnnReduceTensorOp_t op, const CudnnTensor& x, const CudnnTensor& to);
  // The same elements with the dimensions and strides of `to`.
  void reshape(const CudnnTensor& x, const CudnnTensor& to);

  // At most `limit` plans, in the order in which cuDNN's heuristic prefers them. Empty if cuDNN
  // has no kernel for this graph. The graph must outlive the plans.
  std::vector<CudnnPlan> plans(cudnnHandle_t handle, int limit);

 private:
  enum class Place : uint8_t { real, inner, scalar };
  CudnnTensor add_tensor(const Tensor& tensor, Place place);
  struct Pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    int64_t axis = -1;  // of gen_index
    const CudnnTensor *x = nullptr, *b = nullptr, *t = nullptr;
    const CudnnTensor* to = nullptr;
  };
  void add_pointwise(const Pointwise& op);
  // A new inner tensor: the index of every element of x in dimension `axis`.
  CudnnTensor index(const CudnnTensor& x, int64_t axis);
  // A new inner tensor of `type`.
  CudnnTensor integers(cudnnPointwiseMode_t mode, const CudnnTensor& x, const CudnnTensor& b,
                       cudnnDataType_t type);
  const CudnnDescriptor& descriptor(const CudnnTensor& tensor) const;

  std::vector<CudnnDescriptor> tensors_;  // uid - 1 is the index
  std::vector<CudnnDescriptor> parts_;    // what operations refer to
  std::vector<CudnnDescriptor> operations_;
  std::unique_ptr<CudnnDescriptor> graph_;  // null until plans() is called
};

}  // namespace trireme::kernels::cuda
