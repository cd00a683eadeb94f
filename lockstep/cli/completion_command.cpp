// SPDX-License-Identifier: Apache-2.0
// Completion scripts, made from the same declarations as --help.
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cli/command.h"
#include "lockstep/cli/commands.h"

namespace lockstep::cli {
namespace {

struct Described {
  std::string name;
  std::string summary;
  std::vector<ArgumentSpec> arguments;
};

bool is_flag(const ArgumentSpec& spec) {
  return spec.name.starts_with("--");
}

std::string join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words)
    out += (out.empty() ? "" : " ") + word;
  return out;
}

// In single quotes of a shell; `quote` is how the shell writes one inside.
std::string quoted(const std::string& text, const char* quote) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += quote;
    } else {
      out += c;
    }
  }
  return out + "'";
}

constexpr char kPosixQuote[] = "'\\''";
constexpr char kFishQuote[] = "\\'";

std::string bash_values(const ArgumentSpec& spec) {
  if (!spec.choices.empty()) {
    return "mapfile -t COMPREPLY < <(compgen -W " + quoted(join(spec.choices), kPosixQuote) +
           " -- \"$word\")";
  }
  return spec.is_path ? "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$word\")"
                      : "COMPREPLY=()";
}

std::string bash_script(const std::vector<Described>& commands) {
  std::vector<std::string> names;
  std::string cases;
  for (const Described& command : commands) {
    names.push_back(command.name);
    std::vector<std::string> flags = {"--help"};
    std::string values, positional = "COMPREPLY=()";
    for (const ArgumentSpec& spec : command.arguments) {
      if (!is_flag(spec)) {
        positional = bash_values(spec);
        continue;
      }
      flags.push_back(spec.name);
      if (spec.takes_value)
        values += "        " + spec.name + ") " + bash_values(spec) + "; return ;;\n";
    }
    cases += "    " + command.name + ")\n      case $previous in\n" + values +
             "      esac\n      if [[ $word == -* ]]; then\n"
             "        mapfile -t COMPREPLY < <(compgen -W " +
             quoted(join(flags), kPosixQuote) + " -- \"$word\")\n      else\n        " +
             positional + "\n      fi ;;\n";
  }
  return "# Completion of lockstep for bash.\n"
         "_lockstep() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
         "  COMPREPLY=()\n"
         "  if ((COMP_CWORD == 1)); then\n"
         "    mapfile -t COMPREPLY < <(compgen -W " +
         quoted(join(names) + " --help --help-all --version", kPosixQuote) +
         " -- \"$word\")\n    return\n  fi\n  case ${COMP_WORDS[1]} in\n" + cases +
         "  esac\n}\ncomplete -F _lockstep lockstep\n";
}

// In the text of an _arguments specification ':' and brackets have a meaning.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const ArgumentSpec& spec) {
  if (!spec.choices.empty()) return ":value:(" + join(spec.choices) + ")";
  return spec.is_path ? ":path:_files" : ":value: ";
}

std::string zsh_script(const std::vector<Described>& commands) {
  std::string list, cases;
  for (const Described& command : commands) {
    list += "    " + quoted(command.name + ":" + zsh_text(command.summary), kPosixQuote) + "\n";
    cases += "    " + command.name + ")\n      _arguments \\\n        '--help[Print the flags]'";
    std::string positional;
    for (const ArgumentSpec& spec : command.arguments) {
      if (!is_flag(spec)) {
        positional = " \\\n        " + quoted("*" + zsh_action(spec), kPosixQuote);
        continue;
      }
      std::string word = spec.name + "[" + zsh_text(spec.help) + "]";
      if (spec.takes_value) word += zsh_action(spec);
      cases += " \\\n        " + quoted(word, kPosixQuote);
    }
    cases += positional;
    cases += " ;;\n";
  }
  return "#compdef lockstep\n"
         "# Completion of lockstep for zsh.\n"
         "_lockstep() {\n  local -a commands\n  commands=(\n" +
         list +
         "  )\n  if ((CURRENT == 2)); then\n"
         "    _describe command commands\n    return\n  fi\n"
         "  local command=$words[2]\n  shift words\n  ((CURRENT--))\n  case $command in\n" +
         cases +
         "  esac\n}\n"
         "if [[ $funcstack[1] == _lockstep ]]; then\n  _lockstep \"$@\"\nelse\n"
         "  compdef _lockstep lockstep\nfi\n";
}

std::string fish_script(const std::vector<Described>& commands) {
  std::string out = "# Completion of lockstep for fish.\ncomplete -c lockstep -f\n";
  for (const Described& command : commands) {
    out += "complete -c lockstep -n __fish_use_subcommand -a " + command.name + " -d " +
           quoted(command.summary, kFishQuote) + "\n";
    const std::string here =
        "complete -c lockstep -n '__fish_seen_subcommand_from " + command.name + "'";
    for (const ArgumentSpec& spec : command.arguments) {
      const std::string values =
          spec.choices.empty() ? "" : " -a " + quoted(join(spec.choices), kFishQuote);
      if (!is_flag(spec)) {
        out += here + (spec.is_path ? " -F" : values) + "\n";
        continue;
      }
      out += here + " -l " + spec.name.substr(2) + " -d " + quoted(spec.help, kFishQuote);
      if (spec.takes_value) out += (spec.is_path ? " -r -F" : " -x") + values;
      out += "\n";
    }
  }
  return out;
}

class CompletionCommand : public Command {
 public:
  std::string name() const override { return "completion"; }
  std::string summary() const override { return "Print a completion script for a shell"; }

  void declare(Arguments& arguments) override {
    arguments.positional_choice("SHELL", &shell_, {"bash", "zsh", "fish"},
                                "The shell that will read the script");
  }

  int run(Console& console) override {
    const auto all = make_all_commands();
    std::vector<Described> commands;
    for (auto& [name, arguments] : describe(all)) {
      commands.push_back({.name = name,
                          .summary = all[commands.size()]->summary(),
                          .arguments = std::move(arguments)});
    }
    console.out(shell_ == "bash"  ? bash_script(commands)
                : shell_ == "zsh" ? zsh_script(commands)
                                  : fish_script(commands));
    return kExitOk;
  }

 private:
  std::string shell_;
};

}  // namespace

std::unique_ptr<Command> make_completion_command() {
  return std::make_unique<CompletionCommand>();
}

}  // namespace lockstep::cli
