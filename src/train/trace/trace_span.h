// SPDX-License-Identifier: Apache-2.0
// The data of traced steps: what ran on every stream of a rank, and when. Ranks record it
// (stream_timeline.h) and send it to the first rank (rank_trace.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme::train {

// One op, call or wait on one stream. Times are nanoseconds of the rank's host clock; strings are
// indices of RankTrace::strings. Trivially copyable: ranks send it as bytes.
struct TraceSpan {
  enum class Kind : uint8_t { op, copy, communication, wait };
  Kind kind = Kind::op;
  uint8_t depth = 0;       // spans around it on its stream
  uint8_t host_depth = 0;  // calls around it on the host
  // Was it queued by itself? False: compute could not run because a call on another stream ran.
  bool is_queued = true;
  int32_t stream = 0;                            // index of RankTrace::streams
  int64_t step = 0;                              // of training
  int64_t begin_ns = 0, end_ns = 0;              // on the device
  int64_t queue_begin_ns = 0, queue_end_ns = 0;  // on the host
  int32_t name = 0;                              // "gemm nt", "all_gather", "wait for dp"
  int32_t category = 0;                          // by which viewers filter
  int32_t place = 0;                             // "blocks.3/attention"
  int32_t layer = 0;                             // "blocks.3"
  int32_t action = 0;                            // "F0"
  int32_t shape = 0;                             // of an op
  double flops = 0;                              // of an op
  int64_t bytes = 0;
  // ---- communication
  int32_t group = 0, ranks = 0;  // "zero", "0,1"
  int32_t peer = -1;             // rank of the world
  int64_t sequence = -1;
};

// When the host began a step, and when all streams had completed it.
struct TracedStep {
  int64_t step = 0;
  int64_t begin_ns = 0, end_ns = 0;
};

// Strings by index. Index 0 is the empty string.
class StringTable {
 public:
  int32_t add(const std::string& text) {
    const auto [at, is_new] = indices_.emplace(text, static_cast<int32_t>(strings_.size()));
    if (is_new) strings_.push_back(text);
    return at->second;
  }
  const std::vector<std::string>& strings() const { return strings_; }

 private:
  std::vector<std::string> strings_ = {""};
  std::map<std::string, int32_t> indices_ = {{"", 0}};
};

}  // namespace trireme::train
