// SPDX-License-Identifier: Apache-2.0
#include "lockstep/verify/parity.h"

#include <algorithm>
#include <array>
#include <bit>
#include <random>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/limits.h"

namespace lockstep::verify {
namespace {

using Ids = std::vector<std::int32_t>;

struct Sampling {
  const char* name;
  decode::SamplingParams params;
};

std::array<Sampling, 3> samplings() {
  return {{{"greedy", {}},
           {"temperature 1", {.temperature = 1}},
           {"temperature .8, filters and penalties",
            {.temperature = 0.8f,
             .top_k = 40,
             .top_p = 0.95f,
             .min_p = 0.01f,
             .presence_penalty = 0.5f,
             .frequency_penalty = 0.1f,
             .repetition_penalty = 1.05f}}}};
}

// One request and its plain answer.
struct Case {
  std::size_t prompt = 0;
  const char* sampling = "";
  decode::Request request;
  Ids ids;
  std::vector<double> logprobs;
};

class ParityRun {
 public:
  ParityRun(std::span<const ParitySubject> subjects, std::span<const Ids> prompts,
            const ParityOptions& options, const std::function<bool(const ParityReport&)>& progress)
      : subjects_(subjects),
        prompts_(prompts),
        options_(options),
        progress_(progress),
        random_(options.seed) {}

  Result<ParityReport> run() {
    std::uint64_t seed = options_.seed;
    do {
      LOCKSTEP_TRY_STATUS(make_cases(seed++));
      LOCKSTEP_TRY_STATUS(run_conditions());
    } while (!finished_ && report_.tokens_compared < options_.tokens_total);
    return std::move(report_);
  }

 private:
  Status make_cases(std::uint64_t seed) {
    cases_.clear();
    for (std::size_t p = 0; p < prompts_.size(); ++p) {
      for (const Sampling& sampling : samplings()) {
        Case c{.prompt = p, .sampling = sampling.name, .request = {}, .ids = {}, .logprobs = {}};
        c.request.prompt = prompts_[p];
        c.request.sampling = sampling.params;
        c.request.sampling.seed = seed * 1000003 + p;
        c.request.tokens_max = options_.tokens_per_prompt;
        // Half of the requests end at their end-of-turn token, so that stops are covered too.
        if (p % 2 == 0) c.request.stop_ids = subjects_[0].stop_ids;
        c.request.draft_depth = 0;
        c.request.logprobs = 0;
        cases_.push_back(std::move(c));
      }
    }
    for (Case& c : cases_) {
      LOCKSTEP_TRY(const decode::Outcome outcome, run_alone(subjects_[0], c.request, {}));
      if (outcome.reason == decode::FinishReason::kError) {
        return Error{ErrorCode::kInconsistent, outcome.error, "model"};
      }
      c.ids = outcome.token_ids;
      for (const decode::Logprobs& l : outcome.logprobs)
        c.logprobs.push_back(l.chosen);
    }
    return {};
  }

  Status run_conditions() {
    using Options = decode::EngineOptions;
    for (const ParitySubject& subject : subjects_) {
      const std::string suffix = subjects_.size() > 1 ? ", " + subject.label : std::string();
      for (const int depth : options_.depths) {
        LOCKSTEP_TRY_STATUS(
            alone(subject, "depth " + std::to_string(depth) + suffix, depth, nullptr, Options{}));
      }
      if (finished_) return {};
    }
    const ParitySubject& first = subjects_[0];
    if (first.model->has_mtp()) {
      LOCKSTEP_TRY_STATUS(
          alone(first, "every draft accepted", limits::kDraftDepthMax, accept_all, Options{}));
      LOCKSTEP_TRY_STATUS(alone(first, "every draft rejected", 3, reject_all, Options{}));
      LOCKSTEP_TRY_STATUS(alone(first, "every other draft rejected", 5, reject_some, Options{}));
    }
    for (const std::int64_t chunk : {64, 128, 320}) {
      LOCKSTEP_TRY_STATUS(alone(first, "chunks of " + std::to_string(chunk), 2, nullptr,
                                Options{.prefill_chunk = chunk}));
    }
    for (const int width : {2, 5, 16})
      LOCKSTEP_TRY_STATUS(batch(width));
    return {};
  }

  using Script = Ids (*)(const Ids& plain, std::int32_t vocab_size);
  static Ids accept_all(const Ids& plain, std::int32_t) { return plain; }
  static Ids reject_all(const Ids& plain, std::int32_t vocab_size) {
    Ids ids = plain;
    for (std::int32_t& id : ids)
      id = (id + 1) % vocab_size;
    return ids;
  }
  static Ids reject_some(const Ids& plain, std::int32_t vocab_size) {
    Ids ids = plain;
    for (std::size_t i = 1; i < ids.size(); i += 2)
      ids[i] = (ids[i] + 1) % vocab_size;
    return ids;
  }

  // One request on an engine of its own.
  static Result<decode::Outcome> run_alone(const ParitySubject& subject, decode::Request request,
                                           const decode::EngineOptions& options) {
    decode::Engine engine(*subject.model, subject.vocab_size, options);
    LOCKSTEP_TRY(const auto id, engine.submit(std::move(request), nullptr));
    while (engine.step()) {
    }
    return *engine.take_outcome(id);
  }

