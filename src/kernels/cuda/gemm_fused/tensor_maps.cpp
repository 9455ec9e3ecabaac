// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm_fused/tensor_maps.h"

#include <cudaTypedefs.h>

#include <array>
#include <string_view>

#include "base/check.h"

namespace trireme::kernels::cuda {
namespace {

bool is_in_build() {
  return std::string_view(TRIREME_CUDA_ARCHITECTURES).find("90a") != std::string_view::npos;
}

CUtensorMapDataType type_of_map(base::DType dtype) {
  if (base::is_float8(dtype)) return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  if (dtype == base::DType::bf16) return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  TRIREME_CHECK(dtype == base::DType::f32, "the copy engine moves no {} here",
                base::name_of(dtype));
  return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

// Columns, rows and, with three, matrices.
template <size_t dimensions>
CUtensorMap describe(void* encode, const device::ConstTensor& t,
                     const std::array<int64_t, dimensions>& sizes,
                     const std::array<int64_t, dimensions - 1>& strides, const Box& box) {
  cuuint64_t size[dimensions], stride[dimensions - 1];
  cuuint32_t boxes[dimensions], steps[dimensions];
  for (size_t i = 0; i < dimensions; ++i) {
    size[i] = static_cast<cuuint64_t>(sizes[i]);
    if (i + 1 < dimensions) {
      stride[i] = static_cast<cuuint64_t>(strides[i] * base::size_of(t.dtype));
    }
    boxes[i] = static_cast<cuuint32_t>(i == 0 ? box.columns : i == 1 ? box.rows : 1);
    steps[i] = 1;
  }
  const CUtensorMapDataType type = type_of_map(t.dtype);
  CUtensorMap map;
  const CUresult result = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(encode)(
      &map, type, static_cast<cuuint32_t>(dimensions),
      const_cast<void*>(static_cast<const void*>(t.data)), size, stride, boxes, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TRIREME_CHECK(result == CUDA_SUCCESS, "describing a matrix of {}: CUDA error {}",
                t.shape.to_string(), static_cast<int>(result));
  return map;
}

}  // namespace

TensorMaps::TensorMaps(device::CudaDevice& device) {
  if (!is_in_build()) return;
  int major = 0, minor = 0;
  const int index = device.options().index;
  device::cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index),
                     "querying the compute capability");
  device::cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index),
                     "querying the compute capability");
  if (major != 9 || minor != 0) return;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  void* encode = nullptr;
  device::cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                                      cudaEnableDefault, &found),
                     "looking for cuTensorMapEncodeTiled");
  if (found == cudaDriverEntryPointSuccess) encode_ = encode;
}

CUtensorMap TensorMaps::matrix(const device::ConstTensor& matrix, const Box& box) const {
  return describe<2>(encode_, matrix, {matrix.cols(), matrix.rows()}, {matrix.row_stride}, box);
}

CUtensorMap TensorMaps::matrices(const device::ConstTensor& matrices, const Box& box) const {
  const base::Shape& shape = matrices.shape;
  if (shape.ndim() == 2) {
    return describe<3>(encode_, matrices, {shape[1], shape[0], 1},
                       {matrices.row_stride, matrices.row_stride * shape[0]}, box);
  }
  return describe<3>(encode_, matrices, {shape[2], shape[1], shape[0]},
                     {shape[2], matrices.row_stride}, box);
}

}  // namespace trireme::kernels::cuda
