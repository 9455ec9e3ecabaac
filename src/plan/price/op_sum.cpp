// SPDX-License-Identifier: Apache-2.0
#include "plan/price/op_sum.h"

#include "plan/price/collective.h"
#include "plan/price/expert_cost.h"
#include "plan/price/op_time.h"
#include "spec/context/context_parallel.h"

namespace trireme::plan {
namespace {

using base::is_float8;
using spec::OpCost;
using spec::OpKind;

// Is quantising missing in the facts? So it is in those of other programs, and of fp4.
bool is_quantized(const Pricing& p) {
  if (p.products == Precision::fp4) return true;
  return spec::is_fp8(p.products) && !p.stack.is_engine();
}

// Quantising the activation of a product: read it, and write it in both orders.
double quantizing_seconds(const Pricing& p, const OpCost& op) {
  if (!is_quantized(p)) return 0;
  const double elements = static_cast<double>(op.m) * static_cast<double>(op.k);
  return streaming_seconds(p.machine.processor, 4 * elements);
}

// Returns the bytes of the activation of experts as a separate operation, which other programs
// have, and which the engine's products include.
double activation_bytes(const OpCost& op) {
  const double elements = static_cast<double>(op.m) * static_cast<double>(op.n);
  const auto size = static_cast<double>(base::size_of(op.dtype));
  // Reads gate and value, and writes their product; backward also reads its gradient and writes
  // those of gate and value.
  if (op.kind == OpKind::grouped_swiglu_forward) return 1.5 * elements * size;
  return op.kind == OpKind::grouped_swiglu_backward ? 6 * elements * size : 0;
}

// Returns the precision of a product: that of its operands on the engine.
Precision precision_of(const Pricing& p, const OpCost& op) {
  const bool is_bf16 = p.stack.is_engine() && spec::is_fp8(p.products) && !is_float8(op.dtype);
  return is_bf16 ? Precision::bf16 : p.products;
}

Float8Product float8_product(const Pricing& p, const OpCost& op, Pass pass) {
  if (!is_float8(op.dtype)) return Float8Product::any;
  const spec::Float8Recipe& recipe = *p.recipe.fp8;
  if (recipe.rows == spec::ScaleShape::tensor) {
    return pass == Pass::forward && recipe.fast_forward ? Float8Product::fast
                                                        : Float8Product::split;
  }
  return pass == Pass::weight_gradient ? Float8Product::rows : Float8Product::block;
}

double op_seconds(const Pricing& p, const OpCost& op, Pass pass) {
  if (op.kind == OpKind::gemm) {
    // The engine's products of codes are nt in all phases.
    const bool accumulates =
        op.layout == spec::GemmLayout::tn || (is_float8(op.dtype) && pass == Pass::weight_gradient);
    const double seconds = p.stack.gemm * gemm_seconds(p.machine.processor,
                                                       {.m = op.m,
                                                        .n = op.n,
                                                        .k = op.k,
                                                        .bytes = static_cast<double>(op.bytes),
                                                        .accumulates = accumulates,
                                                        .float8 = float8_product(p, op, pass)},
                                                       precision_of(p, op));
    return seconds + quantizing_seconds(p, op);
  }
  if (is_grouped_product(op.kind)) {
    const double bytes = p.stack.is_engine() ? 0 : activation_bytes(op) * p.streaming;
    const double activation = bytes > 0 ? streaming_seconds(p.machine.processor, bytes) : 0;
    return activation +
           p.stack.gemm * grouped_seconds(p.job, p.machine, backend_of(p.job, p.stack), *p.moe,
                                          p.key, op,
                                          {precision_of(p, op), float8_product(p, op, pass)}) +
           quantizing_seconds(p, op);
  }
  const double factor = is_row_op(op.kind) ? 1 : p.streaming;
  return streaming_seconds(p.machine.processor, static_cast<double>(op.bytes) * factor);
}

bool is_attention_backward(OpKind kind) {
  return kind == OpKind::attention_backward || kind == OpKind::attention_ranges_backward;
}

bool is_attention(OpKind kind) {
  return kind == OpKind::attention_forward || kind == OpKind::attention_ranges_forward ||
         is_attention_backward(kind);
}

}  // namespace

spec::Backend backend_of(const Job& job, const Stack& stack) {
  if (stack.is_engine()) return job.backend;
  spec::Backend backend = spec::cuda_backend(false);
  backend.expert_tile = 1;
  return backend;
}

OpSum sum_of(const Pricing& p, const std::vector<OpCost>& ops, const spec::AttentionShape& shape,
             Pass pass) {
  OpSum sum;
  const spec::Backend backend = backend_of(p.job, p.stack);
  const double pairs = spec::causal_pairs(shape.sequences, shape.seq_len) *
                       static_cast<double>(shape.heads * shape.head_dim);
  // The rank along cp with the most pairs counts.
  const double balance =
      spec::context_balance(p.key.context_slices, p.key.cp / p.key.ulysses, p.job.seq_len);
  for (const OpCost& op : ops) {
    sum.kernels += 1;
    if (is_attention(op.kind)) {
      const bool is_backward = is_attention_backward(op.kind);
      const double part = op.flops / ((is_backward ? 10 : 4) * pairs);
      const double seconds =
          attention_seconds(p.machine.processor, p.stack,
                            {shape, is_backward, part * balance,
                             backend.deterministic && spec::attention_is_fused(backend, shape)});
      sum.attention += seconds;
      sum.seconds += seconds;
      sum.flops += op.flops;
    } else {
      const double seconds = op_seconds(p, op, pass);
      sum.seconds += seconds;
      sum.flops += op.flops;
      if (op.kind == OpKind::gemm || is_grouped_product(op.kind)) {
        sum.products += seconds;
        sum.product_flops += op.flops;
      }
    }
  }
  return sum;
}

double tp_seconds(const Pricing& p, const std::vector<spec::CommCost>& all) {
  double seconds = 0;
  for (const spec::CommCost& comm : all) {
    if (comm.axis != spec::Axis::tp) continue;
    const auto bytes =
        static_cast<double>(comm.elements) * static_cast<double>(base::size_of(comm.dtype));
    const Collective kind = comm.kind == spec::CommKind::all_reduce   ? Collective::all_reduce
                            : comm.kind == spec::CommKind::all_gather ? Collective::all_gather
                                                                      : Collective::reduce_scatter;
    const bool fixed = kind != Collective::all_gather && sums_in_fixed_order(p.job, p.stack);
    seconds += sum_seconds(p.machine, kind, {p.key.tp, 1}, bytes, fixed);
  }
  return seconds * (1 - p.stack.tp_overlap);
}

}  // namespace trireme::plan
