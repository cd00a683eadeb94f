// SPDX-License-Identifier: Apache-2.0
// Where a piece of a prompt came from, carried through a template engine that doesn't know: text of
// the user is marked before rendering wherever it could be taken for an added token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/io/json.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::text {

// Two private-use characters that occur in none of the texts at hand, so nothing needs escaping.
//   inside  stands within a literal: nothing that spans it is an added token.
//   tag     stands on both sides of a think tag in an assistant's content. The template may split
//           there as it does (the bridge then drops the marks); where it doesn't, the tag is text.
struct Marks {
  char32_t inside = 0;
  char32_t tag = 0;

  std::string both() const;  // UTF-8, as the bridge takes them
};

class Marker {
 public:
  // Chooses marks that are neither in `texts` nor in `values`, keys included.
  // kLimit when every private-use character is taken.
  static Result<Marker> create(const std::vector<AddedToken>& added,
                               const std::vector<std::string_view>& texts,
                               const std::vector<const io::Json*>& values);

  const Marks& marks() const { return marks_; }

  // Marks every string and key. `messages` is an array of objects.
  io::Json mark_messages(const io::Json& messages) const;
  io::Json mark_value(const io::Json& value) const;

  // Marks each literal, and an end or a beginning that could become part of one beside other text.
  // With `think_tags`, <think> and </think> get tag marks instead.
  std::string mark_text(std::string_view text, bool think_tags) const;

 private:
  Marker(const std::vector<AddedToken>& added, Marks marks);
  io::Json mark_content(const io::Json& content, bool think_tags) const;

  std::vector<std::string> literals_;
  std::vector<bool> begins_literal_;  // by first byte
  Marks marks_;
};

// A rendered prompt without marks, and where they were: byte offsets, ascending.
struct UnmarkedText {
  std::string text;
  std::vector<std::size_t> inside;
  std::vector<std::size_t> tags;
};

UnmarkedText unmark(std::string_view rendered, const Marks& marks);

// Added tokens match, leftmost and longest, where no mark forbids it; the text between two of them
// is encoded as one piece, without added tokens.
Result<std::vector<std::int32_t>> encode_unmarked(const Tokenizer& tokenizer,
                                                  const UnmarkedText& prompt);

}  // namespace lockstep::text
