// SPDX-License-Identifier: Apache-2.0
// Requests from a file, stepped together. Results are written line by line as they finish, so a
// killed run loses only what was under way, and the next one goes on from there.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/limits.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/model_options.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

std::string system_text(const char* what) {
  return std::string(what) + ": " + std::strerror(errno);
}

// Reads lines of bounded length.
class LineReader {
 public:
  LineReader(const std::string& path, std::size_t bytes_max)
      : file_(std::fopen(path.c_str(), "rb")), bytes_max_(bytes_max) {}
  bool open() const { return file_ != nullptr; }
  bool failed() const { return std::ferror(file_.get()) != 0; }
  std::int64_t line_number() const { return line_number_; }

  struct Line {
    std::string text;       // without its end; empty when too long
    bool too_long = false;  // its rest was skipped
    bool ended = false;     // by a line break; the last one may lack it
  };
  // Nothing at the end.
  std::optional<Line> next() {
    int c = std::getc(file_.get());
    if (c == EOF) return std::nullopt;
    ++line_number_;
    Line line;
    for (; c != '\n' && c != EOF; c = std::getc(file_.get())) {
      if (line.text.size() < bytes_max_) {
        line.text.push_back(static_cast<char>(c));
      } else {
        line.too_long = true;
      }
    }
    line.ended = c == '\n';
    if (line.too_long) line.text.clear();
    return line;
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  std::size_t bytes_max_;
  std::int64_t line_number_ = 0;
};

// What an earlier run already wrote.
struct Finished {
  std::set<std::string> ids;
  std::set<std::int64_t> lines;  // of requests without a usable id
};

// A last line without its end was being written when that run was killed; it is cut off.
Result<Finished> read_finished(const std::string& path) {
  Finished finished;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return finished;  // new, or a pipe
  LineReader reader(path, limits::kResultLineBytesMax);
  if (!reader.open()) return Error{ErrorCode::kIo, system_text("can't be read"), path};
  std::uintmax_t whole_bytes = 0;
  while (const auto line = reader.next()) {
    if (!line->ended) break;
    const auto json = io::parse_json(line->text, path);
    if (line->too_long || !json.ok() || !json->is_object()) {
      return Error{ErrorCode::kFormat,
                   "line " + std::to_string(reader.line_number()) +
                       " is no result of an earlier run; name another file, or remove this one",
                   path};
    }
    whole_bytes += line->text.size() + 1;
    if (const io::Json* number = json->find("line"); number != nullptr && number->is_integer()) {
      finished.lines.insert(number->as_int());
    } else if (const io::Json* id = json->find("id")) {
      finished.ids.insert(id->dump());
    }
  }
  if (reader.failed()) return Error{ErrorCode::kIo, "can't be read to its end", path};
  if (whole_bytes != fs::file_size(path, error)) fs::resize_file(path, whole_bytes, error);
  if (error) return Error{ErrorCode::kIo, "can't be cut: " + error.message(), path};
  return finished;
}

struct Job {
  io::Json id;
  decode::GenerateRequest request;
  decode::GenerateResult result;
  decode::Engine::Id engine_id = 0;
  std::unique_ptr<decode::AnswerSink> sink;
};

class BatchRun {
 public:
  BatchRun(Console& console, const decode::Runtime& runtime, const decode::EngineOptions& options,
           std::string out_path)
      : console_(console),
        runtime_(runtime),
        parallel_(options.sequences_max),
        engine_(runtime.model(), runtime.tokenizer().size(), options),
        out_path_(std::move(out_path)) {}

