// SPDX-License-Identifier: Apache-2.0
#include "lockstep/io/safetensors.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "lockstep/base/limits.h"
#include "lockstep/io/json.h"

namespace lockstep::io {
namespace {

constexpr std::size_t kLengthBytes = 8;

// One header entry, its offsets relative to the payload.
struct Entry {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Long or hostile names are cut for messages.
std::string quoted(std::string_view name) {
  constexpr std::size_t kShown = 200;
  return "'" + std::string(name.substr(0, kShown)) + (name.size() > kShown ? "...'" : "'");
}

std::uint64_t read_u64(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  }
  return value;
}

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> bytes, const std::string& label)
      : bytes_(bytes), label_(label) {}

  // The header's JSON; sets payload_begin.
  Result<Json> header() {
    if (bytes_.size() < kLengthBytes) {
      return format_error("has " + std::to_string(bytes_.size()) +
                          " bytes, a safetensors file has at least 8; the download is cut short");
    }
    const std::uint64_t length = read_u64(bytes_);
    if (length > limits::kSafetensorsHeaderBytesMax) {
      return Error{ErrorCode::kLimit,
                   "states a header of " + std::to_string(length) + " bytes, the limit is " +
                       std::to_string(limits::kSafetensorsHeaderBytesMax) +
                       "; this is no safetensors file, or it is damaged",
                   label_};
    }
    if (length > bytes_.size() - kLengthBytes) {
      return format_error("header ends at byte " + std::to_string(length + kLengthBytes) +
                          ", file has " + std::to_string(bytes_.size()) +
                          "; the download is cut short");
    }
    payload_begin = kLengthBytes + static_cast<std::size_t>(length);
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes,
                                static_cast<std::size_t>(length));
    auto json = parse_json(text, label_, RepeatedKeys::kRefuse);
    if (!json.ok()) return format_error("header is " + json.error().message);
    if (!json->is_object()) {
      return format_error(std::string("header is ") + json->kind_name() + ", expected an object");
    }
    if (json->size() > limits::kTensorsPerFileMax) {
      return Error{ErrorCode::kLimit,
                   "lists " + std::to_string(json->size()) + " tensors, the limit is " +
                       std::to_string(limits::kTensorsPerFileMax),
                   label_};
    }
    return json;
  }

  Result<std::map<std::string, std::string>> metadata(const Json& json) const {
    if (!json.is_object()) {
      return format_error(std::string("__metadata__ is ") + json.kind_name() +
                          ", expected an object of strings");
    }
    std::map<std::string, std::string> result;
    for (const auto& [key, value] : json.as_object()) {
      if (!value.is_string()) {
        return format_error("__metadata__ key " + quoted(key) + " is " + value.kind_name() +
                            ", expected a string");
      }
      result.emplace(key, value.as_string());
    }
    return result;
  }

  // All checks that concern one tensor alone.
  Result<Entry> entry(const std::string& name, const Json& json) const {
    if (name.empty() || name.size() > limits::kTensorNameBytesMax) {
      return tensor_error(name, "has a name of " + std::to_string(name.size()) +
                                    " bytes, expected 1 to " +
                                    std::to_string(limits::kTensorNameBytesMax));
    }
    Entry entry;
    LOCKSTEP_TRY(entry.dtype, dtype(name, json));
    LOCKSTEP_TRY(entry.shape, shape(name, json));
    LOCKSTEP_TRY_STATUS(offsets(name, json, entry));
    LOCKSTEP_TRY(const std::uint64_t expected, byte_count(name, entry));
    if (entry.end - entry.begin != expected) {
      return tensor_error(name, "takes " + std::to_string(entry.end - entry.begin) +
                                    " bytes, its shape and dtype need " + std::to_string(expected));
    }
    return entry;
  }

  Error format_error(std::string message) const {
    return Error{ErrorCode::kFormat, std::move(message), label_};
  }
  Error tensor_error(std::string_view name, const std::string& message) const {
    return format_error("tensor " + quoted(name) + " " + message);
  }

  std::size_t payload_begin = 0;

 private:
  Result<DType> dtype(const std::string& name, const Json& json) const {
    const Json* value = json.find("dtype");
    if (value == nullptr || !value->is_string()) return tensor_error(name, "has no dtype");
    const std::optional<DType> type = dtype_from_name(value->as_string());
    if (!type) {
      return Error{ErrorCode::kUnsupported,
                   "tensor " + quoted(name) + " has dtype " + quoted(value->as_string()) +
                       ", which this build does not know",
                   label_};
    }
    return *type;
  }

  Result<std::vector<std::int64_t>> shape(const std::string& name, const Json& json) const {
    const Json* value = json.find("shape");
    if (value == nullptr || !value->is_array()) return tensor_error(name, "has no shape");
    if (value->size() > limits::kTensorRankMax) {
      return tensor_error(name, "has " + std::to_string(value->size()) + " axes, the limit is " +
                                    std::to_string(limits::kTensorRankMax));
    }
    std::vector<std::int64_t> shape;
    for (const Json& axis : value->as_array()) {
      if (!axis.is_integer() || axis.as_int() < 0) {
        return tensor_error(name, "has an axis that is no length: " + axis.dump().substr(0, 40));
      }
      shape.push_back(axis.as_int());
    }
    return shape;
  }

  Status offsets(const std::string& name, const Json& json, Entry& entry) const {
    const Json* value = json.find("data_offsets");
    if (value == nullptr || !value->is_array() || value->size() != 2 ||
        !value->as_array()[0].is_integer() || !value->as_array()[1].is_integer() ||
        value->as_array()[0].as_int() < 0 || value->as_array()[1].as_int() < 0) {
      return tensor_error(name, "has no data_offsets [begin, end]");
    }
    entry.begin = value->as_array()[0].as_uint();
    entry.end = value->as_array()[1].as_uint();
    if (entry.begin > entry.end) {
      return tensor_error(name, "begins at byte " + std::to_string(entry.begin) +
                                    " of the payload, after its end " + std::to_string(entry.end));
    }
    if (entry.end > bytes_.size() - payload_begin) {
      // The sum is for the reader only; saturate it rather than wrap.
      const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - payload_begin;
      return tensor_error(
          name, "ends at byte " + std::to_string(std::min(entry.end, room) + payload_begin) +
                    ", file has " + std::to_string(bytes_.size()) + "; the download is cut short");
    }
    return {};
  }

  Result<std::uint64_t> byte_count(const std::string& name, const Entry& entry) const {
    std::uint64_t bytes = dtype_bytes(entry.dtype);
    for (const std::int64_t axis : entry.shape) {
      if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(axis), &bytes)) {
        return tensor_error(name, "has a shape whose byte count overflows 64 bits");
      }
    }
    return bytes;
  }

  std::span<const std::byte> bytes_;
  const std::string& label_;
};

