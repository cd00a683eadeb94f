// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cli/statistics.h"

#include <cstdio>

namespace lockstep::cli {
namespace {

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, pattern, values...);
  return buffer;
}

}  // namespace

std::string statistics_text(const decode::GenerateResult& result) {
  const decode::Outcome& outcome = result.outcome;
  const auto count = static_cast<double>(outcome.token_ids.size());
  const double prefill_per_s =
      outcome.prefill_s > 0 ? static_cast<double>(outcome.prompt_tokens) / outcome.prefill_s : 0;
  const double decode_per_s = outcome.decode_s > 0 ? (count - 1) / outcome.decode_s : 0;
  std::string text =
      format("prompt %lld tokens, %.0f tokens/s; answer %.0f tokens, %.0f tokens/s; seed %llu",
             static_cast<long long>(outcome.prompt_tokens), prefill_per_s, count, decode_per_s,
             static_cast<unsigned long long>(result.seed));
  const decode::SpeculationStats& stats = outcome.speculation;
  if (stats.rounds == 0) return text + "\nno speculation";
  text +=
      format("\n%lld rounds, %.2f tokens per decoding step, %lld drafted, %lld accepted; by depth",
             static_cast<long long>(stats.rounds),
             static_cast<double>(stats.accepted + stats.rounds) / static_cast<double>(stats.rounds),
             static_cast<long long>(stats.drafted), static_cast<long long>(stats.accepted));
  for (std::size_t d = 0; d < stats.tried_per_depth.size(); ++d) {
    text += format(" %.1f%%", 100.0 * static_cast<double>(stats.accepted_per_depth[d]) /
                                  static_cast<double>(stats.tried_per_depth[d]));
  }
  return text;
}

}  // namespace lockstep::cli
