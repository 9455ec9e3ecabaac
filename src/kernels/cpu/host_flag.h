// SPDX-License-Identifier: Apache-2.0
// How ops that run on the host read a flag that another thread may write (GateArgs).
#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/args.h"

namespace trireme::kernels {

// Returns whether flag >= threshold; an absent flag is not raised.
inline bool is_raised(const ConstTensor& flag, int32_t threshold) {
  if (!flag) return false;
  // An atomic_ref of a constant is not in C++20.
  auto* value = reinterpret_cast<int32_t*>(const_cast<std::byte*>(flag.data));
  return std::atomic_ref(*value).load() >= threshold;
}

// The body of gate.
inline void pass_gate(const GateArgs& args) {
  if (!is_raised(args.flag, args.threshold)) return;
  const std::atomic_ref cell(*reinterpret_cast<int32_t*>(args.cell.data));
  if (cell.load() < args.value) cell.store(args.value);
}

}  // namespace trireme::kernels
