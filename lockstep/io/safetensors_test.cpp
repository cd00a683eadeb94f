// SPDX-License-Identifier: Apache-2.0
#include "lockstep/io/safetensors.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/limits.h"

namespace lockstep::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::byte> file_bytes(std::uint64_t header_length, const std::string& header,
                                  std::size_t payload_size) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < 8; ++i)
    bytes.push_back(static_cast<std::byte>(header_length >> (8 * i)));
  for (const char c : header)
    bytes.push_back(static_cast<std::byte>(c));
  for (std::size_t i = 0; i < payload_size; ++i)
    bytes.push_back(static_cast<std::byte>(i));
  return bytes;
}

std::vector<std::byte> file_bytes(const std::string& header, std::size_t payload_size) {
  return file_bytes(header.size(), header, payload_size);
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

Error parse_error(const std::vector<std::byte>& bytes) {
  const auto file = SafetensorsFile::parse(bytes, "f");
  EXPECT_FALSE(file.ok());
  return file.ok() ? Error{} : file.error();
}

std::string message_of(const std::string& header, std::size_t payload_size) {
  return parse_error(file_bytes(header, payload_size)).to_string();
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const auto bytes =
      file_bytes(R"({"__metadata__":{"format":"mlx"},)" + tensor("a", "F32", "[2]", "[0,8]") + "," +
                     tensor("b", "BF16", "[1,3]", "[8,14]") + "}  ",
                 14);
  const auto file = SafetensorsFile::parse(bytes, "f");
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->metadata().at("format"), "mlx");
  const TensorView* b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::kBF16);
  EXPECT_THAT(b->shape, ElementsAre(1, 3));
  ASSERT_EQ(b->bytes.size(), 6u);
  EXPECT_EQ(b->bytes[0], std::byte{8});
  EXPECT_EQ(b->file, "f");
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST(Safetensors, AcceptsOddOffsetsAnyOrderScalarsAndEmptyTensors) {
  const auto bytes = file_bytes("{" + tensor("late", "F32", "[1]", "[3,7]") + "," +
                                    tensor("early", "U8", "[3]", "[0,3]") + "," +
                                    tensor("none", "F16", "[0,5]", "[3,3]") + "," +
                                    tensor("scalar", "U8", "[]", "[7,8]") + "}",
                                8);
  const auto file = SafetensorsFile::parse(bytes, "f");
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  EXPECT_EQ(file->tensors()[0].name, "late");
  EXPECT_EQ(file->find("late")->bytes[0], std::byte{3});
  EXPECT_EQ(file->find("none")->bytes.size(), 0u);
  EXPECT_EQ(file->find("scalar")->bytes[0], std::byte{7});
}

TEST(Safetensors, NoTensorsIsValid) {
  const auto bytes = file_bytes("{}", 0);
  EXPECT_TRUE(SafetensorsFile::parse(bytes, "f").ok());
}

TEST(Safetensors, RefusesBadLengths) {
  EXPECT_THAT(parse_error({}).to_string(), HasSubstr("f: has 0 bytes"));
  EXPECT_THAT(parse_error(std::vector<std::byte>(7)).to_string(), HasSubstr("cut short"));
  const Error huge = parse_error(file_bytes(std::uint64_t{1} << 60, "{}", 0));
  EXPECT_EQ(huge.code, ErrorCode::kLimit);
  EXPECT_THAT(huge.message, HasSubstr("1152921504606846976"));
  EXPECT_EQ(parse_error(file_bytes(UINT64_MAX, "{}", 0)).code, ErrorCode::kLimit);
  EXPECT_THAT(parse_error(file_bytes(100, "{}", 0)).to_string(),
              HasSubstr("header ends at byte 108, file has 10"));
}

