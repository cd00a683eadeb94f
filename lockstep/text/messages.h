// SPDX-License-Identifier: Apache-2.0
// Conversations as clients send them, checked and brought into the one form templates expect.
#pragma once

#include "lockstep/base/result.h"
#include "lockstep/io/json.h"

namespace lockstep::text {

// `messages` with the arguments of tool calls as objects. Unknown keys stay. Errors are
// kInvalidArgument, or kLimit for nesting, with where = e.g.
// "messages[3].tool_calls[0].function.name".
//   message    {role: string, content?: null | string | [part], reasoning_content?: null | string,
//               tool_calls?: null | [call], ...}
//   part       {type: "text", text: string} or {type: "image" | "image_url" | "video" |
//   "video_url"};
//              `type` may be left out where a key text, image, image_url or video says it
//   call       {function: {name: string, arguments?: null | object | JSON text of an object}} or
//   the
//              inner object itself
Result<io::Json> normalize_messages(const io::Json& messages);

// Null, or an array of objects.
Status check_tools(const io::Json& tools);

}  // namespace lockstep::text
