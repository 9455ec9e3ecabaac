// SPDX-License-Identifier: Apache-2.0
// The verbs of `trireme ckpt`, one file each.
#pragma once

#include "cli/shell/args.h"

namespace trireme::cli {

Verb ckpt_list_verb();
Verb ckpt_inspect_verb();
Verb ckpt_verify_verb();
Verb ckpt_mark_verb();
Verb ckpt_diff_verb();
Verb ckpt_reshard_verb();
Verb ckpt_export_verb();
Verb ckpt_import_verb();

}  // namespace trireme::cli
