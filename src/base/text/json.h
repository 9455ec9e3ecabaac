// SPDX-License-Identifier: Apache-2.0
// JSON values, with keys in the order they were written.
#pragma once

#include <nlohmann/json.hpp>

#include "base/text/json_fwd.h"
