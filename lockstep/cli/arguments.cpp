// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <system_error>
#include <utility>

#include "lockstep/cli/command.h"

namespace lockstep::cli {
namespace {

CLI::App& app_of(void* app) {
  return *static_cast<CLI::App*>(app);
}

// A whole text as one number in decimal; CLI11's own conversion takes 010 as octal.
template <class Number>
bool parse_number(const std::string& text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

bool parse_finite(const std::string& text, double& value) {
  return parse_number(text, value) && std::isfinite(value);
}

// Adds an option of one value. The value is stored as it is: CLI11 would split "[a,b]".
template <class Store>
CLI::Option* add_value(void* app, const std::string& name, const std::string& help,
                       const char* type_name, Store store) {
  const CLI::callback_t callback = [store](const CLI::results_t& values) {
    return store(values.front());
  };
  CLI::Option* option = app_of(app).add_option(name, callback, help);
  return option->expected(1)->allow_extra_args(false)->type_name(type_name);
}

// The command line as CLI11 takes it: last word first. It reads "--stop=" as a flag that still
// waits for its value, so an empty value becomes a word of its own.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    const bool empty_value =
        word.size() > 3 && word.starts_with("--") && word.find('=') == word.size() - 1;
    if (empty_value) word.pop_back();
    words.push_back(std::move(word));
    if (empty_value) words.emplace_back();
  }
  std::reverse(words.begin(), words.end());
  return words;
}

// A value that `parse` understands, checked first so that the message says what was expected.
template <class Value, class Parse, class Target>
void add_parsed(void* app, const std::string& name, const std::string& help, const char* type_name,
                const char* expected, Parse parse, Target* target) {
  CLI::Option* option = add_value(app, name, help, type_name, [=](const std::string& text) {
    Value value{};
    if (!parse(text, value)) return false;
    *target = value;
    return true;
  });
  const std::string wanted = expected;
  option->check(CLI::Validator(
      [=](std::string& text) {
        Value value{};
        return parse(text, value) ? std::string() : "'" + text + "' is no " + wanted;
      },
      std::string()));
}

template <class Target>
auto store_text(Target* target) {
  return [target](const std::string& text) {
    *target = text;
    return true;
  };
}

}  // namespace

Arguments::Arguments(void* cli11_app, std::string command)
    : app_(cli11_app), command_(std::move(command)) {}

void Arguments::flag(const std::string& name, bool* target, const std::string& help) {
  app_of(app_).add_flag(name, *target, help)->disable_flag_override();
  specs_.push_back({.name = name, .help = help, .choices = {}, .takes_value = false});
}

void Arguments::text(const std::string& name, std::string* target, const std::string& help) {
  add_value(app_, name, help, "TEXT", store_text(target));
  specs_.push_back({.name = name, .help = help, .choices = {}});
}

void Arguments::text(const std::string& name, std::optional<std::string>* target,
                     const std::string& help) {
  add_value(app_, name, help, "TEXT", store_text(target));
  specs_.push_back({.name = name, .help = help, .choices = {}});
}

void Arguments::path(const std::string& name, std::string* target, const std::string& help) {
  add_value(app_, name, help, "PATH", store_text(target));
  specs_.push_back({.name = name, .help = help, .choices = {}, .is_path = true});
}

void Arguments::choice(const std::string& name, std::string* target,
                       std::vector<std::string> choices, const std::string& help) {
  add_value(app_, name, help, "", store_text(target))->check(CLI::IsMember(choices));
  specs_.push_back({.name = name, .help = help, .choices = std::move(choices)});
}

void Arguments::integer(const std::string& name, std::int64_t* target, const std::string& help) {
  add_parsed<std::int64_t>(app_, name, help, "INT", "whole number", parse_number<std::int64_t>,
                           target);
  specs_.push_back({.name = name, .help = help, .choices = {}});
}

void Arguments::integer(const std::string& name, std::optional<std::int64_t>* target,
                        const std::string& help) {
  add_parsed<std::int64_t>(app_, name, help, "INT", "whole number", parse_number<std::int64_t>,
                           target);
  specs_.push_back({.name = name, .help = help, .choices = {}});
}

