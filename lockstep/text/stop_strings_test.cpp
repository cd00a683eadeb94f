// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/stop_strings.h"

#include <gtest/gtest.h>
#include <optional>
#include <rapidcheck/gtest.h>

namespace lockstep::text {
namespace {

struct Whole {
  std::string text;
  bool stopped = false;
};

// By definition: the shortest prefix of the text that ends in a stop string, without that string.
Whole by_definition(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::optional<std::size_t> longest;
    for (const std::string& stop : stops) {
      if (stop.empty() || !std::string_view(text).substr(0, end).ends_with(stop)) continue;
      longest = std::max(longest.value_or(0), stop.size());
    }
    if (longest) return {text.substr(0, end - *longest), true};
  }
  return {text, false};
}

Whole push_all(StopMatcher matcher, const std::vector<std::string>& pieces) {
  Whole out;
  for (const std::string& piece : pieces) {
    const StopMatcher::Output output = matcher.push(piece);
    out.text += output.text;
    out.stopped = output.stopped;
  }
  out.text += matcher.flush();
  return out;
}

rc::Gen<std::string> text_gen() {
  return rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab<>")));
}

TEST(StopMatcher, StopsInsideAPieceAndAcrossPieces) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.push("one E").text, "one ");
  EXPECT_EQ(matcher.push("N").text, "");
  EXPECT_EQ(matcher.push("E ").text, "ENE ");
  const StopMatcher::Output output = matcher.push("two END three");
  EXPECT_EQ(output.text, "two ");
  EXPECT_TRUE(output.stopped);
  EXPECT_EQ(matcher.push("more").text, "");
  EXPECT_TRUE(matcher.push("more").stopped);
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, HoldsBackNoMoreThanABeginning) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.push("aaa").text, "a");
  EXPECT_EQ(matcher.push("c").text, "aac");
  EXPECT_EQ(matcher.push("aa").text, "");
  EXPECT_EQ(matcher.flush(), "aa");
}

TEST(StopMatcher, WithoutStopStringsEverythingPasses) {
  StopMatcher matcher({"", ""});
  EXPECT_EQ(matcher.push("abc").text, "abc");
  EXPECT_FALSE(matcher.push("").stopped);
}

TEST(StopMatcher, TheMatchThatIsCompleteFirstWins) {
  EXPECT_EQ(push_all(StopMatcher({"abcd", "bc"}), {"xabcd"}).text, "xa");
  EXPECT_EQ(push_all(StopMatcher({"bc", "abc"}), {"xabc"}).text, "x");
}

RC_GTEST_PROP(StopMatcher, EqualsTheDefinitionForAnyCuts, ()) {
  const auto pieces = *rc::gen::container<std::vector<std::string>>(text_gen());
  const auto stops = *rc::gen::container<std::vector<std::string>>(rc::gen::resize(4, text_gen()));
  std::string text;
  for (const std::string& piece : pieces)
    text += piece;
  const Whole expected = by_definition(text, stops);
  const Whole found = push_all(StopMatcher(stops), pieces);
  RC_ASSERT(found.text == expected.text);
  RC_ASSERT(found.stopped == expected.stopped);
}

RC_GTEST_PROP(StopMatcher, RewindIsAsIfNothingHappened, ()) {
  const auto stops = *rc::gen::container<std::vector<std::string>>(rc::gen::resize(4, text_gen()));
  const auto before = *text_gen(), undone = *text_gen(), after = *text_gen();
  StopMatcher straight(stops), rewound(stops);
  straight.push(before);
  rewound.push(before);
  const StopMatcher::Mark mark = rewound.mark();
  rewound.push(undone);
  rewound.rewind(mark);
  RC_ASSERT(straight.push(after).text == rewound.push(after).text);
  RC_ASSERT(straight.flush() == rewound.flush());
}

}  // namespace
}  // namespace lockstep::text
