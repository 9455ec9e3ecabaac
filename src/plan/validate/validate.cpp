// SPDX-License-Identifier: Apache-2.0
#include "plan/validate/validate.h"

#include <cmath>

namespace trireme::plan {
namespace {

// Returns the predicted bytes of the kind that was measured.
double predicted_bytes(const Price& price, const PublishedRun& run) {
  if (run.memory_kind == MemoryKind::allocated) return price.bytes - price.at(Item::reserved);
  if (run.memory_kind == MemoryKind::device) return price.bytes;
  return price.bytes - run.stack.memory.extra_bytes - run.machine.processor.reserved_bytes;
}

}  // namespace

std::vector<Validated> validate(const std::vector<PublishedRun>& runs) {
  std::vector<Validated> all;
  for (const PublishedRun& run : runs) {
    if (!run.reason.empty()) continue;
    Validated row{.run = &run};
    row.price = Pricer(run.job, run.machine, run.stack).price(run.layout);
    if (run.seconds > 0) row.time_error = row.price.seconds / run.seconds - 1;
    if (run.bytes > 0) {
      row.bytes = predicted_bytes(row.price, run);
      row.memory_error = row.bytes / run.bytes - 1;
    }
    all.push_back(row);
  }
  return all;
}

ErrorSummary summary_of(const std::vector<Validated>& rows, const std::string& name) {
  ErrorSummary sum{.name = name};
  for (const Validated& row : rows) {
    if (row.run->seconds > 0) {
      ++sum.timed;
      sum.time += std::abs(row.time_error);
      sum.bias += row.time_error;
    }
    if (row.run->bytes > 0) {
      ++sum.weighed;
      sum.memory += std::abs(row.memory_error);
    }
  }
  if (sum.timed > 0) {
    sum.time /= sum.timed;
    sum.bias /= sum.timed;
  }
  if (sum.weighed > 0) sum.memory /= sum.weighed;
  return sum;
}

bool is_dense_16(const PublishedRun& run) {
  return !has_experts(run.job) && run.layout.precision == Precision::bf16;
}

}  // namespace trireme::plan
