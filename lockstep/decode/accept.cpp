// SPDX-License-Identifier: Apache-2.0
#include "lockstep/decode/accept.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::decode {

Accepted accept(const AcceptInput& input) {
  CHECK(input.tokens_left >= 1);
  Accepted result;
  for (std::size_t j = 0;; ++j) {
    CHECK(j < input.picks.size());
    const std::int32_t token = input.picks[j];
    ++result.emitted;
    const bool has_draft = j < input.drafts.size();
    const bool stands = has_draft && input.drafts[j] == token;
    if (has_draft) ++result.tried;
    if (stands) ++result.accepted;

    const auto& ids = input.stop_ids;
    if (std::find(ids.begin(), ids.end(), token) != ids.end()) {
      result.finish = Finish::kStopToken;
    } else if (input.text_stops && input.text_stops(token)) {
      result.finish = Finish::kStopText;
    } else if (result.emitted == input.tokens_left) {
      result.finish = Finish::kLength;
    }
    if (result.finish != Finish::kNone || !stands) return result;
  }
}

}  // namespace lockstep::decode
