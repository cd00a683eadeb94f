// SPDX-License-Identifier: Apache-2.0
// embed, linear, project, mix_out, rms_norm, fuse, gather_rows.
#include <cmath>
#include <numeric>

#include "lockstep/ops/test_data.h"
#include "lockstep/quant/codec.h"

namespace lockstep::ops {
namespace {

using quant::Format;

struct Shape {
  std::int64_t rows, cols;
};

// A prime number of rows; columns that are no multiple of 16 where the format allows it.
Shape odd_shape(const Format& format) {
  return format.quantized() ? Shape{61, 384} : Shape{61, 203};
}

std::vector<float> run_linear(Backend& backend, const StoredMatrix& w, const std::vector<float>& x,
                              std::int64_t rows) {
  backend.reset_scratch();
  const auto matrix = backend.prepare(std::array{w.view()});
  const Tensor out = backend.scratch(rows, matrix->rows());
  backend.linear(upload_new(backend, x, rows), *matrix, out);
  return download_all(backend, out);
}

class LinearFormats : public testing::TestWithParam<Format> {};

TEST_P(LinearFormats, EqualsReferenceForEveryRowCount) {
  const Shape shape = odd_shape(GetParam());
  Noise noise(7);
  const StoredMatrix w(GetParam(), shape.rows, shape.cols, noise);
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64}) {
    const std::vector<float> x = noise.floats(rows * shape.cols);
    expect_bitwise([&](Backend& backend) { return run_linear(backend, w, x, rows); });
  }
}

TEST_P(LinearFormats, RowAloneEqualsRowAmongOthers) {
  const Shape shape = odd_shape(GetParam());
  Noise noise(8);
  const StoredMatrix w(GetParam(), shape.rows, shape.cols, noise);
  const std::vector<float> x = noise.floats(64 * shape.cols);
  const auto width = static_cast<std::size_t>(shape.cols);
  for (const std::string& isa : present_isas()) {
    const auto backend = cpu_backend(isa, 2);
    std::vector<float> alone;
    for (std::size_t r = 0; r < 64; ++r) {
      append(alone,
             run_linear(*backend, w, {x.begin() + r * width, x.begin() + (r + 1) * width}, 1));
    }
    for (const std::size_t rows : {2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 16u, 33u, 64u}) {
      const std::vector<float> together =
          run_linear(*backend, w, {x.begin(), x.begin() + rows * width}, static_cast<long>(rows));
      EXPECT_TRUE(same_bits(std::span(alone).first(together.size()), together)) << isa << rows;
    }
  }
}

// |error| of a sum of n products by fused multiply-adds in any order is at most
// gamma(n) * sum |x w| with gamma(n) = n u / (1 - n u) and u = 2^-24 (Higham, ch. 3).
TEST_P(LinearFormats, WithinTheRoundingBoundOfExactSum) {
  const Shape shape = odd_shape(GetParam());
  Noise noise(9);
  const StoredMatrix w(GetParam(), shape.rows, shape.cols, noise);
  const std::vector<float> x = noise.floats(shape.cols);
  const std::vector<float> y = run_linear(*cpu_backend("", 1), w, x, 1);
  std::vector<float> line(static_cast<std::size_t>(shape.cols));
  for (std::int64_t n = 0; n < shape.rows; ++n) {
    quant::dequantize_row(w.view(), n, line.data());
    double sum = 0, magnitude = 0;
    for (std::size_t k = 0; k < line.size(); ++k) {
      sum += static_cast<double>(line[k]) * static_cast<double>(x[k]);
      magnitude += std::abs(static_cast<double>(line[k]) * static_cast<double>(x[k]));
    }
    const double nu = static_cast<double>(shape.cols) * 0x1p-24;
    EXPECT_NEAR(y[static_cast<std::size_t>(n)], sum, nu / (1 - nu) * magnitude);
  }
}

