// SPDX-License-Identifier: Apache-2.0
// The embedding: y = rows of the tokens (+ rows of the positions). It has no input, hence no B; its
// W scatters dy into the tables. Along tp a rank has some rows of the vocabulary: it uses zero for
// the other tokens, the first rank adds the positions, and y is the sum over ranks.
#include "spec/facts/facts_internal.h"

namespace trireme::spec::internal {

std::vector<Param> embedding_params(const EmbeddingSpec& s, const ModelSpec& model) {
  std::vector<Param> params(static_cast<size_t>(EmbeddingParam::count));
  params[static_cast<size_t>(EmbeddingParam::tokens)] =
      make_param("embedding.tokens", {s.vocab, s.width}, Init::normal, model.init_std);
  params[static_cast<size_t>(EmbeddingParam::tokens)].shard.cuts = {vocab_cut(s.vocab)};
  if (s.positions > 0) {
    params[static_cast<size_t>(EmbeddingParam::positions)] =
        make_param("embedding.positions", {s.positions, s.width}, Init::normal, model.init_std);
  }
  return params;
}

Facts embedding_facts(const EmbeddingSpec& s, const FactsInput& in) {
  const int64_t tokens = in.shape.tokens;
  const base::TensorSpec ids{{tokens}, base::DType::i32};
  const base::TensorSpec y{{tokens, s.width}, in.recipe.storage};
  const base::TensorSpec rows_of_grad{{tokens, s.width}, in.recipe.grad};
  const base::TensorSpec none{};
  const bool learned = s.positions > 0;
  const base::TensorSpec positions = ids;  // ops::embedding_forward() counts them in any case

  Facts f;
  f.params = embedding_params(s, in.model);
  f.stash.resize(static_cast<size_t>(EmbeddingSlot::count));
  f.stash[slot_x] = {.name = "x", .spec = {}};
  f.stash[slot_dy] = {
      .name = "dy", .spec = {{in.shape.rows(), s.width}, y.dtype}, .life = Life::b_to_w};
  const base::TensorSpec whole = in.shape.sequence_parallel ? y : none;
  f.scratch = {{"embedding.sum", {whole}, true},
               {"embedding.sort", {whole, embedding_workspace(in.backend, tokens, s.width)}}};
  const StreamComm comm(in, s.width);
  comm.sum(f.f_comm);
  comm.whole(f.w_comm);
  f.f = {streaming(OpKind::embedding_forward, y, {ids, positions, y, y, learned ? y : none})};
  f.w = {streaming(OpKind::embedding_backward, y,
                   {ids, positions, y, rows_of_grad, rows_of_grad, learned ? rows_of_grad : none,
                    learned ? rows_of_grad : none})};
  return f;
}

}  // namespace trireme::spec::internal
