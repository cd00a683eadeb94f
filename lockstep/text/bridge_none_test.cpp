// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::text {
namespace {

TEST(WithoutBridge, TextIsRefusedWithTheReason) {
  const auto tokenizer = Tokenizer::open("models/demo");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(tokenizer.error().message, testing::HasSubstr("built without the bridge"));
  const auto chat = ChatTemplate::open("models/demo");
  ASSERT_FALSE(chat.ok());
  EXPECT_EQ(chat.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace lockstep::text