TEST_P(LinearFormats, EmbedGivesTheStoredNumbers) {
  const Shape shape = odd_shape(GetParam());
  Noise noise(10);
  const StoredMatrix w(GetParam(), shape.rows, shape.cols, noise);
  const std::vector<std::int32_t> ids = {0, 60, 7, 7, 31};
  std::vector<float> expected;
  for (const std::int32_t id : ids) {
    std::vector<float> line(static_cast<std::size_t>(shape.cols));
    quant::dequantize_row(w.view(), id, line.data());
    append(expected, line);
  }
  for (const std::string& isa : present_isas()) {
    const auto backend = cpu_backend(isa, 1);
    const auto matrix = backend->prepare(std::array{w.view()});
    const Tensor out = backend->scratch(5, shape.cols);
    backend->embed(*matrix, ids, out);
    EXPECT_TRUE(same_bits(expected, download_all(*backend, out))) << isa;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LinearFormats, testing::ValuesIn(all_formats()),
                         [](const auto& param) {
                           std::string name =
                               param.param.name() + "_" + dtype_name(param.param.float_type);
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST(Linear, PartsOfDifferentFormatsMakeOneRow) {
  Noise noise(11);
  const StoredMatrix a(quant::affine(4, 64), 70, 256, noise);
  const StoredMatrix b(quant::float_format(DType::kBF16), 5, 256, noise);
  const StoredMatrix c(quant::mxfp8(), 1, 256, noise);
  const StoredMatrix d(quant::affine(8, 64), 900, 256, noise);
  const std::vector<float> gamma = noise.floats(256, 0.5f, 1.5f);
  for (const std::int64_t rows : {1, 5, 40}) {
    const std::vector<float> x = noise.floats(rows * 256, -3.0f, 3.0f);
    const std::vector<float> residual = noise.floats(rows * 976);
    expect_bitwise([&](Backend& backend) {
      const auto matrix = backend.prepare(std::array{a.view(), b.view(), c.view(), d.view()});
      EXPECT_EQ(matrix->rows(), 976);
      EXPECT_EQ(matrix->cols(), 256);
      const Tensor in = upload_new(backend, x, rows);
      const Tensor out = backend.scratch(rows, 976);
      backend.project(in, gamma, 1e-6f, *matrix, out);
      std::vector<float> values = download_all(backend, out);
      const Tensor sum = upload_new(backend, residual, rows);
      backend.mix_out(in, *matrix, sum);
      append(values, download_all(backend, sum));
      return values;
    });
  }
}

TEST(RmsNorm, EqualsReferenceAndTheFormula) {
  Noise noise(12);
  for (const std::int64_t width : {1, 7, 16, 100, 256, 2048}) {
    const std::vector<float> x = noise.floats(3 * width, -2.0f, 2.0f);
    const std::vector<float> gamma = noise.floats(width);
    const auto run = [&](Backend& backend) {
      const Tensor out = backend.scratch(3, width);
      backend.rms_norm(upload_new(backend, x, 3), gamma, 1e-6f, out);
      return download_all(backend, out);
    };
    expect_bitwise(run);
    const std::vector<float> y = run(*reference_backend());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto n = static_cast<std::size_t>(width);
      const float* row = x.data() + i / n * n;
      const double sum = std::inner_product(row, row + n, row, 0.0);
      const double exact = x[i] / std::sqrt(sum / static_cast<double>(width) + 1e-6) * gamma[i % n];
      // The sum's rounding is halved by the root; then five operations of half a unit each.
      const double bound = (static_cast<double>(width) / 2 + 5) * 0x1p-24;
      EXPECT_NEAR(y[i], exact, std::abs(exact) * bound);
    }
  }
}

TEST(Fuse, NormalisesBothHalves) {
  Noise noise(13);
  const std::vector<float> e = noise.floats(2 * 48), h = noise.floats(2 * 48);
  const std::vector<float> gamma_e = noise.floats(48), gamma_h = noise.floats(48);
  expect_bitwise([&](Backend& backend) {
    const Tensor te = upload_new(backend, e, 2), th = upload_new(backend, h, 2);
    const Tensor out = backend.scratch(2, 96), half = backend.scratch(2, 48);
    backend.fuse(te, gamma_e, th, gamma_h, 1e-6f, out);
    const std::vector<float> both = download_all(backend, out);
    backend.rms_norm(th, gamma_h, 1e-6f, half);
    const std::vector<float> second = download_all(backend, half);
    EXPECT_TRUE(same_bits(std::span(second).first(48), std::span(both).subspan(48, 48)));
    return both;
  });
}

TEST(GatherRows, CopiesInTheGivenOrder) {
  for (const char* name : {"reference", "cpu"}) {
    const std::unique_ptr<Backend> backend =
        make_backend({.name = name, .precision = "f32", .isa = "", .threads = 1}).value();
    const Tensor in = upload_new(*backend, {1, 2, 3, 4, 5, 6}, 3);
    const Tensor out = backend->scratch(4, 2);
    backend->gather_rows(in, std::array{2, 0, 0, 1}, out);
    EXPECT_EQ(download_all(*backend, out), (std::vector<float>{5, 6, 1, 2, 1, 2, 3, 4}));
  }
}

}  // namespace
}  // namespace lockstep::ops