// Payload pieces must follow each other without overlap or gap, in any order of the header.
Status check_coverage(const HeaderReader& reader, const std::vector<TensorView>& tensors,
                      std::span<const std::byte> payload) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto begin = [&](std::size_t i) {
    return static_cast<std::size_t>(tensors[i].bytes.data() - payload.data());
  };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (begin(a) != begin(b)) return begin(a) < begin(b);
    return tensors[a].bytes.size() < tensors[b].bytes.size();
  });
  std::size_t cursor = 0;
  const TensorView* before = nullptr;
  for (const std::size_t i : order) {
    const std::string other = before ? "tensor " + quoted(before->name) : "the header";
    if (begin(i) < cursor) {
      return reader.tensor_error(tensors[i].name, "begins at byte " + std::to_string(begin(i)) +
                                                      " of the payload and overlaps " + other +
                                                      ", which ends at " + std::to_string(cursor));
    }
    if (begin(i) > cursor) {
      return reader.tensor_error(
          tensors[i].name, "begins at byte " + std::to_string(begin(i)) +
                               " of the payload, expected " + std::to_string(cursor) + ", where " +
                               other + " ends; the bytes between belong to no tensor");
    }
    cursor += tensors[i].bytes.size();
    before = &tensors[i];
  }
  if (cursor != payload.size()) {
    return reader.format_error("payload has " + std::to_string(payload.size()) +
                               " bytes, its tensors take " + std::to_string(cursor) +
                               "; the rest belongs to no tensor");
  }
  return {};
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes,
                                               const std::string& label) {
  HeaderReader reader(bytes, label);
  LOCKSTEP_TRY(const Json header, reader.header());
  const std::span<const std::byte> payload = bytes.subspan(reader.payload_begin);
  SafetensorsFile file;
  file.file_bytes_ = bytes.size();
  file.tensors_.reserve(header.size());
  for (const auto& [name, json] : header.as_object()) {
    if (name == "__metadata__") {
      LOCKSTEP_TRY(file.metadata_, reader.metadata(json));
      continue;
    }
    LOCKSTEP_TRY(Entry entry, reader.entry(name, json));
    const auto span = payload.subspan(static_cast<std::size_t>(entry.begin),
                                      static_cast<std::size_t>(entry.end - entry.begin));
    file.tensors_.push_back(TensorView{name, entry.dtype, std::move(entry.shape), span, label});
  }
  LOCKSTEP_TRY_STATUS(check_coverage(reader, file.tensors_, payload));
  file.by_name_.resize(file.tensors_.size());
  std::iota(file.by_name_.begin(), file.by_name_.end(), std::size_t{0});
  std::sort(file.by_name_.begin(), file.by_name_.end(), [&](std::size_t a, std::size_t b) {
    return file.tensors_[a].name < file.tensors_[b].name;
  });
  return file;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  LOCKSTEP_TRY(MappedFile mapped, MappedFile::open(path));
  LOCKSTEP_TRY(SafetensorsFile file, parse(mapped.bytes(), path));
  file.file_ = std::move(mapped);
  return file;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](std::size_t i, std::string_view key) { return tensors_[i].name < key; });
  if (found == by_name_.end() || tensors_[*found].name != name) return nullptr;
  return &tensors_[*found];
}

}  // namespace lockstep::io