  // Every case, one after the other; drafts come from `script` unless it is null.
  Status alone(const ParitySubject& subject, const std::string& name, int depth, Script script,
               const decode::EngineOptions& options) {
    for (const Case& c : cases_) {
      if (finished_) return {};
      decode::Request request = c.request;
      request.draft_depth = depth;
      if (script != nullptr) request.scripted_drafts = script(c.ids, subject.vocab_size);
      LOCKSTEP_TRY(const decode::Outcome outcome, run_alone(subject, std::move(request), options));
      LOCKSTEP_TRY_STATUS(compare(c, name, outcome));
    }
    return {};
  }

  // All cases in random order through one engine; they join at random steps, with random depths,
  // while strangers are in prefill.
  Status batch(int width) {
    if (finished_) return {};
    const ParitySubject& subject = subjects_[random_() % subjects_.size()];
    const std::string name = "batch of up to " + std::to_string(width) + " with random joins";
    std::vector<std::size_t> order(cases_.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      order[i] = i;
    std::shuffle(order.begin(), order.end(), random_);
    decode::Engine engine(*subject.model, subject.vocab_size,
                          {.sequences_max = width, .prefill_chunk = 128});
    std::vector<std::pair<decode::Engine::Id, std::size_t>> open;
    std::size_t next = 0;
    while (next < order.size() || !open.empty()) {
      while (next < order.size() && (open.empty() || random_() % 3 == 0)) {
        decode::Request request = cases_[order[next]].request;
        request.draft_depth = static_cast<int>(random_() % 6) - 1;
        LOCKSTEP_TRY(const auto id, engine.submit(std::move(request), nullptr));
        open.emplace_back(id, order[next++]);
      }
      engine.step();
      for (auto at = open.begin(); at != open.end();) {
        const auto outcome = engine.take_outcome(at->first);
        if (!outcome) {
          ++at;
          continue;
        }
        LOCKSTEP_TRY_STATUS(compare(cases_[at->second], name, *outcome));
        if (finished_) return {};
        at = open.erase(at);
      }
    }
    return {};
  }

  Status compare(const Case& c, const std::string& condition, const decode::Outcome& found) {
    if (found.reason == decode::FinishReason::kError) {
      return Error{ErrorCode::kInconsistent, found.error, "model"};
    }
    for (const std::int64_t n : found.speculation.tried_per_depth)
      report_.drafts_tried += n;
    for (const std::int64_t n : found.speculation.accepted_per_depth)
      report_.drafts_accepted += n;
    const std::size_t count = std::max(c.ids.size(), found.token_ids.size());
    report_.tokens_compared += static_cast<std::int64_t>(count);
    count_condition(condition, static_cast<std::int64_t>(count));
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t expected = i < c.ids.size() ? c.ids[i] : -1;
      const std::int32_t got = i < found.token_ids.size() ? found.token_ids[i] : -1;
      const bool same_id = expected == got;
      if (same_id && std::bit_cast<std::uint64_t>(c.logprobs[i]) ==
                         std::bit_cast<std::uint64_t>(found.logprobs[i].chosen)) {
        continue;
      }
      report_.differences.push_back({.condition = condition,
                                     .prompt = c.prompt,
                                     .sampling = c.sampling,
                                     .seed = c.request.sampling.seed,
                                     .token = i,
                                     .expected = expected,
                                     .found = got,
                                     .logprob_only = same_id});
      if (!options_.keep_going) finished_ = true;
      break;
    }
    if (progress_ && !progress_(report_)) {
      return Error{ErrorCode::kCancelled, "stopped before the end", "parity"};
    }
    return {};
  }

  void count_condition(const std::string& name, std::int64_t tokens) {
    auto found = std::find_if(report_.conditions.begin(), report_.conditions.end(),
                              [&](const auto& c) { return c.name == name; });
    if (found == report_.conditions.end()) {
      report_.conditions.push_back({.name = name, .tokens = 0});
      found = std::prev(report_.conditions.end());
    }
    found->tokens += tokens;
  }

  std::span<const ParitySubject> subjects_;
  std::span<const Ids> prompts_;
  const ParityOptions& options_;
  const std::function<bool(const ParityReport&)>& progress_;
  std::mt19937_64 random_;
  std::vector<Case> cases_;
  ParityReport report_;
  bool finished_ = false;
};

}  // namespace

Result<ParityReport> run_parity(std::span<const ParitySubject> subjects,
                                std::span<const Ids> prompts, const ParityOptions& options,
                                const std::function<bool(const ParityReport&)>& progress) {
  CHECK(!subjects.empty());
  if (prompts.empty())
    return Error{ErrorCode::kInvalidArgument, "no prompts to compare", "prompts"};
  return ParityRun(subjects, prompts, options, progress).run();
}

io::Json to_json(const ParityReport& report) {
  io::Json differences = io::Json::array();
  for (const ParityDifference& d : report.differences) {
    io::Json json = io::Json::object();
    json.set("condition", d.condition);
    json.set("prompt", d.prompt);
    json.set("sampling", d.sampling);
    json.set("seed", d.seed);
    json.set("token", d.token);
    json.set("expected", d.expected);
    json.set("found", d.found);
    json.set("logprob_only", d.logprob_only);
    differences.push_back(std::move(json));
  }
  io::Json conditions = io::Json::object();
  for (const auto& condition : report.conditions)
    conditions.set(condition.name, condition.tokens);
  io::Json json = io::Json::object();
  json.set("tokens_compared", report.tokens_compared);
  json.set("differences", report.differences.size());
  json.set("places", std::move(differences));
  json.set("conditions", std::move(conditions));
  json.set("drafts_tried", report.drafts_tried);
  json.set("drafts_accepted", report.drafts_accepted);
  return json;
}

}  // namespace lockstep::verify
