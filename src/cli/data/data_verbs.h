// SPDX-License-Identifier: Apache-2.0
// The verbs of the group data, one file for each or for a few that belong together.
#pragma once

#include <vector>

#include "cli/shell/args.h"

namespace trireme::cli {

Verb data_build_verb();
Verb data_clean_verb();
Verb data_convert_verb();
Verb data_inspect_verb();
Verb data_synth_verb();
Verb data_ngram_verb();
Verb tokenizer_train_verb();
Verb tokenizer_inspect_verb();
Verb tokenizer_encode_verb();
Verb tokenizer_decode_verb();

}  // namespace trireme::cli
