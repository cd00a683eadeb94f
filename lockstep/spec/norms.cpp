// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/norms.h"

#include <vector>

namespace lockstep::spec {
namespace {

constexpr double kBlockThreshold = 0.5;
constexpr double kFinalThreshold = 1.5;  // raw final norms reach .9, shifted ones 1.9

double mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values)
    sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

std::optional<NormConvention> parse_stated(const NormHints& hints) {
  if (!hints.stated_format) return std::nullopt;
  if (*hints.stated_format == "mlx_gamma") return NormConvention::kGamma;
  return std::nullopt;
}

}  // namespace

NormOutcome decide_norms(std::span<const StoredTensor* const> tensors, const NormHints& hints) {
  NormOutcome outcome;
  NormDecision& decision = outcome.decision;
  int raw = 0;
  int gamma = 0;
  for (const StoredTensor* tensor : tensors) {
    const Gain gain = tensor->expected.row->gain;
    if (gain == Gain::kNo) continue;
    NormVote vote{.tensor = tensor->expected.name,
                  .mean = mean(tensor->values()),
                  .threshold = gain == Gain::kFinal ? kFinalThreshold : kBlockThreshold,
                  .vote = NormConvention::kGamma};
    if (vote.mean < vote.threshold) vote.vote = NormConvention::kRaw;
    (vote.vote == NormConvention::kRaw ? raw : gamma) += 1;
    decision.votes.push_back(std::move(vote));
  }
  const std::string tally =
      std::to_string(gamma) + " vectors look like gamma, " + std::to_string(raw) + " like raw";
  // A tie falls to gamma: without raw layout the tensors went through a converter.
  const NormConvention majority = raw > gamma ? NormConvention::kRaw : NormConvention::kGamma;

  if (const auto stated = parse_stated(hints)) {
    decision.convention = *stated;
    decision.evidence = "metadata: " + hints.stated_in + " says " + *hints.stated_format;
  } else if (!hints.raw_layout.empty()) {
    decision.convention = NormConvention::kRaw;
    decision.evidence = "layout: " + hints.raw_layout;
  } else {
    decision.convention = majority;
    decision.evidence = "statistics: " + tally;
  }
  if (raw != gamma && majority != decision.convention) {
    outcome.warning = std::string("norms are taken as ") +
                      norm_convention_name(decision.convention) + " (" + decision.evidence +
                      "), but " + tally + "; if answers are garbage, the source is damaged";
  }
  return outcome;
}

}  // namespace lockstep::spec
