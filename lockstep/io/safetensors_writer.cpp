// SPDX-License-Identifier: Apache-2.0
#include "lockstep/io/safetensors_writer.h"

#include <cerrno>
#include <cstring>
#include <set>
#include <string_view>
#include <unistd.h>

#include "lockstep/base/limits.h"
#include "lockstep/io/json.h"

namespace lockstep::io {
namespace {

constexpr std::size_t kHeaderAlignment = 8;

// Length field and padded JSON.
std::string header_bytes(const std::vector<TensorDeclaration>& tensors, const Metadata& metadata) {
  Json::Object header;
  if (!metadata.empty()) {
    Json::Object members;
    for (const auto& [key, value] : metadata)
      members.emplace_back(key, value);
    header.emplace_back("__metadata__", std::move(members));
  }
  std::size_t offset = 0;
  for (const TensorDeclaration& tensor : tensors) {
    Json entry = Json::object();
    entry.set("dtype", dtype_name(tensor.dtype));
    entry.set("shape", Json::Array(tensor.shape.begin(), tensor.shape.end()));
    const std::size_t end = offset + tensor.byte_count();
    entry.set("data_offsets", Json::Array{Json(offset), Json(end)});
    offset = end;
    header.emplace_back(tensor.name, std::move(entry));
  }
  std::string text = Json(std::move(header)).dump();
  text.append((kHeaderAlignment - text.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  std::string bytes(kHeaderAlignment, '\0');
  for (std::size_t i = 0; i < kHeaderAlignment; ++i) {
    bytes[i] = static_cast<char>(static_cast<unsigned char>(text.size() >> (8 * i)));
  }
  return bytes + text;
}

Status check_names(const std::string& path, const std::vector<TensorDeclaration>& tensors) {
  std::set<std::string_view> names;
  for (const TensorDeclaration& tensor : tensors) {
    if (tensor.name.empty() || tensor.name == "__metadata__" ||
        tensor.name.size() > limits::kTensorNameBytesMax) {
      return Error{ErrorCode::kInvalidArgument,
                   "can't hold a tensor named '" + tensor.name.substr(0, 80) + "'", path};
    }
    if (!names.insert(tensor.name).second) {
      return Error{ErrorCode::kInvalidArgument,
                   "can't hold two tensors named '" + tensor.name + "'", path};
    }
  }
  return {};
}

}  // namespace

std::size_t TensorDeclaration::byte_count() const {
  std::size_t bytes = dtype_bytes(dtype);
  for (const std::int64_t axis : shape) {
    CHECK(axis >= 0);
    CHECK(!__builtin_mul_overflow(bytes, static_cast<std::size_t>(axis), &bytes));
  }
  return bytes;
}

Error SafetensorsWriter::system_error(const char* what) const {
  return Error{ErrorCode::kIo, std::string(what) + ": " + std::strerror(errno), path_};
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    std::vector<TensorDeclaration> tensors,
                                                    const Metadata& metadata) {
  LOCKSTEP_TRY_STATUS(check_names(path, tensors));
  SafetensorsWriter writer;
  writer.path_ = path;
  for (const TensorDeclaration& tensor : tensors)
    writer.bytes_left_ += tensor.byte_count();
  std::string temporary = path + ".partial";
  writer.file_.reset(std::fopen(temporary.c_str(), "wb"));
  if (!writer.file_) return writer.system_error("can't be created");
  writer.temporary_path_ = std::move(temporary);
  const std::string header = header_bytes(tensors, metadata);
  if (std::fwrite(header.data(), 1, header.size(), writer.file_.get()) != header.size()) {
    return writer.system_error("can't be written");
  }
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!file_) return;
  file_.reset();
  std::remove(temporary_path_.c_str());
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
  CHECK(file_ != nullptr);
  CHECK_MSG(bytes.size() <= bytes_left_, path_.c_str());
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
    return system_error("can't be written");
  }
  bytes_left_ -= bytes.size();
  return {};
}

Status SafetensorsWriter::finish() {
  CHECK(file_ != nullptr);
  CHECK_MSG(bytes_left_ == 0, path_.c_str());
  if (std::fflush(file_.get()) != 0 || ::fsync(::fileno(file_.get())) != 0) {
    return system_error("can't be written");
  }
  if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return system_error("can't be put in place");
  }
  file_.reset();
  return {};
}

Status write_safetensors(const std::string& path, std::span<const TensorData> tensors,
                         const Metadata& metadata) {
  std::vector<TensorDeclaration> declared;
  for (const TensorData& tensor : tensors) {
    declared.push_back({tensor.name, tensor.dtype, tensor.shape});
    CHECK_MSG(declared.back().byte_count() == tensor.bytes.size(), tensor.name.c_str());
  }
  LOCKSTEP_TRY(auto writer, SafetensorsWriter::create(path, std::move(declared), metadata));
  for (const TensorData& tensor : tensors)
    LOCKSTEP_TRY_STATUS(writer.append(tensor.bytes));
  return writer.finish();
}

}  // namespace lockstep::io