  Status run(const std::string& in_path) {
    LOCKSTEP_TRY(finished_, read_finished(out_path_));
    LineReader reader(in_path, limits::kRequestLineBytesMax);
    if (!reader.open()) return Error{ErrorCode::kNotFound, system_text("can't be opened"), in_path};
    out_.open(out_path_, std::ios::binary | std::ios::app);
    if (!out_) return Error{ErrorCode::kIo, system_text("can't be opened for writing"), out_path_};
    bool more = true;
    while (more || !jobs_.empty()) {
      while (more && static_cast<int>(jobs_.size()) < parallel_) {
        LOCKSTEP_TRY(more, take_line(reader));
      }
      engine_.step();
      LOCKSTEP_TRY_STATUS(collect());
      if (interrupt_flag().raised()) {
        return Error{ErrorCode::kCancelled,
                     "stopped after " + std::to_string(done_) +
                         " results; run the same command again to go on",
                     out_path_};
      }
    }
    if (reader.failed()) return Error{ErrorCode::kIo, "can't be read to its end", in_path};
    return {};
  }

  std::int64_t done() const { return done_; }
  std::int64_t failed() const { return failed_; }
  std::int64_t skipped() const { return skipped_; }

 private:
  // Reads one line and submits it. False at the end of the file.
  Result<bool> take_line(LineReader& reader) {
    const auto line = reader.next();
    if (!line) return false;
    const std::int64_t number = reader.line_number();
    if (!line->too_long && line->text.find_first_not_of(" \t\r") == std::string::npos) return true;
    Job job;
    if (auto status = read_job(line->text, line->too_long, job); !status.ok()) {
      // Only lines whose id is missing or taken are known by their number.
      const bool named = !job.id.is_null() && seen_.count(job.id.dump()) == 0;
      if (named) seen_.insert(job.id.dump());
      const bool done =
          named ? finished_.ids.count(job.id.dump()) != 0 : finished_.lines.count(number) != 0;
      if (done) {
        ++skipped_;
        return true;
      }
      LOCKSTEP_TRY_STATUS(write_error(job.id, named ? 0 : number, status.error()));
      return true;
    }
    seen_.insert(job.id.dump());
    if (finished_.ids.count(job.id.dump()) != 0) {
      ++skipped_;
      return true;
    }
    LOCKSTEP_TRY_STATUS(submit(std::move(job)));
    return true;
  }

  Status read_job(const std::string& line, bool too_long, Job& job) {
    if (too_long) {
      return Error{ErrorCode::kLimit,
                   "is longer than " + std::to_string(limits::kRequestLineBytesMax) + " bytes",
                   "line"};
    }
    LOCKSTEP_TRY(const io::Json json, io::parse_json(line, "line"));
    if (const io::Json* id = json.find("id"); id != nullptr && !id->is_null()) {
      if (!id->is_string() && !id->is_integer()) {
        return Error{ErrorCode::kInvalidArgument, "should be a string or a whole number", "id"};
      }
      job.id = *id;
    }
    LOCKSTEP_TRY(job.request, decode::parse_request(json, {"id"}));
    if (job.id.is_null()) {
      return Error{ErrorCode::kInvalidArgument, "is missing; every request needs its own", "id"};
    }
    if (seen_.count(job.id.dump()) != 0) {
      return Error{ErrorCode::kInvalidArgument, "appears on an earlier line too", "id"};
    }
    return {};
  }

  Status submit(Job job) {
    auto prepared = decode::prepare(runtime_, job.request);
    if (!prepared.ok()) return write_error(job.id, 0, prepared.error());
    job.result.seed = prepared->request.sampling.seed;
    job.sink =
        std::make_unique<decode::AnswerSink>(runtime_.tokenizer(), std::move(prepared->answer));
    auto id = engine_.submit(std::move(prepared->request), job.sink.get());
    if (!id.ok()) return write_error(job.id, 0, id.error());
    job.engine_id = *id;
    jobs_.push_back(std::move(job));
    return {};
  }

