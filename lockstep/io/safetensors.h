// SPDX-License-Identifier: Apache-2.0
// Safetensors files, read through a mapping without copies. Layout: u64 little-endian header
// length, JSON header, payload. Every offset, shape and size is checked before use; payload may be
// unaligned and unordered (MLX writes both), but may not overlap, leave gaps or leave the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/result.h"
#include "lockstep/io/mapped_file.h"

namespace lockstep::io {

struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // alive as long as the file is
  std::string file;                  // for messages
};

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);
  // Parses bytes that are already in memory; `label` names them in errors. For tests and fuzzing.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, const std::string& label);

  const std::vector<TensorView>& tensors() const { return tensors_; }  // in header order
  const TensorView* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::size_t file_bytes() const { return file_bytes_; }  // header included

 private:
  MappedFile file_;
  std::size_t file_bytes_ = 0;
  std::vector<TensorView> tensors_;
  std::vector<std::size_t> by_name_;  // indices into tensors_, sorted by name
  std::map<std::string, std::string> metadata_;
};

}  // namespace lockstep::io
