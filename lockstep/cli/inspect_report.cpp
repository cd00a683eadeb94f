// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cli/inspect_report.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

namespace lockstep::cli {
namespace {

using io::Json;

std::string plain(const Json& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_null()) return "-";
  if (value.is_bool()) return value.as_bool() ? "yes" : "no";
  if (value.is_array()) {
    std::string out;
    for (const Json& item : value.as_array())
      out += (out.empty() ? "" : ", ") + plain(item);
    return out.empty() ? "-" : out;
  }
  return value.dump();
}

std::string field(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value == nullptr ? "-" : plain(*value);
}

std::string bytes_field(const Json& object) {
  const Json* value = object.find("bytes");
  return value == nullptr ? "-" : bytes_text(value->as_double());
}

std::string spaced(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

// Rows of cells in columns; numbers should be given in `right`.
class Table {
 public:
  explicit Table(std::vector<bool> right) : right_(std::move(right)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  std::string text() const {
    std::vector<std::size_t> widths(right_.size(), 0);
    for (const auto& row : rows_) {
      for (std::size_t c = 0; c < row.size(); ++c)
        widths[c] = std::max(widths[c], row[c].size());
    }
    std::string out;
    for (const auto& row : rows_) {
      std::string line;
      for (std::size_t c = 0; c < row.size(); ++c) {
        const std::string padding(widths[c] - row[c].size(), ' ');
        line += "  " + (right_[c] ? padding + row[c] : row[c] + padding);
      }
      out += line.erase(line.find_last_not_of(' ') + 1) + "\n";
    }
    return out;
  }

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

void section(std::string& out, const std::string& title) {
  out += (out.empty() ? "" : "\n") + title + "\n";
}

// Scalars and short lists of an object; nested objects and lists of objects are left out.
void add_facts(std::string& out, const Json& object) {
  Table table({false, false});
  for (const auto& [key, value] : object.as_object()) {
    const bool nested = value.is_object() || (value.is_array() && value.size() != 0 &&
                                              value.as_array().front().is_object());
    if (!nested) table.add({spaced(key), key == "bytes" ? bytes_field(object) : plain(value)});
  }
  out += table.text();
}

void add_formats(std::string& out, const Json& facts) {
  Table table({false, false, false, true, true, true});
  table.add({"group", "role", "format", "tensors", "parameters", "bytes"});
  const auto add = [&](const std::string& group, const Json& entry) {
    table.add({group, field(entry, "role"), field(entry, "format"), field(entry, "tensors"),
               field(entry, "parameters"), bytes_field(entry)});
  };
  if (const Json* roles = facts.find("roles")) {
    for (const Json& entry : roles->as_array())
      add(field(entry, "group"), entry);
  }
  if (const Json* totals = facts.find("totals")) add("total", *totals);
  out += table.text();
}

void add_norms(std::string& out, const Json& norms) {
  Table table({false, false, false, false});
  table.add({"group", "convention", "votes", "evidence"});
  for (const auto& [group, decision] : norms.as_object()) {
    if (!decision.is_object()) continue;
    table.add({group, field(decision, "convention"),
               field(decision, "gamma_votes") + " gamma, " + field(decision, "raw_votes") + " raw",
               field(decision, "evidence")});
  }
  out += table.text();
}

void add_files(std::string& out, const Json& files) {
  Table table({false, true, true});
  for (const Json& file : files.as_array()) {
    table.add({field(file, "name"), field(file, "tensors") + " tensors", bytes_field(file)});
  }
  out += table.text();
}

void add_tensors(std::string& out, const Json& tensors) {
  Table table({false, false, false, true, false});
  table.add({"name", "shape", "format", "bytes", "file"});
  for (const Json& tensor : tensors.as_array()) {
    const Json* shape = tensor.find("shape");
    table.add({field(tensor, "name"), shape == nullptr ? "-" : shape->dump(),
               field(tensor, "format"), bytes_field(tensor), field(tensor, "file")});
  }
  out += table.text();
}

}  // namespace

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  char text[32];
  const int decimals = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", decimals, bytes, kUnits[unit]);
  return text;
}

std::string inspect_report(const Json& facts, const Json& tensors) {
  std::string out;
  const auto object = [&](const char* key, const std::string& title) {
    const Json* value = facts.find(key);
    if (value == nullptr || !value->is_object()) return;
    section(out, title);
    add_facts(out, *value);
  };
  object("architecture", "Architecture (layout: " + field(facts, "layout") + ")");
  if (const Json* architecture = facts.find("architecture")) {
    if (const Json* vision = architecture->find("vision");
        vision != nullptr && vision->is_object()) {
      section(out, "Vision tower");
      add_facts(out, *vision);
    }
  }
  section(out, "Weights");
  add_formats(out, facts);
  object("mtp", "MTP head");
  if (const Json* norms = facts.find("norms")) {
    section(out, "Norm convention");
    add_norms(out, *norms);
  }
  object("tokens", "Tokens");
  object("tokenizer", "Tokenizer");
  object("template", "Chat template");
  if (const Json* files = facts.find("files")) {
    section(out, "Files");
    add_files(out, *files);
  }
  if (!tensors.is_null()) {
    section(out, "Tensors");
    add_tensors(out, tensors);
  }
  if (const Json* warnings = facts.find("warnings"); warnings != nullptr && warnings->size() != 0) {
    section(out, "Warnings");
    for (const Json& warning : warnings->as_array())
      out += "  " + plain(warning) + "\n";
  }
  return out;
}

}  // namespace lockstep::cli
