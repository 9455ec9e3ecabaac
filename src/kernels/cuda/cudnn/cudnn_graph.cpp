// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cudnn/cudnn_graph.h"

#include <fmt/core.h>

#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace trireme::kernels::cuda {

void cudnn_check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 1024> detail{};
  cudnnGetLastErrorString(detail.data(), detail.size());
  throw base::DeviceError(
      fmt::format("{}: {}: {}", what, cudnnGetErrorString(status), detail.data()));
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  cudnn_check(cudnnBackendCreateDescriptor(type, &descriptor_), "making a cuDNN descriptor");
}
CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
}
CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void CudnnDescriptor::finalize(const char* what) {
  cudnn_check(cudnnBackendFinalize(descriptor_), what);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& part) {
  const cudnnBackendDescriptor_t handle = part.get();
  set_values(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
}
void CudnnDescriptor::set_values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                 int64_t count, const void* values) {
  cudnn_check(cudnnBackendSetAttribute(descriptor_, name, type, count, values),
              "describing attention to cuDNN");
}

Dims4 dense_strides(const Dims4& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

// ---- plans

CudnnPlan::CudnnPlan(cudnnHandle_t handle, CudnnDescriptor config)
    : config_(std::move(config)), plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config_);
  plan_.finalize("building a cuDNN plan");
  int64_t count = 0;
  cudnn_check(cudnnBackendGetAttribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &count, &workspace_bytes_),
              "querying the workspace of a cuDNN plan");
}

void CudnnPlan::execute(cudnnHandle_t handle, std::span<const CudnnBinding> bindings,
                        void* workspace) const {
  std::vector<int64_t> uids;
  std::vector<void*> pointers;
  for (const CudnnBinding& binding : bindings) {
    uids.push_back(binding.uid);
    pointers.push_back(binding.data);
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::span<const int64_t>(uids));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           std::span<void* const>(pointers));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize("binding memory to a cuDNN plan");
  cudnn_check(cudnnBackendExecute(handle, plan_.get(), pack.get()), "running a cuDNN plan");
}

// ---- tensors

CudnnTensor CudnnGraph::add_tensor(const Tensor& tensor, Place place) {
  CudnnDescriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto uid = static_cast<int64_t>(tensors_.size()) + 1;
  descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, uid);
  descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, tensor.type);
  descriptor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
                 std::span<const int64_t>(tensor.dims));
  descriptor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
                 std::span<const int64_t>(tensor.strides));
  descriptor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
  descriptor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, place == Place::inner);
  descriptor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, place == Place::scalar);
  if (tensor.offsets != nullptr) {
    descriptor.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, this->descriptor(*tensor.offsets));
  }
  descriptor.finalize("describing a tensor to cuDNN");
  tensors_.push_back(std::move(descriptor));
  return {uid, tensor.dims, tensor.strides};
}

CudnnTensor CudnnGraph::real(const Tensor& tensor) { return add_tensor(tensor, Place::real); }
CudnnTensor CudnnGraph::inner(const Tensor& tensor) { return add_tensor(tensor, Place::inner); }
CudnnTensor CudnnGraph::scalar(cudnnDataType_t type) {
  return add_tensor({type, {1, 1, 1, 1}, {1, 1, 1, 1}}, Place::scalar);
}
CudnnTensor CudnnGraph::per_batch(cudnnDataType_t type, int64_t batches) {
  return add_tensor({type, {batches, 1, 1, 1}, {1, 1, 1, 1}}, Place::real);
}

const CudnnDescriptor& CudnnGraph::descriptor(const CudnnTensor& tensor) const {
  TRIREME_CHECK(tensor.uid >= 1 && tensor.uid <= static_cast<int64_t>(tensors_.size()),
                "tensor {} of {}", tensor.uid, tensors_.size());
  return tensors_[static_cast<size_t>(tensor.uid - 1)];
}

// ---- operations

void CudnnGraph::matmul(const CudnnTensor& a, const CudnnTensor& b, const CudnnTensor& to,
                        const CudnnLimits& limits) {
  CudnnDescriptor part(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  part.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  part.finalize("describing a matrix product to cuDNN");
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, descriptor(a));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, descriptor(b));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, descriptor(to));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, part);
  const auto limit = [&](cudnnBackendAttributeName_t name, const CudnnTensor* length) {
    if (length != nullptr) operation.set(name, descriptor(*length));
  };
  limit(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, limits.m);
  limit(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, limits.n);
  limit(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, limits.k);
  operation.finalize("adding a matrix product to a cuDNN graph");
  parts_.push_back(std::move(part));
  operations_.push_back(std::move(operation));
}

void CudnnGraph::add_pointwise(const Pointwise& op) {
  CudnnDescriptor part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  part.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, op.mode);
  part.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, op.precision);
  if (op.axis >= 0) part.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, op.axis);
  part.finalize("describing an elementwise operation to cuDNN");
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, descriptor(*op.x));
  if (op.b != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, descriptor(*op.b));
  if (op.t != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, descriptor(*op.t));
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, descriptor(*op.to));
  operation.finalize("adding an elementwise operation to a cuDNN graph");
  parts_.push_back(std::move(part));
  operations_.push_back(std::move(operation));
}

