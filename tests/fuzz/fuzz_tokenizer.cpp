// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "base/error.h"
#include "memory_file.h"
#include "readers.h"
#include "text/hf/hf_tokenizer.h"
#include "text/unicode/utf8.h"

namespace trireme::fuzz {

// A tokenizer that is read encodes text to ids that have a token, and its stream gives the text of
// decode().
bool read_tokenizer(Input input) {
  static const MemoryFile file;
  file.fill(input);
  std::unique_ptr<text::Tokenizer> tokenizer;
  try {
    tokenizer = text::open_hf_tokenizer(file.path());
    for (const char* sample :
         {"", "a b  c\n", "Hello, WORLD 1234's \xE6\x97\xA5\xCC\x81\xFF <s>"}) {
      const auto ids = tokenizer->encode(sample);
      const auto stream = tokenizer->streaming_decoder();
      std::string joined;
      for (const int32_t id : ids) {
        TRIREME_CHECK(tokenizer->token_of(id).has_value(), "the id {} has no token", id);
        joined += stream->push(id);
      }
      joined += stream->finish();
      TRIREME_CHECK(joined == tokenizer->decode(ids), "the stream gave another text");
      TRIREME_CHECK(text::is_valid_utf8(joined), "the text is not valid UTF-8");
    }
  } catch (const base::Error&) {
    return false;  // refused
  }
  return true;
}

}  // namespace trireme::fuzz