  Status collect() {
    for (auto job = jobs_.begin(); job != jobs_.end();) {
      auto outcome = engine_.take_outcome(job->engine_id);
      if (!outcome) {
        ++job;
        continue;
      }
      job->result.outcome = std::move(*outcome);
      job->result.answer = job->sink->finish();
      if (job->result.outcome.reason == decode::FinishReason::kError) {
        LOCKSTEP_TRY_STATUS(write_error(
            job->id, 0, {ErrorCode::kInconsistent, job->result.outcome.error, "model"}));
      } else {
        tokens_ += static_cast<std::int64_t>(job->result.outcome.token_ids.size());
        io::Json json = io::Json::object();
        json.set("id", job->id);
        const io::Json answer = to_json(runtime_, job->request, job->result);
        for (const auto& [key, value] : answer.as_object())
          json.as_object().emplace_back(key, value);
        LOCKSTEP_TRY_STATUS(write(json));
      }
      job = jobs_.erase(job);
    }
    return {};
  }

  Status write_error(const io::Json& id, std::int64_t line, const Error& error) {
    ++failed_;
    io::Json json = io::Json::object();
    json.set("id", id);
    if (line != 0) json.set("line", line);
    json.set("error", error_json(error));
    return write(json);
  }

  Status write(const io::Json& json) {
    out_ << json.dump() << '\n' << std::flush;
    if (!out_) return Error{ErrorCode::kIo, "can't be written; is the disk full?", out_path_};
    ++done_;
    console_.progress(
        std::to_string(done_) + " results, " +
        std::to_string(static_cast<std::int64_t>(static_cast<double>(tokens_) / watch_.seconds())) +
        " tokens/s");
    return {};
  }

  Console& console_;
  const decode::Runtime& runtime_;
  int parallel_;
  decode::Engine engine_;
  std::string out_path_;
  std::ofstream out_;
  Finished finished_;
  std::set<std::string> seen_;
  std::vector<Job> jobs_;
  Stopwatch watch_;
  std::int64_t done_ = 0, failed_ = 0, skipped_ = 0, tokens_ = 0;
};

class BatchCommand : public Command {
 public:
  std::string name() const override { return "batch"; }
  std::string summary() const override { return "Answer a file of requests, many at a time"; }

  void declare(Arguments& arguments) override {
    model_.declare(arguments);
    model_.declare_drafter(arguments);
    arguments.positional_path("IN", &in_, "JSON lines: id, prompt or messages, and settings");
    arguments.positional_path("OUT", &out_, "Results, one line each; an earlier run is continued");
    arguments.integer("--parallel", &parallel_, "Requests stepped together (default: 8)");
    arguments.integer("--prefill-chunk", &prefill_chunk_,
                      "Prompt tokens per step, a multiple of 64 (default: 512)");
  }

  Status check() const override {
    LOCKSTEP_TRY_STATUS(model_.check());
    if (auto status = decode::validate(engine_options()); !status.ok()) {
      return about_flag(status.error());
    }
    std::error_code ignored;
    if (in_ == out_ || fs::equivalent(in_, out_, ignored)) {
      return Error{ErrorCode::kInvalidArgument, "is both input and output", in_};
    }
    return {};
  }

  int run(Console& console) override {
    install_interrupt_handler();
    auto runtime = model_.open(console);
    if (!runtime.ok()) return console.fail(runtime.error());
    BatchRun run(console, **runtime, engine_options(), out_);
    const Status status = run.run(in_);
    console.end_progress();
    if (!status.ok()) return console.fail(status.error());
    console.note(std::to_string(run.done()) + " results written, " + std::to_string(run.failed()) +
                 " of them errors; " + std::to_string(run.skipped()) + " were there already");
    return kExitOk;
  }

 private:
  decode::EngineOptions engine_options() const {
    constexpr std::int64_t kParallelMax = limits::kSequencesMax + 1;  // refused by validate
    const bool fits = parallel_ >= 0 && parallel_ < kParallelMax;
    return {.sequences_max = static_cast<int>(fits ? parallel_ : kParallelMax),
            .prefill_chunk = prefill_chunk_};
  }

  ModelOptions model_;
  std::string in_, out_;
  std::int64_t parallel_ = 8;
  std::int64_t prefill_chunk_ = 512;
};

}  // namespace

std::unique_ptr<Command> make_batch_command() {
  return std::make_unique<BatchCommand>();
}

}  // namespace lockstep::cli
