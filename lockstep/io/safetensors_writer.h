// SPDX-License-Identifier: Apache-2.0
// Writes safetensors files. The header is fixed by the declared tensors, so that payloads of any
// size stream through; equal input gives equal bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/result.h"

namespace lockstep::io {

struct TensorDeclaration {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;

  std::size_t byte_count() const;
};

using Metadata = std::map<std::string, std::string>;

// Writes to a temporary name beside `path`; finish() puts the file in place. A writer that is
// dropped before leaves nothing behind.
class SafetensorsWriter {
 public:
  // `metadata` should hold {"format": "mlx"} for MLX artifacts: other tools read it (spec 2.3).
  static Result<SafetensorsWriter> create(const std::string& path,
                                          std::vector<TensorDeclaration> tensors,
                                          const Metadata& metadata);
  SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();

  // The next bytes of the payload, in declared order; may cut tensors anywhere.
  Status append(std::span<const std::byte> bytes);
  // Checks that every declared byte came, flushes to the disk and renames.
  Status finish();

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  SafetensorsWriter() = default;
  Error system_error(const char* what) const;

  std::string path_;
  std::string temporary_path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::size_t bytes_left_ = 0;
};

struct TensorData {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

Status write_safetensors(const std::string& path, std::span<const TensorData> tensors,
                         const Metadata& metadata);

}  // namespace lockstep::io
