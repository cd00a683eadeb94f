// SPDX-License-Identifier: Apache-2.0
// Log-probabilities and perplexity of texts, and the distance between two models on them.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/limits.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/model_options.h"
#include "lockstep/eval/score.h"

namespace lockstep::cli {
namespace {

using Ids = std::vector<std::int32_t>;

struct ScoredFile {
  std::string path;
  Ids ids;
  eval::Score score;
};

// The array `ids` of a JSON object, or nothing when the text is no such object.
Result<std::optional<Ids>> ids_of_object(const std::string& text, const std::string& path) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '{') return std::optional<Ids>();
  const auto json = io::parse_json(text, path);
  const io::Json* array = json.ok() ? json->find("ids") : nullptr;
  if (array == nullptr) return std::optional<Ids>();
  io::Json request = io::Json::object();
  request.set("prompt_ids", *array);
  auto parsed = decode::parse_request(request);
  if (!parsed.ok()) return Error{parsed.error().code, "'ids' " + parsed.error().message, path};
  return std::move(parsed->prompt_ids);
}

class ScoreCommand : public Command {
 public:
  std::string name() const override { return "score"; }
  std::string summary() const override { return "Perplexity of texts, and distance of two models"; }

  void declare(Arguments& arguments) override {
    model_.declare(arguments);
    arguments.path("--against", &against_, "Folder of a second model, the reference");
    arguments.choice("--against-precision", &against_precision_, {"f32"},
                     "Its arithmetic (default: that of --precision)");
    arguments.integer("--window", &options_.window,
                      "Tokens per window, each from a fresh state (default: 512)");
    arguments.flag("--tokens", &options_.keep_positions,
                   "Report every token's log-probability (with --json)");
    arguments.flag("--json", &json_, "Print one JSON object");
    arguments.positional_paths("FILE", &files_, "Text, or a JSON object with an array 'ids'");
  }

  Status check() const override {
    LOCKSTEP_TRY_STATUS(model_.check());
    if (options_.window < 2) {
      return Error{ErrorCode::kInvalidArgument,
                   "is " + std::to_string(options_.window) + "; a window needs 2 tokens or more",
                   "--window"};
    }
    if (options_.keep_positions && !json_) {
      return Error{ErrorCode::kInvalidArgument, "is shown with --json only; add it", "--tokens"};
    }
    if (against_.empty() && !against_precision_.empty()) {
      return Error{ErrorCode::kInvalidArgument, "goes with --against only", "--against-precision"};
    }
    return {};
  }

  int run(Console& console) override {
    install_interrupt_handler();
    const Status status = score_all(console);
    console.end_progress();
    if (!status.ok()) return console.fail(status.error());
    eval::Score total;
    for (const ScoredFile& file : scored_)
      total.add(file.score);
    if (json_) {
      print_json(console, total);
    } else {
      print_table(console, total);
    }
    return kExitOk;
  }

 private:
  Status score_all(Console& console) {
    LOCKSTEP_TRY(model_runtime_, model_.open(console));
    if (!against_.empty()) {
      ModelOptions other = model_;
      other.model_dir = against_;
      if (!against_precision_.empty()) other.precision = against_precision_;
      LOCKSTEP_TRY(reference_runtime_, other.open(console));
      if (reference_runtime_->tokenizer().size() != model_runtime_->tokenizer().size()) {
        return Error{ErrorCode::kInconsistent,
                     "has a vocabulary of " +
                         std::to_string(reference_runtime_->tokenizer().size()) + " tokens, and " +
                         model_.model_dir + " one of " +
                         std::to_string(model_runtime_->tokenizer().size()) +
                         "; only models with one vocabulary can be compared",
                     against_};
      }
    }
    for (const std::string& path : files_)
      LOCKSTEP_TRY_STATUS(score_file(console, path));
    return {};
  }

  // Added tokens in a text count, as in `generate --raw`.
  Result<Ids> read_ids(const std::string& path) const {
    LOCKSTEP_TRY(const std::string text, io::read_file(path, limits::kJsonFileBytesMax));
    LOCKSTEP_TRY(std::optional<Ids> given, ids_of_object(text, path));
    if (given) return std::move(*given);
    auto ids = model_runtime_->tokenizer().encode(text, text::AddedTokens::kMatch);
    if (!ids.ok()) return Error{ids.error().code, ids.error().message, path};
    if (reference_runtime_) {
      LOCKSTEP_TRY(const Ids other,
                   reference_runtime_->tokenizer().encode(text, text::AddedTokens::kMatch));
      if (other != *ids) {
        return Error{ErrorCode::kInconsistent,
                     "its tokenizer cuts " + path +
                         " differently; only models with one tokenizer can be compared",
                     against_};
      }
    }
    return ids;
  }

