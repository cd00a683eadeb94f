// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/recognition.h"

#include <optional>

namespace lockstep::spec {
namespace {

bool is_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

Error shape_error(const io::TensorView& tensor, const std::string& expected) {
  return tensor_error(
      ErrorCode::kInconsistent, tensor,
      "has shape " + shape_text(tensor.shape) + ", expected " + expected + " by the config");
}

// Same leading axes; the last one is the caller's to judge.
bool leading_axes_agree(const std::vector<std::int64_t>& found,
                        const std::vector<std::int64_t>& shape) {
  if (found.size() != shape.size()) return false;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) {
    if (found[i] != shape[i]) return false;
  }
  return true;
}

std::string with_last_axis(const std::vector<std::int64_t>& shape, const std::string& last) {
  std::vector<std::int64_t> leading(shape.begin(), shape.end() - 1);
  std::string text = shape_text(leading);
  text.pop_back();
  return text + (leading.empty() ? "" : ", ") + last + "]";
}

std::optional<quant::Format> format_of(const StoredPart& part, std::int64_t bits,
                                       std::int64_t group) {
  const DType scale_type = part.scales->dtype;
  if (is_float(scale_type) && part.biases != nullptr) {
    const bool known_bits =
        bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
    const bool known_group = group == 32 || group == 64 || group == 128;
    if (!known_bits || !known_group) return std::nullopt;
    return quant::affine(static_cast<int>(bits), static_cast<int>(group), scale_type);
  }
  if (scale_type != DType::kU8 || part.biases != nullptr) return std::nullopt;
  if (group == 32 && bits == 4) return quant::mxfp4();
  if (group == 32 && bits == 8) return quant::mxfp8();
  if (group == 16 && bits == 4) return quant::nvfp4();
  return std::nullopt;
}

Status check_members(const StoredPart& part, const std::vector<std::int64_t>& shape) {
  const std::string& name = part.weight->name;
  if (part.scales == nullptr) {
    return tensor_error(ErrorCode::kInconsistent, *part.weight,
                        "is quantised (U32 words), but its '.scales' tensor is missing");
  }
  if (!leading_axes_agree(part.scales->shape, shape)) {
    return shape_error(*part.scales, with_last_axis(shape, "groups"));
  }
  if (is_float(part.scales->dtype) && part.biases == nullptr) {
    return tensor_error(
        ErrorCode::kInconsistent, *part.scales,
        "has float scales (affine), but the '.biases' tensor of '" + name + "' is missing");
  }
  if (part.biases != nullptr &&
      (part.biases->shape != part.scales->shape || part.biases->dtype != part.scales->dtype)) {
    return tensor_error(ErrorCode::kInconsistent, *part.biases,
                        "is " + std::string(dtype_name(part.biases->dtype)) + " " +
                            shape_text(part.biases->shape) + ", expected as the scales: " +
                            dtype_name(part.scales->dtype) + " " + shape_text(part.scales->shape));
  }
  return {};
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t axis : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(axis);
  }
  return text + "]";
}

Error tensor_error(ErrorCode code, const io::TensorView& tensor, const std::string& message) {
  return Error{code, "tensor '" + tensor.name + "' " + message, tensor.file};
}

Result<quant::Format> recognise_format(const StoredPart& part,
                                       const std::vector<std::int64_t>& shape) {
  const io::TensorView& weight = *part.weight;
  if (is_float(weight.dtype)) {
    if (part.scales != nullptr || part.biases != nullptr) {
      return tensor_error(ErrorCode::kInconsistent, weight,
                          std::string("is ") + dtype_name(weight.dtype) +
                              " but has '.scales' or '.biases' beside it; expected U32 words, or "
                              "no such tensors");
    }
    if (weight.shape != shape) return shape_error(weight, shape_text(shape));
    return quant::float_format(weight.dtype);
  }
  if (weight.dtype != DType::kU32) {
    return tensor_error(ErrorCode::kUnsupported, weight,
                        std::string("has dtype ") + dtype_name(weight.dtype) +
                            ", expected F32, F16, BF16, or U32 words of a quantised matrix");
  }
  if (!leading_axes_agree(weight.shape, shape)) {
    return shape_error(weight, with_last_axis(shape, "words"));
  }
  LOCKSTEP_TRY_STATUS(check_members(part, shape));
  const std::int64_t width = shape.back();
  const std::int64_t words = weight.shape.back();
  const std::int64_t groups = part.scales->shape.back();
  // Words are bounded by the file's size, so the product can't overflow.
  if (words > 0 && groups > 0 && 32 * words % width == 0 && width % groups == 0) {
    if (const auto format = format_of(part, 32 * words / width, width / groups)) return *format;
  }
  return tensor_error(ErrorCode::kInconsistent, weight,
                      "with " + std::to_string(words) + " words a row and " +
                          dtype_name(part.scales->dtype) + " scales of " + std::to_string(groups) +
                          " groups fits no known format of input width " + std::to_string(width) +
                          (part.biases != nullptr ? " with biases" : " without biases"));
}

}  // namespace lockstep::spec
