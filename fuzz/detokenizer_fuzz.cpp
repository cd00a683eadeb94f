// SPDX-License-Identifier: Apache-2.0
// Pairs of bytes as token ids of the demo model: the output joins to the bytes of the tokens, and a
// rewind in the middle changes nothing. Runs in the repository root.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/text/detokenizer.h"
#include "lockstep/text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using lockstep::text::Detokenizer;
  using lockstep::text::Tokenizer;
  static const Tokenizer tokenizer = Tokenizer::open("models/demo").value();
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; at + 1 < size; at += 2)
    ids.push_back(data[at] | data[at + 1] << 8);

  Detokenizer detokenizer(tokenizer, false);
  std::string bytes, text;
  for (const std::int32_t id : ids) {
    bytes += tokenizer.token_bytes(id);
    const Detokenizer::Mark mark = detokenizer.mark();
    detokenizer.push(id ^ 1);
    detokenizer.rewind(mark);
    text += detokenizer.push(id);
    CHECK(bytes.size() - text.size() <= 3);
  }
  text += detokenizer.flush();
  CHECK(text == bytes);
  return 0;
}
