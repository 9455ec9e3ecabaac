// SPDX-License-Identifier: Apache-2.0
// Shared memory by its 32-bit address: a pointer costs several instructions more.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace trireme::kernels::cuda {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// 16 bytes.
__device__ inline uint4 load_shared(uint32_t address) {
  uint4 bits;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "r"(address)
               : "memory");
  return bits;
}
__device__ inline void store_shared(uint32_t address, const uint4& bits) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(bits.x), "r"(bits.y),
               "r"(bits.z), "r"(bits.w)
               : "memory");
}

// Copies 16 bytes of global memory asynchronously. The second form writes zeros if there is nothing
// to read.
__device__ inline void copy_to_shared(uint32_t to, uint64_t from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void copy_to_shared(uint32_t to, uint64_t from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(is_there ? 16 : 0)
               : "memory");
}
// Ends a group of copies.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `left` of the thread's groups are unfinished; or until all copies are done.
template <int left>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace trireme::kernels::cuda
