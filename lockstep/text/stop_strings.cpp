// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace lockstep::text {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  std::erase_if(stops, [](const std::string& stop) { return stop.empty(); });
  stops_ = std::make_shared<const std::vector<std::string>>(std::move(stops));
}

StopMatcher::Output StopMatcher::push(std::string_view text) {
  if (state_.stopped) return {"", true};
  std::string window = std::exchange(state_.held, {});
  window += text;
  std::size_t match_begin = window.size(), match_end = std::string::npos;
  std::size_t held = 0;
  for (const std::string& stop : *stops_) {
    if (const std::size_t at = window.find(stop); at != std::string::npos) {
      const std::size_t end = at + stop.size();
      if (end < match_end || (end == match_end && at < match_begin)) {
        match_begin = at;
        match_end = end;
      }
    }
    for (std::size_t size = std::min(stop.size() - 1, window.size()); size > held; --size) {
      if (window.ends_with(std::string_view(stop).substr(0, size))) held = size;
    }
  }
  state_.stopped = match_end != std::string::npos;
  if (state_.stopped) {
    window.resize(match_begin);
  } else {
    state_.held = window.substr(window.size() - held);
    window.resize(window.size() - held);
  }
  return {std::move(window), state_.stopped};
}

std::string StopMatcher::flush() {
  return std::exchange(state_.held, {});
}

}  // namespace lockstep::text
