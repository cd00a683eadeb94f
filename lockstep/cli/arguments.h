// SPDX-License-Identifier: Apache-2.0
// Declares the flags of a command and reads them, through CLI11 (arguments.cpp). The same
// declarations make --help and the shell completions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

// One flag or positional as the completion scripts need it.
struct ArgumentSpec {
  std::string name;  // "--model"; without dashes for a positional
  std::string help;
  std::vector<std::string> choices;  // allowed words, if they are few
  bool takes_value = true;
  bool is_path = false;
};

// The declarations of one command. Targets must outlive parsing; a flag that is not given leaves
// its target as it was.
class Arguments {
 public:
  Arguments(void* cli11_app, std::string command);

  void flag(const std::string& name, bool* target, const std::string& help);
  void text(const std::string& name, std::string* target, const std::string& help);
  void text(const std::string& name, std::optional<std::string>* target, const std::string& help);
  void path(const std::string& name, std::string* target, const std::string& help);
  void choice(const std::string& name, std::string* target, std::vector<std::string> choices,
              const std::string& help);
  void integer(const std::string& name, std::int64_t* target, const std::string& help);
  void integer(const std::string& name, std::optional<std::int64_t>* target,
               const std::string& help);
  void unsigned_integer(const std::string& name, std::optional<std::uint64_t>* target,
                        const std::string& help);
  void number(const std::string& name, std::optional<double>* target, const std::string& help);
  void list(const std::string& name, std::vector<std::string>* target, const std::string& help);
  // Positionals, in order; all must be given.
  void positional_choice(const std::string& name, std::string* target,
                         std::vector<std::string> choices, const std::string& help);
  void positional_path(const std::string& name, std::string* target, const std::string& help);
  void positional_paths(const std::string& name, std::vector<std::string>* target,
                        const std::string& help);

  const std::string& command() const { return command_; }
  const std::vector<ArgumentSpec>& specs() const { return specs_; }

 private:
  void* app_;
  std::string command_;
  std::vector<ArgumentSpec> specs_;
};

}  // namespace lockstep::cli
