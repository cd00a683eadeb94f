// SPDX-License-Identifier: Apache-2.0
// Random inputs for the tests of ops/, the same on every machine, and comparison of bits.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/cpu_features.h"
#include "lockstep/base/philox.h"
#include "lockstep/ops/backend.h"
#include "lockstep/ops/make_backend.h"
#include "lockstep/quant/format.h"

namespace lockstep::ops {

class Noise {
 public:
  explicit Noise(std::uint32_t seed) : seed_(seed) {}
  std::uint32_t bits() { return philox4x32({next_++, 0, 0, 0}, {seed_, 0})[0]; }
  float uniform(float low, float high) { return low + (high - low) * uniform_open(bits()); }
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits()) % (high - low + 1);
  }
  std::vector<float> floats(std::int64_t count, float low = -1.0f, float high = 1.0f) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values)
      value = uniform(low, high);
    return values;
  }

 private:
  std::uint32_t seed_;
  std::uint32_t next_ = 0;
};

// A matrix of random codes with moderate scales, at an odd address.
class StoredMatrix {
 public:
  StoredMatrix(const quant::Format& format, std::int64_t rows, std::int64_t cols, Noise& noise) {
    view_ = {.format = format, .rows = rows, .cols = cols};
    const auto count = static_cast<std::size_t>(rows);
    if (!format.quantized()) {
      view_.codes = fill_floats(codes_, format.float_type, rows * cols, noise, -1.0f, 1.0f);
      return;
    }
    codes_.push_back(std::byte{0});
    for (std::size_t i = 0; i < count * quant::row_bytes(format, cols); ++i) {
      codes_.push_back(static_cast<std::byte>(noise.bits()));
    }
    view_.codes = codes_.data() + 1;
    const std::int64_t groups = rows * cols / format.group;
    if (format.has_biases()) {
      view_.scales = fill_floats(scales_, format.float_type, groups, noise, -0.1f, 0.1f);
      view_.biases = fill_floats(biases_, format.float_type, groups, noise, -0.5f, 0.5f);
      return;
    }
    // E8M0 around 1/8, or E4M3 of any positive size.
    scales_.push_back(std::byte{0});
    const bool e4m3 = format.kind == quant::Kind::kNvfp4;
    for (std::int64_t i = 0; i < groups; ++i) {
      scales_.push_back(
          static_cast<std::byte>(e4m3 ? noise.integer(1, 60) : noise.integer(118, 126)));
    }
    view_.scales = scales_.data() + 1;
  }
  StoredMatrix(StoredMatrix&&) = default;

  const quant::MatrixView& view() const { return view_; }

 private:
  static const std::byte* fill_floats(std::vector<std::byte>& to, DType type, std::int64_t count,
                                      Noise& noise, float low, float high) {
    to.push_back(std::byte{0});
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = noise.uniform(low, high);
      std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
      if (type == DType::kBF16) bits = f32_to_bf16(value);
      if (type == DType::kF16) bits = f32_to_f16(value);
      for (std::size_t b = 0; b < dtype_bytes(type); ++b) {
        to.push_back(static_cast<std::byte>(bits >> (8 * b)));
      }
    }
    return to.data() + 1;
  }

  quant::MatrixView view_;
  std::vector<std::byte> codes_, scales_, biases_;
};

inline std::vector<quant::Format> all_formats() {
  std::vector<quant::Format> formats = {quant::float_format(DType::kF32),
                                        quant::float_format(DType::kF16),
                                        quant::float_format(DType::kBF16),
                                        quant::mxfp4(),
                                        quant::mxfp8(),
                                        quant::nvfp4(),
                                        quant::affine(4, 64, DType::kF16),
                                        quant::affine(8, 64, DType::kF32)};
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128})
      formats.push_back(quant::affine(bits, group));
  }
  return formats;
}

inline std::unique_ptr<Backend> cpu_backend(const std::string& isa, int threads) {
  auto backend = make_backend({.name = "cpu", .precision = "f32", .isa = isa, .threads = threads});
  EXPECT_TRUE(backend.ok());
  return std::move(backend).value();
}

inline std::unique_ptr<Backend> reference_backend() {
  auto backend = make_backend({.name = "reference", .precision = "f32", .isa = "", .threads = 1});
  return std::move(backend).value();
}

// Instruction sets that this machine can run.
inline std::vector<std::string> present_isas() {
  std::vector<std::string> names;
  for (const char* isa : {"scalar", "avx2", "avx512"}) {
    if (make_backend({.name = "cpu", .precision = "f32", .isa = isa, .threads = 1}).ok()) {
      names.emplace_back(isa);
    }
  }
  return names;
}

inline Tensor upload_new(Backend& backend, const std::vector<float>& values, std::int64_t rows) {
  const Tensor t = backend.scratch(rows, static_cast<std::int64_t>(values.size()) / rows);
  backend.upload(values, t);
  return t;
}

inline std::vector<float> download_all(Backend& backend, const Tensor& t) {
  std::vector<float> values(static_cast<std::size_t>(t.rows * t.width));
  backend.download(t, values);
  return values;
}

inline void append(std::vector<float>& to, const std::vector<float>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

inline testing::AssertionResult same_bits(std::span<const float> expected,
                                          std::span<const float> found) {
  if (expected.size() != found.size()) {
    return testing::AssertionFailure() << expected.size() << " values, found " << found.size();
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(expected[i]) != std::bit_cast<std::uint32_t>(found[i])) {
      return testing::AssertionFailure() << "value " << i << " of " << expected.size()
                                         << ": expected " << testing::PrintToString(expected[i])
                                         << ", found " << testing::PrintToString(found[i]);
    }
  }
  return testing::AssertionSuccess();
}

// Runs `verb(backend)`, which returns floats, in the reference and in every instruction set and
// several thread counts: all must give the same bits (Exactness::kBitwise).
template <class Verb>
void expect_bitwise(const Verb& verb, std::span<const int> thread_counts = std::array{1, 2, 3}) {
  const std::vector<float> expected = verb(*reference_backend());
  ASSERT_FALSE(expected.empty());
  for (const std::string& isa : present_isas()) {
    for (const int threads : thread_counts) {
      EXPECT_TRUE(same_bits(expected, verb(*cpu_backend(isa, threads))))
          << isa << ", " << threads << " threads";
    }
  }
}

}  // namespace lockstep::ops
