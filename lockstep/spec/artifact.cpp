// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/artifact.h"

#include <cstdint>
#include <cstring>

#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/spec/recognition.h"

namespace lockstep::spec {
namespace {

// Exponent bits all set: infinity or NaN.
bool all_finite(const io::TensorView& tensor) {
  const std::byte* data = tensor.bytes.data();
  std::uint32_t bad = 0;
  if (tensor.dtype == DType::kF32) {
    for (std::size_t i = 0; i < tensor.bytes.size() / 4; ++i) {
      std::uint32_t bits;
      std::memcpy(&bits, data + 4 * i, 4);
      bad |= static_cast<std::uint32_t>((bits & 0x7f800000u) == 0x7f800000u);
    }
    return bad == 0;
  }
  const std::uint32_t exponent = tensor.dtype == DType::kBF16 ? 0x7f80u : 0x7c00u;
  for (std::size_t i = 0; i < tensor.bytes.size() / 2; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, data + 2 * i, 2);
    bad |= static_cast<std::uint32_t>((bits & exponent) == exponent);
  }
  return bad == 0;
}

bool has_byte(const io::TensorView& tensor, std::byte wanted) {
  std::uint32_t found = 0;
  for (const std::byte byte : tensor.bytes)
    found |= static_cast<std::uint32_t>(byte == wanted);
  return found != 0;
}

Status check_finite(const io::TensorView* tensor) {
  if (tensor == nullptr || all_finite(*tensor)) return {};
  return tensor_error(
      ErrorCode::kFormat, *tensor,
      "holds NaN or infinite values, expected finite ones; the artifact is damaged");
}

}  // namespace

const char* target_layout_name(TargetLayout layout) {
  return layout == TargetLayout::kSource ? "source" : "mlx";
}

const char* mtp_layout_name(MtpLayout layout) {
  constexpr const char* kNames[] = {"none",         "inline",    "nested", "model",
                                    "model_nested", "side_file", "drafter"};
  return kNames[static_cast<std::size_t>(layout)];
}

const char* norm_convention_name(NormConvention convention) {
  return convention == NormConvention::kRaw ? "raw" : "gamma";
}

quant::MatrixView StoredTensor::matrix(std::int64_t expert) const {
  const std::vector<std::int64_t>& shape = expected.shape;
  CHECK(shape.size() == 2 || shape.size() == 3);
  const bool bank = shape.size() == 3;
  CHECK(expert >= 0 && expert < (bank ? shape[0] : 1));
  const std::int64_t rows = shape[shape.size() - 2];
  const StoredPart& part = parts[storage == Storage::kSplit ? static_cast<std::size_t>(expert) : 0];
  const bool fused = storage == Storage::kFusedFirst || storage == Storage::kFusedSecond;
  const std::int64_t rows_per_expert = fused ? 2 * rows : rows;
  const std::int64_t experts_stored = bank && storage != Storage::kSplit ? shape[0] : 1;
  const quant::MatrixView all{.format = format,
                              .rows = experts_stored * rows_per_expert,
                              .cols = shape.back(),
                              .codes = part.weight->bytes.data(),
                              .scales = part.scales ? part.scales->bytes.data() : nullptr,
                              .biases = part.biases ? part.biases->bytes.data() : nullptr};
  std::int64_t begin = storage == Storage::kSplit ? 0 : expert * rows_per_expert;
  if (storage == Storage::kFusedSecond) begin += rows;
  return all.slice_rows(begin, rows);
}

std::vector<float> StoredTensor::values() const {
  CHECK(!format.quantized() && storage == Storage::kWhole);
  const io::TensorView& tensor = *parts[0].weight;
  std::vector<float> values(static_cast<std::size_t>(expected.element_count()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_float(tensor.bytes.data(), tensor.dtype, i);
  }
  return values;
}

std::size_t StoredTensor::bytes() const {
  std::size_t total = 0;
  for (const StoredPart& part : parts) {
    for (const io::TensorView* tensor : {part.weight, part.scales, part.biases}) {
      if (tensor != nullptr) total += tensor->bytes.size();
    }
  }
  const bool half = storage == Storage::kFusedFirst || storage == Storage::kFusedSecond;
  return half ? total / 2 : total;
}

const StoredTensor* Artifact::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

Status check_values(const StoredTensor& tensor) {
  const bool e8m0 =
      tensor.format.kind == quant::Kind::kMxfp4 || tensor.format.kind == quant::Kind::kMxfp8;
  for (const StoredPart& part : tensor.parts) {
    if (tensor.format.has_biases()) {
      LOCKSTEP_TRY_STATUS(check_finite(part.scales));
      LOCKSTEP_TRY_STATUS(check_finite(part.biases));
    } else if (e8m0 && has_byte(*part.scales, std::byte{255})) {
      return tensor_error(ErrorCode::kFormat, *part.scales,
                          "holds the scale byte 255 (infinite), expected 0 to 254; the artifact is "
                          "damaged");
    } else if (!tensor.format.quantized() && !tensor.expected.row->quantizable()) {
      LOCKSTEP_TRY_STATUS(check_finite(part.weight));
    }
  }
  return {};
}

}  // namespace lockstep::spec
