// SPDX-License-Identifier: Apache-2.0
#include "spec/facts/backend.h"

namespace trireme::spec {

base::TensorSpec stream_workspace_spec(const Backend& backend) {
  if (backend.stream_workspace_bytes == 0) return {};
  return {{backend.stream_workspace_bytes}, base::DType::u8};
}

bool attention_is_fused(const Backend& backend, const AttentionShape& shape) {
  return backend.scratch->attention_is_fused(shape);
}

AttentionCall attention_call(const Backend& backend, const AttentionShape& shape) {
  return backend.scratch->attention_call(backend, shape);
}

base::TensorSpec attention_workspace(const Backend& backend, const AttentionShape& shape) {
  return backend.scratch->attention_workspace(backend, shape);
}

base::TensorSpec attention_ranges_workspace(const Backend& backend,
                                            const AttentionRangesShape& shape) {
  return backend.scratch->attention_ranges_workspace(backend, shape);
}

base::TensorSpec attention_cached_workspace(const Backend& backend,
                                            const CachedAttentionShape& shape) {
  return backend.scratch->attention_cached_workspace(shape);
}

base::TensorSpec embedding_workspace(const Backend& backend, int64_t tokens, int64_t width) {
  return backend.scratch->embedding_workspace(tokens, width);
}

}  // namespace trireme::spec
