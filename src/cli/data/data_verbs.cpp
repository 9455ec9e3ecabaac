// SPDX-License-Identifier: Apache-2.0
#include "cli/data/data_verbs.h"

#include "cli/verbs.h"

namespace trireme::cli {

std::vector<Verb> data_verbs() {
  std::vector<Verb> verbs;
  for (Verb (*const verb)() :
       {data_build_verb, data_clean_verb, data_convert_verb, data_inspect_verb, data_synth_verb,
        data_ngram_verb, tokenizer_train_verb, tokenizer_inspect_verb, tokenizer_encode_verb,
        tokenizer_decode_verb}) {
    verbs.push_back(verb());
  }
  return verbs;
}

}  // namespace trireme::cli
