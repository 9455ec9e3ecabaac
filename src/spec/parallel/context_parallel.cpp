// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/context_parallel.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::spec {
namespace {

constexpr int64_t max_block = 512, min_block = 128;

// Adds the exchange of rows for heads, or back: `elements` of each rank.
void add_exchange(const ContextShape& s, int64_t elements, std::vector<ContextComm>& all) {
  if (s.ulysses == 1) return;
  all.push_back({CommKind::all_to_all, s.ulysses, 1, elements, s.dtype, 1});
}

// Elements of keys and values of one head after the exchange, on one rank.
int64_t kv_of_head(const ContextShape& s) { return 2 * s.rows() * s.ulysses * s.head_dim; }

int heads_after(const ContextShape& s) {
  return static_cast<int>(s.exchanged_kv_heads() / s.ulysses);
}

void add_gather(const ContextShape& s, CommKind kind, base::DType dtype,
                std::vector<ContextComm>& all) {
  all.push_back({kind, s.groups(), s.ulysses, s.groups() * kv_of_head(s), dtype, heads_after(s)});
}

void add_ring(const ContextShape& s, base::DType dtype, std::vector<ContextComm>& all) {
  all.push_back({CommKind::shift, s.groups(), s.ulysses, heads_after(s) * kv_of_head(s), dtype,
                 s.groups() - 1});
}

// Return the pairs of query and key of the group of ranks with the most of them.
double contiguous_pairs(double seq_len, double groups) {
  const double rows = seq_len / groups;
  return rows * (seq_len - rows) + rows * (rows + 1) / 2;
}
// The last group has the last `ulysses` rows of each stripe of cp rows.
double striped_pairs(double seq_len, double cp, double ulysses) {
  const double stripes = seq_len / cp;
  return ulysses * cp * stripes * (stripes - 1) / 2 +
         stripes * (ulysses * (cp - ulysses) + ulysses * (ulysses + 1) / 2);
}

}  // namespace

int64_t ContextShape::exchanged_kv_heads() const { return std::max<int64_t>(kv_heads, ulysses); }

int64_t sent_bytes(const ContextComm& comm) {
  return comm.count * sent_bytes({comm.kind, Axis::cp, comm.elements, comm.dtype}, comm.ranks);
}

int64_t sent_bytes(const std::vector<ContextComm>& all) {
  int64_t bytes = 0;
  for (const ContextComm& comm : all) bytes += sent_bytes(comm);
  return bytes;
}

ContextComms context_comm(const ContextShape& s) {
  TRIREME_CHECK(s.ulysses >= 1 && s.cp % s.ulysses == 0, "ulysses {} of cp {}", s.ulysses, s.cp);
  ContextComms comms;
  if (s.cp == 1) return comms;
  const int64_t queries = s.rows() * s.heads * s.head_dim;
  const int64_t all = queries + 2 * s.rows() * s.exchanged_kv_heads() * s.head_dim;
  add_exchange(s, all, comms.forward);
  add_exchange(s, queries, comms.backward);
  if (s.groups() > 1 && has_gather(s.kind)) {
    add_gather(s, CommKind::all_gather, s.dtype, comms.forward);
    add_gather(s, CommKind::all_gather, s.dtype, comms.backward);
    add_gather(s, CommKind::reduce_scatter, s.grad_dtype, comms.backward);
  } else if (s.groups() > 1) {
    add_ring(s, s.dtype, comms.forward);
    add_ring(s, s.dtype, comms.backward);
    add_ring(s, s.grad_dtype, comms.backward);
  }
  add_exchange(s, queries, comms.forward);
  add_exchange(s, all, comms.backward);
  return comms;
}

int64_t context_scratch_bytes(const ContextShape& s, bool backward) {
  if (s.groups() == 1) return 0;
  const int64_t parts = has_gather(s.kind) ? s.groups() : heads_after(s);
  const int64_t elements = parts * kv_of_head(s);
  const int64_t gradients = has_gather(s.kind) ? elements : 2 * elements;
  return 2 * elements * base::size_of(s.dtype) +
         (backward ? gradients * base::size_of(s.grad_dtype) : 0);
}

double context_balance(ContextKind kind, ContextSlices slices, int cp, int ulysses,
                       int64_t seq_len) {
  const int groups = kind == ContextKind::ulysses ? 1 : cp / std::max(ulysses, 1);
  if (groups <= 1) return 1;
  const auto rows = static_cast<double>(seq_len);
  const double mean = rows * (rows + 1) / 2 / groups;
  if (slices == ContextSlices::contiguous) return contiguous_pairs(rows, groups) / mean;
  if (slices == ContextSlices::striped) return striped_pairs(rows, cp, ulysses) / mean;
  return 1;
}

int64_t context_unit(ContextSlices slices, int cp) {
  const bool has_pairs = slices == ContextSlices::zigzag || slices == ContextSlices::blocks;
  return (has_pairs ? 2 : 1) * int64_t{cp};
}

int64_t context_block(int64_t seq_len, int cp) {
  const int64_t chunk = seq_len / context_unit(ContextSlices::blocks, cp);
  if (chunk <= max_block) return chunk;
  for (int64_t rows = max_block; rows >= min_block; rows /= 2) {
    if (chunk % rows == 0) return rows;
  }
  return 0;
}

bool context_allows(ContextKind kind, ContextSlices slices) {
  return !has_ring(kind) || slices != ContextSlices::blocks;
}

}  // namespace trireme::spec
