// SPDX-License-Identifier: Apache-2.0
// Conversion is the job of another program as a configuration of Trireme, with the origin of each
// key and the settings that have no place in it. It is made by plan/convert/convert_torchtitan.h
// and plan/convert/convert_megatron.h.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_fwd.h"
#include "config/config.h"
#include "plan/import/described.h"

namespace trireme::plan {

struct ConvertOptions {
  int64_t gpus = 0;  // 0: the number is left open where the source leaves it open
  std::string data;  // replaces the data of the source, which may be of another kind; empty: none
};

struct Dropped {
  std::string setting;  // the key or flag of the source
  std::string reason;
};

struct Conversion {
  std::string source;     // "TorchTitan's job.toml"
  config::Config config;  // with open keys
  // What a key was made of, by its path: the source's settings, or "TorchTitan's default".
  std::map<std::string, std::string> origins;
  std::vector<std::string> changed;  // what Trireme does instead of a setting, one line each
  std::vector<Dropped> dropped;
};

// A key of a configuration, and the settings of the source that it is made of.
struct KeyOrigin {
  std::string_view key;
  std::vector<std::string_view> settings;
};

// Sets the layout, model and batch. With `leaves_ranks_open` the degree of data parallelism is left
// to the number of ranks that the run is started with. Throws ConfigError, which begins with the
// source's name, if Trireme cannot train the model or its number format.
void take_job(const Described&, bool leaves_ranks_open, Conversion&);

// Sets the origins of all keys in `keys` that were given, and of those that differ from Trireme's
// default because of the other program's default. Calls `was_given` with the source's settings.
void set_origins(std::span<const KeyOrigin> keys, const std::string& program,
                 const std::function<bool(std::string_view)>& was_given, Conversion&);

// A reason why settings are dropped: those that are equal to `setting`, or begin with it if it ends
// in a dot or a dash.
struct DropReason {
  std::string_view setting, reason;
};
// Drops the settings that are not in `keys`. Settings without a reason have "Trireme has no such
// setting".
void drop_others(const std::vector<std::string>& given, std::span<const KeyOrigin> keys,
                 std::span<const DropReason> reasons, Conversion&);

// Returns the configuration with a comment for every key; `trireme train` accepts it.
std::string to_toml(const Conversion&);
// Returns {"keys": {path: {"value", "from"}}, "changed": [...], "dropped": {setting: reason}}.
base::Json to_json(const Conversion&);

}  // namespace trireme::plan
