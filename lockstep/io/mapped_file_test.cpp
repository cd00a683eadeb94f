// SPDX-License-Identifier: Apache-2.0
#include "lockstep/io/mapped_file.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <utility>

namespace lockstep::io {
namespace {

std::string write_file(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(MappedFile, ShowsTheBytes) {
  const auto file = MappedFile::open(write_file("mapped", "hello"));
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  ASSERT_EQ(file->size(), 5u);
  EXPECT_EQ(std::memcmp(file->bytes().data(), "hello", 5), 0);
}

TEST(MappedFile, EmptyFileIsFine) {
  const auto file = MappedFile::open(write_file("mapped-empty", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFile, MovesKeepTheMapping) {
  auto opened = MappedFile::open(write_file("mapped-move", "abc"));
  MappedFile first = std::move(opened).value();
  const std::byte* data = first.bytes().data();
  MappedFile second;
  second = std::move(first);
  EXPECT_EQ(second.bytes().data(), data);
  EXPECT_EQ(second.size(), 3u);
  EXPECT_EQ(first.size(), 0u);  // NOLINT: the moved-from state is part of the contract
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  EXPECT_EQ(MappedFile::open("/nonexistent/x").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(MappedFile::open(::testing::TempDir()).error().code, ErrorCode::kIo);
  const std::string pipe = ::testing::TempDir() + "mapped-pipe";
  std::filesystem::remove(pipe);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(pipe).error().code, ErrorCode::kIo);
  std::filesystem::remove(pipe);
}

}  // namespace
}  // namespace lockstep::io
