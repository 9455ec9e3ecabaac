// SPDX-License-Identifier: Apache-2.0
// What the functions of ops.h have in common: checks of tensors, and how an op is sent to a stream.
// A failed check aborts with the op, the operand, what it is and what was expected.
#pragma once

#include "base/check.h"
#include "base/system/rank_activity.h"
#include "kernels/cost.h"
#include "kernels/ops.h"

namespace trireme::kernels::ops {

using base::DType;
using base::Shape;

// ---- what every function of ops.h does after its checks
template <typename Args>
void announce(Stream& stream, const Args& args) {
  const spec::OpCost cost = cost_of(args);
  base::RankActivity::current().set_op(spec::name_of(cost.kind).data(), cost.m, cost.n, cost.k);
  if (stream.observer() != nullptr) stream.observer()->op(stream, cost);
}
template <typename Args>
void send(Stream& stream, void (*Kernels::*op)(Stream&, const Args&), const Args& args) {
  announce(stream, args);
  (stream.device().kernels().*op)(stream, args);
}

// ---- checks, named for what they require
inline void is_real(const char* op, const char* name, const ConstTensor& t) {
  TRIREME_CHECK(base::is_real(t.dtype), "{}: {} is {}, not f32, bf16 or f16", op, name,
                base::name_of(t.dtype));
}

inline void has(const char* op, const char* name, const ConstTensor& t, const Shape& shape) {
  TRIREME_CHECK(t.shape == shape, "{}: {} is {}, expected {}", op, name, t.shape.to_string(),
                shape.to_string());
  TRIREME_CHECK(t.row_stride >= t.cols(), "{}: {} has rows of {} elements and a row stride of {}",
                op, name, t.cols(), t.row_stride);
}

inline void has(const char* op, const char* name, const ConstTensor& t, const Shape& shape,
                DType dtype) {
  has(op, name, t, shape);
  TRIREME_CHECK(t.dtype == dtype, "{}: {} is {}, expected {}", op, name, base::name_of(t.dtype),
                base::name_of(dtype));
}

inline void may_have(const char* op, const char* name, const ConstTensor& t, const Shape& shape) {
  if (t) has(op, name, t, shape);
}

inline void may_have(const char* op, const char* name, const ConstTensor& t, const Shape& shape,
                     DType dtype) {
  if (t) has(op, name, t, shape, dtype);
}

// Checks an op that is also part of a pair.
void check(const QuantizeArgs&);

template <typename Struct>
void holds(const char* op, const char* name, const ConstTensor& t) {
  has(op, name, t, {static_cast<int64_t>(sizeof(Struct))}, DType::u8);
}

}  // namespace trireme::kernels::ops
