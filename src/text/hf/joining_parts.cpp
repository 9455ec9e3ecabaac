// SPDX-License-Identifier: Apache-2.0
// Decoders and post-processors.
#include <fmt/core.h>

#include <algorithm>

#include "text/hf/parts.h"
#include "text/unicode/utf8.h"

namespace trireme::text {

namespace {

constexpr int max_joining_nesting = 32;

void read_decoder_at(const JsonValue& json, int depth,
                     std::vector<std::unique_ptr<DecoderPart>>& parts) {
  if (depth > max_joining_nesting) json.fail("the sequences are nested too deep");
  const std::string type = json.type();
  if (type == "ByteLevel") {
    parts.push_back(byte_level_decoder());
  } else if (type == "ByteFallback") {
    parts.push_back(byte_fallback_decoder());
  } else if (type == "Fuse") {
    parts.push_back(fuse_decoder());
  } else if (type == "Strip") {
    const std::string content = json.at("content").character();
    parts.push_back(strip_decoder({.content = code_point_at(content.data()).value,
                                   .start = json.at("start").integer(0, 1 << 20),
                                   .stop = json.at("stop").integer(0, 1 << 20)}));
  } else if (type == "Replace") {
    parts.push_back(replace_decoder(read_pattern(json.at("pattern")), json.at("content").string()));
  } else if (type == "Metaspace") {
    const auto scheme = json.find("prepend_scheme");
    const bool drops_first =
        scheme ? scheme->string() != "never" : json.boolean_or("add_prefix_space", true);
    parts.push_back(metaspace_decoder(json.at("replacement").character(), drops_first));
  } else if (type == "Sequence") {
    for (const JsonValue& part : json.at("decoders").items()) {
      read_decoder_at(part, depth + 1, parts);
    }
  } else {
    json.at("type").fail_supported(
        "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, Sequence");
  }
}

// The ids of a special token of a template.
std::vector<int32_t> special_ids(const JsonValue& json, const JsonValue& name) {
  const auto token = json.at("special_tokens").find(name.string());
  if (!token) name.fail(fmt::format("'{}' is not one of special_tokens", name.string()));
  std::vector<int32_t> ids;
  for (const JsonValue& id : token->at("ids").items()) {
    ids.push_back(static_cast<int32_t>(id.integer(0, INT32_MAX)));
  }
  return ids;
}

TemplateIds read_template(const JsonValue& json) {
  TemplateIds made;
  int sequences = 0;
  const JsonValue single = json.at("single");
  for (const JsonValue& piece : single.items()) {
    if (const auto special = piece.find("SpecialToken")) {
      const auto ids = special_ids(json, special->at("id"));
      auto& side = sequences == 0 ? made.before : made.after;
      side.insert(side.end(), ids.begin(), ids.end());
    } else if (const auto sequence = piece.find("Sequence")) {
      const JsonValue id = sequence->at("id");
      if (id.string() != "A") id.fail_supported("A");
      ++sequences;
    } else {
      piece.fail("supported: an object with one key, 'SpecialToken' or 'Sequence'");
    }
  }
  if (sequences != 1) {
    single.fail(fmt::format("has the text {} times; supported: once", sequences));
  }
  return made;
}

TemplateIds read_post_processor_at(const JsonValue& json, int depth) {
  if (depth > max_joining_nesting) json.fail("the sequences are nested too deep");
  const std::string type = json.type();
  if (type == "ByteLevel") return {};  // changes offsets only
  if (type == "TemplateProcessing") return read_template(json);
  if (type == "Sequence") {
    TemplateIds made;
    for (const JsonValue& part : json.at("processors").items()) {
      const TemplateIds outer = read_post_processor_at(part, depth + 1);
      made.before.insert(made.before.begin(), outer.before.begin(), outer.before.end());
      made.after.insert(made.after.end(), outer.after.begin(), outer.after.end());
    }
    return made;
  }
  json.at("type").fail_supported("TemplateProcessing, ByteLevel, Sequence");
}

}  // namespace

std::vector<std::unique_ptr<DecoderPart>> read_decoder(const JsonValue& json) {
  std::vector<std::unique_ptr<DecoderPart>> parts;
  read_decoder_at(json, 0, parts);
  return parts;
}

TemplateIds read_post_processor(const JsonValue& json) { return read_post_processor_at(json, 0); }

}  // namespace trireme::text