  Status score_file(Console& console, const std::string& path) {
    ScoredFile file{.path = path, .ids = {}, .score = {}};
    LOCKSTEP_TRY(file.ids, read_ids(path));
    const auto progress = [&](std::int64_t done) {
      console.progress(path + ": " + std::to_string(done) + " of " +
                       std::to_string(file.ids.size()) + " tokens");
      return !interrupt_flag().raised();
    };
    auto score = eval::score(model_runtime_->model(),
                             reference_runtime_ ? &reference_runtime_->model() : nullptr,
                             model_runtime_->tokenizer().size(), file.ids, options_, progress);
    if (!score.ok()) {
      const bool about_text = score.error().where == "text";
      return Error{score.error().code, score.error().message,
                   about_text ? path : score.error().where};
    }
    file.score = std::move(*score);
    scored_.push_back(std::move(file));
    return {};
  }

  void add_figures(io::Json& json, const eval::Score& score) const {
    json.set("tokens", score.tokens);
    json.set("nll", score.nll());
    json.set("perplexity", score.perplexity());
    if (!reference_runtime_) return;
    json.set("kl_mean", score.kl_mean());
    json.set("kl_max", score.kl_max);
    json.set("top1_agreement", score.top1_agreement());
  }

  io::Json positions_json(const ScoredFile& file) const {
    io::Json list = io::Json::array();
    for (const eval::Position& position : file.score.positions) {
      const std::int32_t id = file.ids[static_cast<std::size_t>(position.index)];
      io::Json json = io::Json::object();
      json.set("index", position.index);
      json.set("id", id);
      json.set("text", model_runtime_->tokenizer().token_bytes(id));
      json.set("logprob", position.logprob);
      if (reference_runtime_) {
        json.set("kl", position.divergence);
        json.set("top1_equal", position.top1_equal);
      }
      list.push_back(std::move(json));
    }
    return list;
  }

  void print_json(Console& console, const eval::Score& total) const {
    io::Json files = io::Json::array();
    for (const ScoredFile& file : scored_) {
      io::Json json = io::Json::object();
      json.set("file", file.path);
      add_figures(json, file.score);
      if (options_.keep_positions) json.set("positions", positions_json(file));
      files.push_back(std::move(json));
    }
    io::Json json = io::Json::object();
    add_figures(json, total);
    json.set("window", options_.window);
    json.set("files", std::move(files));
    console.out_json(json, options_.keep_positions ? -1 : 2);
  }

  void print_table(Console& console, const eval::Score& total) const {
    console.out(reference_runtime_
                    ? "  tokens       nll  perplexity   kl mean    kl max  top-1 equal  file\n"
                    : "  tokens       nll  perplexity  file\n");
    for (const ScoredFile& file : scored_)
      print_line(console, file.score, file.path);
    if (scored_.size() > 1) print_line(console, total, "total");
  }

  void print_line(Console& console, const eval::Score& score, const std::string& label) const {
    char line[128];
    std::snprintf(line, sizeof line, "%8" PRId64 "  %8.4f  %10.3f", score.tokens, score.nll(),
                  score.perplexity());
    std::string text = line;
    if (reference_runtime_) {
      std::snprintf(line, sizeof line, "  %8.6f  %8.6f    %8.3f%%", score.kl_mean(), score.kl_max,
                    100 * score.top1_agreement());
      text += line;
    }
    console.out(text + "  " + label + "\n");
  }

  ModelOptions model_;
  eval::ScoreOptions options_;
  std::string against_, against_precision_;
  std::vector<std::string> files_;
  bool json_ = false;
  std::unique_ptr<decode::Runtime> model_runtime_, reference_runtime_;
  std::vector<ScoredFile> scored_;
};

}  // namespace

std::unique_ptr<Command> make_score_command() {
  return std::make_unique<ScoreCommand>();
}

}  // namespace lockstep::cli
