// SPDX-License-Identifier: Apache-2.0
#include "lockstep/io/safetensors_writer.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <string>
#include <vector>

#include "lockstep/io/json.h"
#include "lockstep/io/safetensors.h"

namespace lockstep::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::byte> counted(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const std::string path = ::testing::TempDir() + "written.safetensors";
  const std::vector<TensorData> tensors = {{"b", DType::kU8, {3}, counted(3)},
                                           {"a", DType::kF32, {2, 1}, counted(8)},
                                           {"none", DType::kF32, {0}, {}}};
  const auto status = write_safetensors(path, tensors, {{"format", "mlx"}});
  ASSERT_TRUE(status.ok()) << status.error().to_string();
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  EXPECT_EQ(file->metadata().at("format"), "mlx");
  ASSERT_EQ(file->tensors().size(), 3u);
  for (const TensorData& tensor : tensors) {
    const TensorView* view = file->find(tensor.name);
    ASSERT_NE(view, nullptr);
    EXPECT_EQ(view->dtype, tensor.dtype);
    EXPECT_EQ(view->shape, tensor.shape);
    EXPECT_TRUE(std::equal(view->bytes.begin(), view->bytes.end(), tensor.bytes.begin(),
                           tensor.bytes.end()));
  }
}

// Any list of tensors comes back as it was.
TEST(SafetensorsWriter, RoundTripsAnyTensors) {
  const std::string path = ::testing::TempDir() + "any.safetensors";
  EXPECT_TRUE(rc::check([&](const std::vector<std::vector<std::uint8_t>>& shapes,
                            std::uint8_t type) {
    constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kU8, DType::kU32, DType::kI64};
    std::vector<TensorData> tensors;
    for (const auto& axes : shapes) {
      TensorData tensor{
          "tensor " + std::to_string(tensors.size()) + " \"é\"", kTypes[type % 5], {}, {}};
      for (std::size_t i = 0; i < std::min<std::size_t>(axes.size(), 4); ++i) {
        tensor.shape.push_back(axes[i] % 5);
      }
      tensor.bytes = counted(TensorDeclaration{"", tensor.dtype, tensor.shape}.byte_count());
      tensors.push_back(std::move(tensor));
      type = static_cast<std::uint8_t>(type + 1);
    }
    RC_ASSERT(write_safetensors(path, tensors, {}).ok());
    const auto file = SafetensorsFile::open(path);
    RC_ASSERT(file.ok());
    RC_ASSERT(file->tensors().size() == tensors.size());
    for (const TensorData& tensor : tensors) {
      const TensorView* view = file->find(tensor.name);
      RC_ASSERT(view != nullptr);
      RC_ASSERT(view->dtype == tensor.dtype);
      RC_ASSERT(view->shape == tensor.shape);
      RC_ASSERT(std::equal(view->bytes.begin(), view->bytes.end(), tensor.bytes.begin(),
                           tensor.bytes.end()));
    }
  }));
}

// Byte for byte, as the format's description says: length, JSON padded with spaces to 8, payload.
TEST(SafetensorsWriter, HeaderIsExact) {
  const std::string path = ::testing::TempDir() + "exact.safetensors";
  const std::vector<TensorData> tensors = {{"x", DType::kU8, {2}, {std::byte{5}, std::byte{6}}}};
  ASSERT_TRUE(write_safetensors(path, tensors, {}).ok());
  const std::string json = R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  std::string expected(8, '\0');
  expected[0] = 56;
  expected += json + std::string(56 - json.size(), ' ') + "\x05\x06";
  EXPECT_EQ(read_file(path, 1000).value(), expected);
}

TEST(SafetensorsWriter, StreamsInAnyPieces) {
  const std::string path = ::testing::TempDir() + "streamed.safetensors";
  std::filesystem::remove(path);
  auto writer = SafetensorsWriter::create(path, {{"a", DType::kU8, {4}}, {"b", DType::kU8, {4}}},
                                          {{"format", "mlx"}});
  ASSERT_TRUE(writer.ok());
  const auto bytes = counted(8);
  for (std::size_t i = 0; i < 8; i += 2) {
    ASSERT_TRUE(writer->append(std::span(bytes).subspan(i, 2)).ok());
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  ASSERT_TRUE(writer->finish().ok());
  EXPECT_THAT(SafetensorsFile::open(path)->find("b")->bytes,
              ElementsAre(bytes[4], bytes[5], bytes[6], bytes[7]));
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(SafetensorsWriter, DroppedWriterLeavesNothing) {
  const std::string path = ::testing::TempDir() + "dropped.safetensors";
  {
    auto writer = SafetensorsWriter::create(path, {{"a", DType::kU8, {4}}}, {});
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE(std::filesystem::exists(path + ".partial"));
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(SafetensorsWriter, ReportsErrors) {
  const auto nowhere = SafetensorsWriter::create("/nonexistent/x", {}, {});
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().code, ErrorCode::kIo);
  EXPECT_THAT(nowhere.error().message, HasSubstr("can't be created"));
  const std::string path = ::testing::TempDir() + "names.safetensors";
  const auto twice =
      SafetensorsWriter::create(path, {{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}, {});
  ASSERT_FALSE(twice.ok());
  EXPECT_THAT(twice.error().message, HasSubstr("two tensors named 'a'"));
  EXPECT_FALSE(SafetensorsWriter::create(path, {{"__metadata__", DType::kU8, {1}}}, {}).ok());
}

// /dev/full refuses every byte, as a full disk does.
TEST(SafetensorsWriter, FullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const std::string path = ::testing::TempDir() + "full.safetensors";
  std::filesystem::remove(path + ".partial");
  std::filesystem::create_symlink("/dev/full", path + ".partial");
  const std::vector<TensorData> tensors = {{"a", DType::kU8, {1 << 20}, counted(1 << 20)}};
  const auto status = write_safetensors(path, tensors, {});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_THAT(status.error().message, HasSubstr("No space left"));
}

}  // namespace
}  // namespace lockstep::io
