// SPDX-License-Identifier: Apache-2.0
// trireme data inspect: counts of a data set, its manifest, and its first documents as text.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/text/json.h"
#include "cli/data/data_options.h"
#include "cli/data/data_verbs.h"
#include "cli/shell/progress.h"
#include "data/inspect.h"
#include "data/tokenizer_beside.h"
#include "text/tokenizer.h"

namespace trireme::cli {
namespace {

using base::ConfigError;
using base::Json;

constexpr int64_t max_shown_tokens = 400;  // of a document

// Decodes tokens: by a tokenizer, or as bytes.
class Decoder {
 public:
  Decoder(const Args& args, const data::TokenData& data, const std::optional<Json>& manifest) {
    const auto beside = data::tokenizer_beside(args.text("data"));
    const bool is_bytes =
        data.format() == data::TokenFormat::text ||
        (manifest && manifest->value("/tokenizer/fingerprint"_json_pointer, "") == "bytes");
    if (args.text("--tokenizer") == "bytes") return;
    if (args.has("--tokenizer")) {
      tokenizer_ = text::open_tokenizer(args.text("--tokenizer"));
    } else if (beside) {
      tokenizer_ = text::open_tokenizer(*beside);
    } else if (!is_bytes) {
      throw ConfigError(
          fmt::format("--show: there is no tokenizer beside {}; give --tokenizer, or "
                      "--tokenizer bytes for one token per byte",
                      data.name()));
    }
  }

  std::string text(const std::vector<int32_t>& tokens) const {
    if (tokenizer_) return tokenizer_->decode(tokens, {.skip_special = false});
    std::string bytes;
    for (const int32_t token : tokens) {
      bytes += token < 256 ? std::string(1, static_cast<char>(token)) : fmt::format("<{}>", token);
    }
    return bytes;
  }

 private:
  std::unique_ptr<text::Tokenizer> tokenizer_;  // nullptr: bytes
};

Json first_documents(const data::TokenData& data, int64_t count, const Decoder& decoder) {
  Json shown = Json::array();
  const data::DocumentIndex& documents = data.documents();
  for (int64_t i = 0; i < std::min(count, documents.count()); ++i) {
    const int64_t begin = documents.start(i), end = documents.start(i + 1);
    std::vector<int32_t> tokens(static_cast<size_t>(std::min(end - begin, max_shown_tokens)));
    data.read(begin, tokens);
    shown.push_back({{"document", i}, {"tokens", end - begin}, {"text", decoder.text(tokens)}});
  }
  return shown;
}

std::string documents_text(const Json& shown) {
  std::string text;
  for (const Json& document : shown) {
    const auto tokens = document["tokens"].get<int64_t>();
    text += fmt::format(
        "--- document {}, {} tokens{}\n{}\n", document["document"].get<int64_t>(), tokens,
        tokens > max_shown_tokens ? fmt::format(", the first {} are shown", max_shown_tokens) : "",
        document["text"].get<std::string>());
  }
  return text;
}

// Values of a manifest are printed as they are: any program may have written it.
std::string plain(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string manifest_text(const Json& manifest) {
  std::string text;
  if (manifest.contains("tokenizer")) {
    const Json& tokenizer = manifest["tokenizer"];
    text += fmt::format("  tokenizer  {}\n", tokenizer.is_object()
                                                 ? plain(tokenizer.value("fingerprint", Json("?")))
                                                 : plain(tokenizer));
  }
  if (manifest.contains("converted_from")) {
    text += fmt::format("  converted  from {}\n", plain(manifest["converted_from"]));
  }
  if (!manifest.contains("shards") || !manifest["shards"].is_array()) return text;
  constexpr size_t max_listed = 20;
  const Json& shards = manifest["shards"];
  for (size_t i = 0; i < std::min(shards.size(), max_listed); ++i) {
    if (!shards[i].is_object()) continue;
    const Json counts = shards[i].value("counts", Json::object());
    text += fmt::format(
        "  source     {}, {} documents, {} tokens, xxh3 {}\n",
        plain(shards[i].value("file", Json("?"))), plain(counts.value("documents", Json("?"))),
        plain(counts.value("tokens", Json("?"))), plain(shards[i].value("xxh3_128", Json("?"))));
  }
  if (shards.size() > max_listed) {
    text += fmt::format("             and {} more files\n", shards.size() - max_listed);
  }
  return text;
}

int run_inspect(const Args& args) {
  const auto tokens = open_data_set(args);
  const auto manifest = data::manifest_beside(args.text("data"));
  const int64_t count = args.integer("--show");
  if (count < 0) throw ConfigError(fmt::format("--show {}: 0 or more documents", count));
  Json shown = Json::array();
  if (count > 0) shown = first_documents(*tokens, count, Decoder(args, *tokens, manifest));
  Progress progress("data inspect", "tokens", tokens->tokens());
  const data::DatasetReport report =
      data::inspect(*tokens, [&progress](int64_t done, int64_t) { progress.update(done); });
  progress.finish();
  if (args.wants_json()) {
    Json out = data::to_json(report);
    out["ok"] = true;
    if (manifest) out["manifest"] = *manifest;
    if (count > 0) out["shown"] = shown;
    fmt::print("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}{}{}", data::to_text(report), manifest ? manifest_text(*manifest) : "",
               documents_text(shown));
  }
  return 0;
}

}  // namespace

Verb data_inspect_verb() {
  std::vector<Option> options = data_set_options();
  options.push_back({.name = "--show",
                     .kind = Kind::integer,
                     .fallback = "0",
                     .help = "Number of documents to print as text"});
  options.push_back(
      {.name = "--tokenizer",
       .help = "Tokenizer for --show, or bytes; default: the one beside the data set"});
  return {.name = "data inspect",
          .summary = "Print documents, lengths, skew and token range of a data set",
          .details =
              "Beside a data set of data build, the manifest shows the sources and the\n"
              "tokenizer.\n\n"
              "Examples:\n  trireme data inspect runs/book\n"
              "  trireme data inspect runs/book --show 1\n"
              "  trireme data inspect train.bin --format nanogpt --type u16 --json",
          .options = std::move(options),
          .run = run_inspect};
}

}  // namespace trireme::cli
