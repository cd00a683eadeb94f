// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: parsing may fail, but what it accepts must lie inside the bytes.
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/base/check.h"
#include "lockstep/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = io::SafetensorsFile::parse(bytes, "fuzz");
  if (!file.ok()) {
    CHECK(!file.error().message.empty());
    return 0;
  }
  for (const io::TensorView& tensor : file->tensors()) {
    CHECK(file->find(tensor.name) == &tensor);
    CHECK(tensor.bytes.data() >= bytes.data());
    CHECK(tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size());
    std::size_t expected = dtype_bytes(tensor.dtype);
    for (const std::int64_t axis : tensor.shape)
      expected *= static_cast<std::size_t>(axis);
    CHECK(tensor.bytes.size() == expected);
  }
  return 0;
}
