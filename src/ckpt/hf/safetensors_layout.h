// SPDX-License-Identifier: Apache-2.0
// What the reader and the writer of safetensors files share: limits of the header and the table of
// dtypes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::ckpt {

constexpr uint64_t max_header_bytes = 100'000'000;
constexpr size_t header_length_bytes = sizeof(uint64_t);
constexpr const char* metadata_key = "__metadata__";

// Returns the index of a dtype, by ascending alignment in the order of the reference writer; -1 if
// unknown.
int dtype_rank(std::string_view dtype);

// Returns all dtypes, "BOOL, F4, ...", for messages.
std::string known_dtypes();

// Returns the bytes of a tensor, or nothing if they are 2^60 or more, or not a whole number.
// REQUIRES: the dtype is known.
std::optional<int64_t> tensor_bytes(std::string_view dtype, const std::vector<int64_t>& shape);

}  // namespace trireme::ckpt
