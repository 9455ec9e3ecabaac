// SPDX-License-Identifier: Apache-2.0
// The kinds of context parallelism, and of slices of the rows of a sequence.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trireme::spec {

// How ranks along cp, which have different rows of the same sequences, compute attention. ulysses:
// all-to-all exchanges rows for heads, so that a rank attends with some heads over whole sequences.
// gather: every rank gathers keys and values of all rows. ring: keys and values go round from rank
// to rank, and partial results are merged. ulysses_gather, ulysses_ring: ulysses among adjacent
// ranks, the other one across these groups.
enum class ContextKind : uint8_t { ulysses, gather, ring, ulysses_gather, ulysses_ring, count };
std::string_view name_of(ContextKind);
std::optional<ContextKind> context_kind_from_name(std::string_view);
// Is ulysses a part of it, and is gather, or ring?
bool has_ulysses(ContextKind);
bool has_gather(ContextKind);
bool has_ring(ContextKind);

// Which rows of a sequence a rank along cp has. zigzag: chunks r and 2 cp - 1 - r of 2 cp chunks.
// contiguous: chunk r of cp chunks. striped: every cp-th row. blocks: blocks of rows, assigned by
// the work that documents cause.
enum class ContextSlices : uint8_t { zigzag, contiguous, striped, blocks, count };
std::string_view name_of(ContextSlices);
std::optional<ContextSlices> context_slices_from_name(std::string_view);

}  // namespace trireme::spec
