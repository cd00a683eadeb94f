// SPDX-License-Identifier: Apache-2.0
#include "lockstep/ops/registry.h"

#include <fstream>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace lockstep::ops {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Names of the pure virtual functions that the class Backend lists under "verbs".
std::set<std::string> declared_verbs() {
  const std::string text = read("lockstep/ops/backend.h");
  const std::size_t begin = text.find("// --- verbs");
  EXPECT_NE(begin, std::string::npos);
  std::set<std::string> names;
  const std::regex verb(R"(virtual [\w:]+ (\w+)\()");
  const std::string section = begin == std::string::npos ? "" : text.substr(begin);
  for (std::sregex_iterator it(section.begin(), section.end(), verb), end; it != end; ++it) {
    names.insert((*it)[1]);
  }
  names.erase("expert_union");  // a statistic
  return names;
}

TEST(Registry, EveryVerbHasExactlyOneRow) {
  std::multiset<std::string> listed;
  for (const VerbExactness& row : kVerbs)
    listed.emplace(row.verb);
  const std::set<std::string> declared = declared_verbs();
  EXPECT_GE(declared.size(), 13u);
  EXPECT_EQ(std::set<std::string>(listed.begin(), listed.end()), declared);
  EXPECT_EQ(listed.size(), declared.size());
}

// A verb of class kBitwise is called inside an expect_bitwise() test.
TEST(Registry, EveryBitwiseVerbHasItsTest) {
  std::string tests;
  for (const char* name :
       {"linear_test.cpp", "mixer_test_data.h", "attention_test.cpp", "experts_test.cpp"}) {
    tests += read(std::string("lockstep/ops/") + name);
  }
  EXPECT_NE(tests.find("expect_bitwise("), std::string::npos);
  for (const VerbExactness& row : kVerbs) {
    ASSERT_EQ(row.exactness, Exactness::kBitwise) << row.verb << " needs the test of its class";
    const bool called = tests.find("backend." + std::string(row.verb) + "(") != std::string::npos ||
                        tests.find("backend->" + std::string(row.verb) + "(") != std::string::npos;
    EXPECT_TRUE(called) << row.verb;
  }
}

}  // namespace
}  // namespace lockstep::ops