void Arguments::unsigned_integer(const std::string& name, std::optional<std::uint64_t>* target,
                                 const std::string& help) {
  add_parsed<std::uint64_t>(app_, name, help, "INT", "whole number of 0 or more",
                            parse_number<std::uint64_t>, target);
  specs_.push_back({.name = name, .help = help, .choices = {}});
}

void Arguments::number(const std::string& name, std::optional<double>* target,
                       const std::string& help) {
  add_parsed<double>(app_, name, help, "NUMBER", "finite number", parse_finite, target);
  specs_.push_back({.name = name, .help = help, .choices = {}});
}

void Arguments::list(const std::string& name, std::vector<std::string>* target,
                     const std::string& help) {
  // One value per flag: `--stop A --stop B`; a second bare word is not swallowed.
  const CLI::callback_t callback = [target](const CLI::results_t& values) {
    *target = values;
    return true;
  };
  app_of(app_)
      .add_option(name, callback, help)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TEXT");
  specs_.push_back({.name = name, .help = help, .choices = {}});
}

void Arguments::positional_choice(const std::string& name, std::string* target,
                                  std::vector<std::string> choices, const std::string& help) {
  add_value(app_, name, help, "", store_text(target))->required()->check(CLI::IsMember(choices));
  specs_.push_back({.name = name, .help = help, .choices = std::move(choices)});
}

void Arguments::positional_path(const std::string& name, std::string* target,
                                const std::string& help) {
  add_value(app_, name, help, "PATH", store_text(target))->required();
  specs_.push_back({.name = name, .help = help, .choices = {}, .is_path = true});
}

void Arguments::positional_paths(const std::string& name, std::vector<std::string>* target,
                                 const std::string& help) {
  app_of(app_).add_option(name, *target, help)->required()->type_name("PATH");
  specs_.push_back({.name = name, .help = help, .choices = {}, .is_path = true});
}

int dispatch(const std::vector<std::unique_ptr<Command>>& commands, int argc, char** argv,
             const std::string& version, Console& console) {
  CLI::App app{"Runs MLX-format Qwen3.5/3.6 MoE models with exact speculative decoding."};
  app.name("lockstep");
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help of every command");
  app.failure_message(CLI::FailureMessage::simple);
  std::vector<std::pair<CLI::App*, Command*>> subcommands;
  for (const auto& command : commands) {
    CLI::App* sub = app.add_subcommand(command->name(), command->summary());
    Arguments arguments(sub, command->name());
    command->declare(arguments);
    subcommands.emplace_back(sub, command.get());
  }
  // Known before parsing, so that a wrong command line is reported as an object as well.
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--json") console.set_json(true);
  }
  const auto is_first_word = [&](const auto& command) { return command->name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' &&
      std::none_of(commands.begin(), commands.end(), is_first_word)) {
    return console.usage_error({ErrorCode::kInvalidArgument, "is no command", argv[1]});
  }
  try {
    app.parse(words_of(argc, argv));
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e) == 0 ? kExitOk : kExitUsage;  // help, version
    return console.usage_error({ErrorCode::kInvalidArgument, e.what(), ""});
  }
  for (const auto& [sub, command] : subcommands) {
    if (!sub->parsed()) continue;
    if (const Status status = command->check(); !status.ok()) {
      return console.usage_error(status.error());
    }
    return console.finish(command->run(console));
  }
  return kExitUsage;
}

std::vector<std::pair<std::string, std::vector<ArgumentSpec>>> describe(
    const std::vector<std::unique_ptr<Command>>& commands) {
  std::vector<std::pair<std::string, std::vector<ArgumentSpec>>> all;
  for (const auto& command : commands) {
    CLI::App scratch;
    Arguments arguments(&scratch, command->name());
    command->declare(arguments);
    all.emplace_back(command->name(), arguments.specs());
  }
  return all;
}

}  // namespace lockstep::cli
