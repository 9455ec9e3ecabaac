// SPDX-License-Identifier: Apache-2.0
// The mark that counts for a checkpoint, by the lines of marks.jsonl. Pure.
//
// Two kinds of lines are about a checkpoint: those that name it, and bad marks of an earlier state
// that it continues, unless that state was marked otherwise later. The last of all these counts.
// A run that resumed from a step before a bad one continues without it, and is not covered.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ckpt/marks/marks.h"

namespace trireme::ckpt {

// Returns the line that counts; none: the checkpoint is not marked.
std::optional<MarkLine> mark_of(const GenerationId&, const Marks&);

// Does the state `later` continue the state `earlier`, or is it the same? An epoch without a line
// counts as one that continued from its newest checkpoint.
bool continues(const GenerationId& later, const GenerationId& earlier, const Marks&);

}  // namespace trireme::ckpt
