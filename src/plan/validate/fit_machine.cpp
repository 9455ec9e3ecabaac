// SPDX-License-Identifier: Apache-2.0
#include "plan/validate/fit_machine.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "base/check.h"
#include "plan/stack.h"
#include "plan/validate/minimise.h"

namespace trireme::plan {
namespace {

using spec::Machine;
using spec::Processor;

double seconds_of(const Machine& m, const TimedProduct& row) {
  return gemm_seconds(m.processor, row.product, row.precision);
}
double seconds_of(const Machine& m, const TimedAttention& row) {
  static const Stack plain;
  return attention_seconds(m.processor, plain, row.attention);
}
double seconds_of(const Machine& m, const TimedStream& row) {
  return streaming_seconds(m.processor, row.bytes);
}
double seconds_of(const Machine& m, const TimedCollective& row) {
  return collective_seconds(m, row.kind, row.group, row.bytes);
}

// Returns the mean of |ln(predicted / measured)|.
template <typename Row>
double log_error(const Machine& m, const std::vector<Row>& rows) {
  double sum = 0;
  for (const Row& row : rows) sum += std::abs(std::log(seconds_of(m, row) / row.seconds));
  return rows.empty() ? 0 : sum / static_cast<double>(rows.size());
}

// Returns the mean of |predicted / measured - 1|.
template <typename Row>
double residual(const Machine& m, const std::vector<Row>& rows) {
  double sum = 0;
  for (const Row& row : rows) sum += std::abs(seconds_of(m, row) / row.seconds - 1);
  return rows.empty() ? 0 : sum / static_cast<double>(rows.size());
}

// Streaming operations have one rate in the model but several in reality, because of caches and
// arithmetic. Therefore the total time of all rows, which matters in a step, has the larger weight.
double stream_error(const Machine& m, const std::vector<TimedStream>& rows) {
  if (rows.empty()) return 0;
  double predicted = 0, measured = 0;
  for (const TimedStream& row : rows) {
    predicted += seconds_of(m, row);
    measured += row.seconds;
  }
  return std::abs(std::log(predicted / measured)) + 0.2 * log_error(m, rows);
}

// A constant that is fitted between `low` and `high`. The search uses log(value + shift), so that
// equal steps are equal ratios and 0 can be reached.
struct Constant {
  double* field;
  double low, high, shift = 0;

  double number() const { return std::log(std::clamp(*field, low, high) + shift); }
  // Clamps the value to the limits, and returns how far it was outside.
  double set(double number) const {
    const double value = std::exp(number) - shift;
    *field = std::clamp(value, low, high);
    return std::abs(number - std::log(*field + shift));
  }
};

// Sets the constants to the values that minimise error().
void fit_constants(const std::vector<Constant>& constants, const std::function<double()>& error) {
  if (constants.empty()) return;
  const auto place = [&](const std::vector<double>& at) {
    double outside = 0;
    for (size_t i = 0; i < at.size(); ++i) outside += constants[i].set(at[i]);
    return outside;
  };
  std::vector<double> start;
  for (const Constant& one : constants) start.push_back(one.number());
  const auto value = [&](const std::vector<double>& at) {
    const double outside = place(at);
    return error() + outside;
  };
  place(minimise(value, start, 0.3).at);
}

void fit_operations(Machine& m, const Times& times) {
  Processor& p = m.processor;
  std::vector<Constant> constants;
  if (!times.products.empty()) {
    constants.push_back({&p.gemm_reach, 1e-3, 1});
    constants.push_back({&p.gemm_ramp, 0, 1e5, 10});
    const auto adds = [](const TimedProduct& row) { return row.product.accumulates; };
    if (std::any_of(times.products.begin(), times.products.end(), adds)) {
      constants.push_back({&p.accumulate_factor, 0.5, 10});
    }
  }
  if (!times.streams.empty()) constants.push_back({&p.memory_reach, 1e-3, 1});
  if (!constants.empty()) constants.push_back({&p.launch_seconds, 0, 1e-2, 1e-7});
  fit_constants(constants,
                [&] { return log_error(m, times.products) + stream_error(m, times.streams); });
  if (!times.products.empty()) m.residuals.gemm = residual(m, times.products);
  if (!times.streams.empty()) m.residuals.streaming = residual(m, times.streams);
}

void fit_attention(Machine& m, const std::vector<TimedAttention>& rows) {
  if (rows.empty()) return;
  Processor& p = m.processor;
  std::set<int64_t> heads, lengths;
  bool has_forward = false, has_backward = false, has_fixed_order = false, has_other_order = false;
  for (const TimedAttention& row : rows) {
    heads.insert(std::min<int64_t>(row.attention.shape.head_dim, 128));
    lengths.insert(row.attention.shape.seq_len);
    (row.attention.backward ? has_backward : has_forward) = true;
    if (is_order_priced(p, row.attention)) {
      has_fixed_order = true;
    } else if (row.attention.backward) {
      has_other_order = true;
    }
  }
  std::vector<Constant> constants;
  if (has_forward) constants.push_back({&p.attention_forward, 1e-3, 1});
  if (has_backward) constants.push_back({&p.attention_backward, 1e-3, 1});
  if (lengths.size() > 1) constants.push_back({&p.attention_ramp, 0, 1e5, 10});
  if (heads.size() > 1) constants.push_back({&p.attention_head, 0, 4, 0.1});
  if (has_fixed_order && has_other_order)
    constants.push_back({&p.attention_fixed_order, 0, 10, 0.1});
  fit_constants(constants, [&] { return log_error(m, rows); });
  m.residuals.attention = residual(m, rows);
}

void fit_links(Machine& m, const std::vector<TimedCollective>& rows) {
  if (rows.empty()) return;
  for (const TimedCollective& row : rows) {
    TRIREME_CHECK(row.group.size * row.group.stride <= m.domain.size, "{} ranks in a domain of {}",
                  row.group.size, m.domain.size);
  }
  m.domain.reach = 1;
  spec::LinkRate& link = m.domain.link;
  fit_constants({{&link.bytes_per_second, 1e3, 1e15}, {&link.latency, 0, 1, 1e-8}},
                [&] { return log_error(m, rows); });
  m.residuals.collective = residual(m, rows);
}

}  // namespace

spec::Machine fit_machine(spec::Machine machine, const Times& times) {
  fit_operations(machine, times);
  fit_attention(machine, times.attention);
  fit_links(machine, times.collectives);
  return machine;
}

}  // namespace trireme::plan