void CudnnGraph::pointwise_to(cudnnPointwiseMode_t mode, const CudnnTensor& x, const CudnnTensor* b,
                              const CudnnTensor& to) {
  add_pointwise({.mode = mode, .x = &x, .b = b, .to = &to});
}
CudnnTensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const CudnnTensor& x) {
  const CudnnTensor to = inner(CUDNN_DATA_FLOAT, x.dims);
  pointwise_to(mode, x, nullptr, to);
  return to;
}
CudnnTensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const CudnnTensor& x,
                                  const CudnnTensor& b) {
  const CudnnTensor to = inner(CUDNN_DATA_FLOAT, x.dims);
  pointwise_to(mode, x, &b, to);
  return to;
}

CudnnTensor CudnnGraph::index(const CudnnTensor& x, int64_t axis) {
  const CudnnTensor to = inner(CUDNN_DATA_INT32, x.dims);
  add_pointwise({.mode = CUDNN_POINTWISE_GEN_INDEX, .axis = axis, .x = &x, .to = &to});
  return to;
}
CudnnTensor CudnnGraph::integers(cudnnPointwiseMode_t mode, const CudnnTensor& x,
                                 const CudnnTensor& b, cudnnDataType_t type) {
  const CudnnTensor to = inner(type, x.dims);
  add_pointwise({.mode = mode, .precision = type, .x = &x, .b = &b, .to = &to});
  return to;
}

CudnnTensor CudnnGraph::causal(const CudnnTensor& x, const CudnnTensor& other,
                               const CudnnTensor* add, const CudnnTensor* subtract) {
  CudnnTensor row = index(x, 2);
  const CudnnTensor column = index(x, 3);
  if (add != nullptr) row = integers(CUDNN_POINTWISE_ADD, row, *add, CUDNN_DATA_INT32);
  if (subtract != nullptr) row = integers(CUDNN_POINTWISE_SUB, row, *subtract, CUDNN_DATA_INT32);
  const CudnnTensor mask = integers(CUDNN_POINTWISE_CMP_GE, row, column, CUDNN_DATA_BOOLEAN);
  const CudnnTensor to = inner(CUDNN_DATA_FLOAT, x.dims);
  add_pointwise(
      {.mode = CUDNN_POINTWISE_BINARY_SELECT, .x = &x, .b = &other, .t = &mask, .to = &to});
  return to;
}

CudnnTensor CudnnGraph::within(const CudnnTensor& x, const CudnnTensor& rows,
                               const CudnnTensor& columns, const CudnnTensor& other) {
  const CudnnTensor row = index(x, 2), column = index(x, 3);
  const CudnnTensor in_rows = integers(CUDNN_POINTWISE_CMP_LT, row, rows, CUDNN_DATA_BOOLEAN);
  const CudnnTensor in_columns =
      integers(CUDNN_POINTWISE_CMP_LT, column, columns, CUDNN_DATA_BOOLEAN);
  const CudnnTensor mask =
      integers(CUDNN_POINTWISE_LOGICAL_AND, in_rows, in_columns, CUDNN_DATA_BOOLEAN);
  const CudnnTensor to = inner(CUDNN_DATA_FLOAT, x.dims);
  add_pointwise(
      {.mode = CUDNN_POINTWISE_BINARY_SELECT, .x = &x, .b = &other, .t = &mask, .to = &to});
  return to;
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t op, const CudnnTensor& x, const CudnnTensor& to) {
  CudnnDescriptor part(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  part.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
  part.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  part.finalize("describing a reduction to cuDNN");
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, descriptor(x));
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, descriptor(to));
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, part);
  operation.finalize("adding a reduction to a cuDNN graph");
  parts_.push_back(std::move(part));
  operations_.push_back(std::move(operation));
}

void CudnnGraph::reshape(const CudnnTensor& x, const CudnnTensor& to) {
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, descriptor(x));
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, descriptor(to));
  operation.finalize("adding a change of shape to a cuDNN graph");
  operations_.push_back(std::move(operation));
}

// ---- the whole graph

std::vector<CudnnPlan> CudnnGraph::plans(cudnnHandle_t handle, int limit) {
  TRIREME_CHECK(graph_ == nullptr, "plans() of a graph may be called once only");
  graph_ = std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnDescriptor& operation : operations_) operations.push_back(operation.get());
  // Without the handle cuDNN accepts any graph, and the heuristic then finds nothing.
  graph_->set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  graph_->set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              std::span<const cudnnBackendDescriptor_t>(operations));
  graph_->finalize("building a cuDNN graph");

  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, *graph_);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  heuristic.finalize("querying cuDNN for kernels");
  int64_t found = 0;
  cudnn_check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &found, nullptr),
              "querying cuDNN for the number of its kernels");
  std::vector<CudnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> config_handles;
  for (int64_t i = 0; i < found; ++i) {
    configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    config_handles.push_back(configs.back().get());
  }
  if (found > 0) {
    int64_t returned = 0;
    cudnn_check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, found, &returned,
                                         config_handles.data()),
                "querying cuDNN for its kernels");
    while (static_cast<int64_t>(configs.size()) > returned) configs.pop_back();
  }

  std::vector<CudnnPlan> plans;
  for (CudnnDescriptor& config : configs) {
    if (static_cast<int>(plans.size()) == limit) break;
    try {
      plans.emplace_back(handle, std::move(config));
    } catch (const base::DeviceError&) {
      // This kernel does not support the graph; the next one may.
    }
  }
  return plans;
}

}  // namespace trireme::kernels::cuda
