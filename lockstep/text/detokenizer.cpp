// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/detokenizer.h"

#include <algorithm>

#include "lockstep/text/utf8.h"

namespace lockstep::text {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {}

std::string Detokenizer::push(std::int32_t id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  std::string text = flush();
  text += tokenizer_->token_bytes(id);
  // Only the last three bytes can belong to a character that isn't complete.
  for (std::size_t back = std::min<std::size_t>(state_.tail.size(), text.size()); back > 0;
       --back) {
    const std::string_view end = std::string_view(text).substr(text.size() - back);
    if (read_utf8(end).kind != Utf8Unit::Kind::kUnfinished) continue;
    std::copy(end.begin(), end.end(), state_.tail.begin());
    state_.tail_size = static_cast<std::uint8_t>(back);
    text.resize(text.size() - back);
    break;
  }
  return text;
}

std::string Detokenizer::flush() {
  std::string text(state_.tail.data(), state_.tail_size);
  state_ = {};
  return text;
}

}  // namespace lockstep::text
