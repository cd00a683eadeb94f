// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cli/arguments.h"

#include <utility>

#include <CLI/CLI.hpp>

#include "lockstep/cli/command.h"

namespace lockstep::cli {
namespace {

CLI::App& app_of(void* app) { return *static_cast<CLI::App*>(app); }

}  // namespace

Arguments::Arguments(void* cli11_app, std::string command)
    : app_(cli11_app), command_(std::move(command)) {}

void Arguments::flag(const std::string& name, bool* target, const std::string& help) {
  app_of(app_).add_flag(name, *target, help);
  specs_.push_back({.name = name, .help = help, .choices = {}, .takes_value = false});
}

void Arguments::text(const std::string& name, std::string* target, const std::string& help) {
  app_of(app_).add_option(name, *target, help);
  specs_.push_back({.name = name, .help = help, .choices = {}});
}

void Arguments::text(const std::string& name, std::optional<std::string>* target,
                     const std::string& help) {
  app_of(app_).add_option(name, *target, help);
  specs_.push_back({.name = name, .help = help, .choices = {}});
}

void Arguments::path(const std::string& name, std::string* target, const std::string& help) {
  app_of(app_).add_option(name, *target, help)->type_name("PATH");
  specs_.push_back({.name = name, .help = help, .choices = {}, .is_path = true});
}

void Arguments::choice(const std::string& name, std::string* target,
                       std::vector<std::string> choices, const std::string& help) {
  app_of(app_).add_option(name, *target, help)->check(CLI::IsMember(choices));
  specs_.push_back({.name = name, .help = help, .choices = std::move(choices)});
}

void Arguments::integer(const std::string& name, std::int64_t* target, const std::string& help) {
  app_of(app_).add_option(name, *target, help);
  specs_.push_back({.name = name, .help = help, .choices = {}});
}

void Arguments::integer(const std::string& name, std::optional<std::int64_t>* target,
                        const std::string& help) {
  app_of(app_).add_option(name, *target, help);
  specs_.push_back({.name = name, .help = help, .choices = {}});
}

void Arguments::unsigned_integer(const std::string& name, std::optional<std::uint64_t>* target,
                                 const std::string& help) {
  app_of(app_).add_option(name, *target, help)->check(CLI::NonNegativeNumber);
  specs_.push_back({.name = name, .help = help, .choices = {}});
}

void Arguments::number(const std::string& name, std::optional<double>* target,
                       const std::string& help) {
  app_of(app_).add_option(name, *target, help);
  specs_.push_back({.name = name, .help = help, .choices = {}});
}

void Arguments::list(const std::string& name, std::vector<std::string>* target,
                     const std::string& help) {
  // One value per flag: `--stop A --stop B`; a second bare word is not swallowed.
  app_of(app_).add_option(name, *target, help)->expected(1)->multi_option_policy(
      CLI::MultiOptionPolicy::TakeAll);
  specs_.push_back({.name = name, .help = help, .choices = {}});
}

void Arguments::positional_path(const std::string& name, std::string* target,
                                const std::string& help) {
  app_of(app_).add_option(name, *target, help)->required()->type_name("PATH");
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e) == 0 ? 0 : kExitUsage;  // help and version
    console.usage_error(e.what());
    return kExitUsage;
  }
  for (const auto& [sub, command] : subcommands) {
    if (sub->parsed()) return command->run(console);
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
