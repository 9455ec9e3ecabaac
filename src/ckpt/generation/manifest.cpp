// SPDX-License-Identifier: Apache-2.0
// The manifest as text: a line that names the format, a JSON object, a line with the hash.
#include <fmt/core.h>

#include <functional>
#include <limits>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/disk.h"
#include "ckpt/generation/format.h"

namespace trireme::ckpt {
namespace {

using base::Json;

constexpr const char* manifest_title = "trireme checkpoint";
constexpr int max_depth = 64;  // of nested values

// Reads keys of one object; a key that is missing or has another type is an error.
class Fields {
 public:
  Fields(const Json& object, std::string name, const std::string& where)
      : object_(object), name_(std::move(name)), where_(where) {
    if (!object_.is_object()) fail("it must be an object");
  }
  const Json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) fail(fmt::format("'{}' is missing", key));
    return *found;
  }
  const Json& list(const char* key) const {
    if (!at(key).is_array()) fail(fmt::format("'{}' must be a list", key));
    return at(key);
  }
  const Json& object(const char* key) const {
    if (!at(key).is_object()) fail(fmt::format("'{}' must be an object", key));
    return at(key);
  }
  std::string text(const char* key) const {
    if (!at(key).is_string()) fail(fmt::format("'{}' must be a string", key));
    return at(key).get<std::string>();
  }
  int64_t number(const char* key) const { return number(at(key), key); }
  int64_t number(const Json& value, const char* key) const {
    if (!value.is_number_unsigned() ||
        value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
      fail(fmt::format("'{}' must be a whole number from 0 to 2^63 - 1", key));
    }
    return value.get<int64_t>();
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw base::IoError(fmt::format("{}: {}: {}", where_, name_, what));
  }

 private:
  const Json& object_;
  std::string name_;
  const std::string& where_;
};

TensorInfo read_tensor(const Fields& fields) {
  TensorInfo tensor;
  tensor.name = fields.text("name");
  try {
    tensor.dtype = base::dtype_from_name(fields.text("dtype"));
  } catch (const base::ConfigError& error) {
    fields.fail(error.what());
  }
  const Json& shape = fields.list("shape");
  if (shape.size() > max_ndim) fields.fail(fmt::format("{} dimensions", shape.size()));
  for (const Json& extent : shape) tensor.shape.push_back(fields.number(extent, "shape"));
  if (const std::string rule = broken_rule(tensor); !rule.empty()) fields.fail(rule);
  return tensor;
}

FileInfo read_file(const Fields& fields) {
  FileInfo file;
  const int64_t rank = fields.number("rank");
  if (rank > std::numeric_limits<int>::max()) fields.fail(fmt::format("rank {}", rank));
  file.rank = static_cast<int>(rank);
  file.data_bytes = fields.number("data_bytes");
  file.index_bytes = fields.number("index_bytes");
  if (file.data_bytes % page_bytes != 0 || file.index_bytes > max_index_bytes) {
    fields.fail(
        fmt::format("{} bytes of data and {} of index; a multiple of {} and at most {} are "
                    "allowed",
                    file.data_bytes, file.index_bytes, page_bytes, max_index_bytes));
  }
  const std::optional<Hash> hash = hash_from_hex(fields.text("index_hash"));
  if (!hash) fields.fail("'index_hash' must be 32 digits, 0-9 and a-f");
  file.index_hash = *hash;
  return file;
}

Json parse_json(std::string_view text, const std::string& where) {
  bool is_too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    is_too_deep = is_too_deep || depth > max_depth;
    return depth <= max_depth;
  };
  Json json;
  try {
    json = Json::parse(text, watch);
  } catch (const Json::exception& error) {
    throw base::IoError(fmt::format("{}: {}", where, error.what()));
  }
  if (is_too_deep) {
    throw base::IoError(fmt::format("{}: values nest deeper than {} levels", where, max_depth));
  }
  return json;
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  Json tensors = Json::array(), files = Json::array();
  for (const TensorInfo& tensor : manifest.tensors) {
    TRIREME_CHECK(broken_rule(tensor).empty(), "{}", broken_rule(tensor));
    tensors.push_back(
        {{"name", tensor.name}, {"dtype", base::name_of(tensor.dtype)}, {"shape", tensor.shape}});
  }
  for (const FileInfo& file : manifest.files) {
    files.push_back({{"rank", file.rank},
                     {"data_bytes", file.data_bytes},
                     {"index_bytes", file.index_bytes},
                     {"index_hash", to_hex(file.index_hash)}});
  }
  TRIREME_CHECK(manifest.step >= 0, "step {}", manifest.step);
  TRIREME_CHECK(manifest.state.is_object() && manifest.plan.is_object(),
                "state and plan must be objects");
  Json json = {{"step", manifest.step},
               {"state", manifest.state},
               {"plan", manifest.plan},
               {"files", files},
               {"tensors", tensors}};
  if (!manifest.writer.run.empty()) {
    json["run"] = manifest.writer.run;
    json["epoch"] = manifest.writer.epoch;
  }
  try {
    return sealed(fmt::format("{} {}\n{}\n", manifest_title, format_version, json.dump()));
  } catch (const Json::exception& error) {  // text that is not UTF-8
    throw base::IoError(fmt::format("the state or plan cannot be saved: {}", error.what()));
  }
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  const std::string_view body = unsealed(text, manifest_title, where);
  const Json json = parse_json(body.substr(body.find('\n') + 1), where);
  const Fields fields(json, "manifest", where);
  Manifest manifest;
  manifest.step = fields.number("step");
  if (json.contains("run")) {
    manifest.writer = {.run = fields.text("run"), .epoch = fields.number("epoch")};
    if (!is_run_id(manifest.writer.run)) {
      fields.fail("'run' must be 1 to 32 letters and digits");
    }
  }
  manifest.state = fields.object("state");
  manifest.plan = fields.object("plan");
  std::set<std::string_view> names;
  const Json& tensors = fields.list("tensors");
  manifest.tensors.reserve(tensors.size());
  for (const Json& json_tensor : tensors) {
    const Fields tensor(json_tensor, fmt::format("tensor {}", manifest.tensors.size()), where);
    manifest.tensors.push_back(read_tensor(tensor));
    if (!names.insert(manifest.tensors.back().name).second) {
      tensor.fail(fmt::format("{} is there twice", manifest.tensors.back().name));
    }
  }
  for (const Json& json_file : fields.list("files")) {
    const Fields file(json_file, fmt::format("file {}", manifest.files.size()), where);
    manifest.files.push_back(read_file(file));
    if (manifest.files.size() > 1 &&
        manifest.files.back().rank <= manifest.files[manifest.files.size() - 2].rank) {
      file.fail(fmt::format("rank {} after rank {}; ranks must ascend", manifest.files.back().rank,
                            manifest.files[manifest.files.size() - 2].rank));
    }
  }
  return manifest;
}

}  // namespace trireme::ckpt