TEST(Safetensors, RefusesBadHeaders) {
  EXPECT_THAT(message_of("{", 0), HasSubstr("header is not valid JSON"));
  EXPECT_THAT(message_of("[]", 0), HasSubstr("header is array"));
  EXPECT_THAT(message_of("{\"\xff\":1}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of(R"({"__metadata__":3})", 0), HasSubstr("__metadata__ is integer"));
  EXPECT_THAT(message_of(R"({"__metadata__":{"a":3}})", 0), HasSubstr("key 'a' is integer"));
  const std::string twice =
      "{" + tensor("x", "U8", "[1]", "[0,1]") + "," + tensor("x", "U8", "[1]", "[0,1]") + "}";
  EXPECT_THAT(message_of(twice, 1), HasSubstr("'x' stands twice"));
}

TEST(Safetensors, RefusesBadEntries) {
  const auto one = [](const std::string& dtype, const std::string& shape,
                      const std::string& offsets) {
    return message_of("{" + tensor("x", dtype, shape, offsets) + "}", 8);
  };
  EXPECT_THAT(one("F4", "[1]", "[0,8]"), HasSubstr("tensor 'x' has dtype 'F4'"));
  EXPECT_THAT(one("F32", "[-1]", "[0,8]"), HasSubstr("no length: -1"));
  EXPECT_THAT(one("F32", "[1.5]", "[0,8]"), HasSubstr("no length: 1.5"));
  EXPECT_THAT(one("F32", "{}", "[0,8]"), HasSubstr("has no shape"));
  EXPECT_THAT(one("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), HasSubstr("has 9 axes"));
  EXPECT_THAT(one("F32", "[4294967296,4294967296]", "[0,8]"), HasSubstr("overflows"));
  EXPECT_THAT(one("F32", "[2]", "[0]"), HasSubstr("no data_offsets"));
  EXPECT_THAT(one("F32", "[2]", "[-8,0]"), HasSubstr("no data_offsets"));
  EXPECT_THAT(one("F32", "[2]", "[8,0]"), HasSubstr("begins at byte 8"));
  EXPECT_THAT(one("F32", "[3]", "[0,8]"), HasSubstr("takes 8 bytes, its shape and dtype need 12"));
  EXPECT_THAT(one("U8", "[9]", "[0,9]"), HasSubstr("tensor 'x' ends at byte "));
  EXPECT_THAT(one("U8", "[9]", "[0,9]"), HasSubstr("the download is cut short"));
  EXPECT_THAT(one("U8", "[9]", "[0,18446744073709551615]"), HasSubstr("cut short"));
  EXPECT_THAT(message_of(R"({"x":7})", 0), HasSubstr("has no dtype"));
  const std::string long_name(limits::kTensorNameBytesMax + 1, 'n');
  EXPECT_THAT(message_of("{" + tensor(long_name, "U8", "[1]", "[0,1]") + "}", 1),
              HasSubstr("has a name of 1025 bytes"));
}

TEST(Safetensors, RefusesOverlapsAndGaps) {
  const std::string a = tensor("a", "U8", "[4]", "[0,4]");
  EXPECT_THAT(message_of("{" + a + "," + tensor("b", "U8", "[4]", "[3,7]") + "}", 7),
              HasSubstr("tensor 'b' begins at byte 3 of the payload and overlaps tensor 'a'"));
  EXPECT_THAT(message_of("{" + a + "," + tensor("b", "U8", "[4]", "[5,9]") + "}", 9),
              HasSubstr("tensor 'b' begins at byte 5 of the payload, expected 4"));
  EXPECT_THAT(message_of("{" + tensor("b", "U8", "[4]", "[1,5]") + "}", 5),
              HasSubstr("expected 0, where the header ends"));
  EXPECT_THAT(message_of("{" + a + "}", 5), HasSubstr("payload has 5 bytes, its tensors take 4"));
  EXPECT_THAT(message_of("{" + a + "," + tensor("b", "U8", "[4]", "[0,4]") + "}", 4),
              HasSubstr("overlaps"));
}

TEST(Safetensors, OpensFilesAndNamesThem) {
  const std::string path = ::testing::TempDir() + "reader.safetensors";
  const auto bytes = file_bytes("{" + tensor("x", "U8", "[3]", "[0,3]") + "}", 3);
  const auto write = [&](std::size_t size) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(size));
  };
  write(bytes.size());
  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  const SafetensorsFile moved = std::move(file).value();
  EXPECT_EQ(moved.find("x")->bytes[2], std::byte{2});
  // Cut at every byte: an error each time, never a crash.
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    write(size);
    const auto cut = SafetensorsFile::open(path);
    ASSERT_FALSE(cut.ok()) << size;
    EXPECT_EQ(cut.error().where, path);
  }
  EXPECT_EQ(SafetensorsFile::open("/nonexistent").error().code, ErrorCode::kNotFound);
}

TEST(Safetensors, HundredThousandTensorsOpenFast) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i) {
    header += tensor("layer." + std::to_string(i), "U8", "[1]",
                     "[" + std::to_string(99'999 - i) + "," + std::to_string(100'000 - i) + "]") +
              ",";
  }
  header.back() = '}';
  const auto bytes = file_bytes(header, 100'000);
  const Stopwatch watch;
  const auto file = SafetensorsFile::parse(bytes, "f");
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  EXPECT_EQ(file->find("layer.7")->bytes[0], bytes[bytes.size() - 8]);
  EXPECT_LT(watch.seconds(), 20.0);
}

}  // namespace
}  // namespace lockstep::io
