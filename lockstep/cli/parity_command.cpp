// SPDX-License-Identifier: Apache-2.0
// The contract, run on any artifact: what may not change an answer is changed, and answers
// compared.
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/limits.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/model_options.h"
#include "lockstep/cli/parity_prompts.h"
#include "lockstep/verify/parity.h"

namespace lockstep::cli {
namespace {

// "0,1,2,3,4".
Result<std::vector<int>> parse_depths(const std::string& text) {
  const auto ids = decode::parse_ids(text);
  std::vector<int> depths;
  if (ids.ok()) depths.assign(ids->begin(), ids->end());
  bool fit = ids.ok();
  for (const int depth : depths)
    fit = fit && depth >= 0 && depth <= limits::kDraftDepthMax;
  if (!fit) {
    return Error{ErrorCode::kInvalidArgument,
                 "is '" + text + "'; write depths of 0 to " +
                     std::to_string(limits::kDraftDepthMax) + " as 0,1,2",
                 "--depths"};
  }
  return depths;
}

std::string token_text(std::int32_t id) {
  return id < 0 ? "nothing" : std::to_string(id);
}

std::string difference_text(const verify::ParityDifference& d) {
  std::string text = "difference: " + d.condition + ", " + d.sampling + ", prompt " +
                     std::to_string(d.prompt) + ", seed " + std::to_string(d.seed) + ", token " +
                     std::to_string(d.token) + ": ";
  if (d.logprob_only) return text + "same id, other log-probability";
  return text + "expected " + token_text(d.expected) + ", found " + token_text(d.found);
}

std::string report_text(const verify::ParityReport& report) {
  std::string text;
  for (const auto& condition : report.conditions) {
    std::string count = std::to_string(condition.tokens);
    count.insert(0, count.size() < 10 ? 10 - count.size() : 0, ' ');
    text += count + "  " + condition.name + "\n";
  }
  text += std::to_string(report.tokens_compared) + " tokens compared, " +
          std::to_string(report.differences.size()) + " differences; " +
          std::to_string(report.drafts_accepted) + " of " + std::to_string(report.drafts_tried) +
          " drafts accepted\n";
  for (const auto& difference : report.differences)
    text += difference_text(difference) + "\n";
  return text;
}

class ParityCommand : public Command {
 public:
  std::string name() const override { return "parity"; }
  std::string summary() const override { return "Prove that nothing but the request counts"; }

  void declare(Arguments& arguments) override {
    model_.declare(arguments);
    model_.declare_drafter(arguments);
    arguments.path("--prompts", &prompts_file_,
                   "JSON array of texts, ids or requests, or one text a line (default: built in)");
    arguments.text("--depths", &depths_, "Draft depths (default: 0,1,2,3,4)");
    arguments.integer("--tokens", &options_.tokens_per_prompt, "Longest answer (default: 48)");
    arguments.integer("--total", &options_.tokens_total,
                      "Go on with further seeds until so many tokens are compared");
    arguments.unsigned_integer("--seed", &seed_,
                               "Of the answers and the random batches (default: 1)");
    arguments.flag("--keep-going", &options_.keep_going, "Go on after a difference");
    arguments.flag("--json", &json_, "Print one JSON object");
  }

  Status check() const override {
    LOCKSTEP_TRY_STATUS(model_.check());
    if (options_.tokens_per_prompt < 1) return too_small("--tokens", options_.tokens_per_prompt, 1);
    if (options_.tokens_total < 0) return too_small("--total", options_.tokens_total, 0);
    if (const auto depths = parse_depths(depths_); !depths.ok()) return depths.error();
    return {};
  }

  int run(Console& console) override {
    install_interrupt_handler();
    auto report = compare(console);
    console.end_progress();
    if (!report.ok()) return console.fail(report.error());
    if (json_) {
      console.out_json(to_json(*report));
    } else {
      console.out(report_text(*report));
    }
    return report->differences.empty() ? kExitOk : kExitFailure;
  }

 private:
  static Error too_small(const char* flag, std::int64_t value, std::int64_t min) {
    return {ErrorCode::kInvalidArgument,
            "is " + std::to_string(value) + "; give " + std::to_string(min) + " or more", flag};
  }

  // The model at one thread, and at as many as asked for.
  Status open_subjects(Console& console) {
    ModelOptions options = model_;
    const std::int64_t many =
        model_.threads != 0 ? model_.threads : std::int64_t{std::thread::hardware_concurrency()};
    for (const std::int64_t threads : {std::int64_t{1}, many}) {
      if (threads < 1 || (threads == 1 && !runtimes_.empty())) continue;
      options.threads = threads;
      // Warnings are shown once.
      LOCKSTEP_TRY(auto runtime, runtimes_.empty()
                                     ? options.open(console)
                                     : decode::Runtime::open(options.runtime_options()));
      subjects_.push_back(
          {.label = std::to_string(threads) + (threads == 1 ? " thread" : " threads"),
           .model = &runtime->model(),
           .vocab_size = runtime->tokenizer().size(),
           .stop_ids = runtime->stop_ids()});
      runtimes_.push_back(std::move(runtime));
    }
    return {};
  }

  Result<verify::ParityReport> compare(Console& console) {
    LOCKSTEP_TRY_STATUS(open_subjects(console));
    LOCKSTEP_TRY(options_.depths, parse_depths(depths_));
    options_.seed = seed_.value_or(1);
    const decode::Runtime& runtime = *runtimes_.front();
    LOCKSTEP_TRY(const auto prompts, prompts_file_.empty()
                                         ? built_in_prompts(runtime, options_.seed)
                                         : load_prompts(runtime, prompts_file_));
    Stopwatch watch;
    const auto progress = [&](const verify::ParityReport& report) {
      if (watch.seconds() > 0.1) {
        console.progress(std::to_string(report.tokens_compared) + " tokens compared, " +
                         std::to_string(report.differences.size()) + " differences; " +
                         report.conditions.back().name);
        watch.restart();
      }
      return !interrupt_flag().raised();
    };
    return verify::run_parity(subjects_, prompts, options_, progress);
  }

  ModelOptions model_;
  verify::ParityOptions options_;
  std::string prompts_file_;
  std::string depths_ = "0,1,2,3,4";
  std::optional<std::uint64_t> seed_;
  bool json_ = false;
  std::vector<std::unique_ptr<decode::Runtime>> runtimes_;
  std::vector<verify::ParitySubject> subjects_;
};

}  // namespace

std::unique_ptr<Command> make_parity_command() {
  return std::make_unique<ParityCommand>();
}

}  // namespace lockstep::cli
