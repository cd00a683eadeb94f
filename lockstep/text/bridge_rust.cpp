// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <utility>

#include "bridge/bridge.h"
#include "lockstep/base/limits.h"
#include "lockstep/text/bridge.h"

namespace lockstep::text {
namespace {

// A buffer of the bridge, given back at the end of the scope.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { lockstep_buffer_free(buffer_); }

  lockstep_buffer* out() { return &buffer_; }
  std::string_view view() const {
    return {reinterpret_cast<const char*>(buffer_.data), buffer_.size};
  }

 private:
  lockstep_buffer buffer_{};
};

const std::uint8_t* data_of(std::string_view text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}

Error to_error(std::int32_t code, const Buffer& message, const std::string& where) {
  ErrorCode kind = ErrorCode::kTemplate;
  if (code == LOCKSTEP_BRIDGE_INVALID) kind = ErrorCode::kFormat;
  if (code == LOCKSTEP_BRIDGE_INCONSISTENT) kind = ErrorCode::kInconsistent;
  if (code == LOCKSTEP_BRIDGE_UNSUPPORTED) kind = ErrorCode::kUnsupported;
  // Fuel and output are limits on templates; a reader wants to know that the template is at fault.
  return Error{kind, std::string(message.view()), where};
}

}  // namespace

BridgeTokenizer::BridgeTokenizer(lockstep_tokenizer* handle, std::string label)
    : handle_(handle), label_(std::move(label)) {}

BridgeTokenizer::BridgeTokenizer(BridgeTokenizer&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), label_(std::move(other.label_)) {}

BridgeTokenizer& BridgeTokenizer::operator=(BridgeTokenizer&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(label_, other.label_);
  return *this;
}

BridgeTokenizer::~BridgeTokenizer() {
  lockstep_tokenizer_free(handle_);
}

Result<BridgeTokenizer> BridgeTokenizer::open(std::string_view tokenizer_json,
                                              std::string_view listed_tokens_json,
                                              std::string label) {
  lockstep_tokenizer* handle = nullptr;
  Buffer error;
  const std::int32_t code =
      lockstep_tokenizer_open(data_of(tokenizer_json), tokenizer_json.size(),
                              data_of(listed_tokens_json), listed_tokens_json.size(),
                              static_cast<std::uint32_t>(limits::kVocabMax), &handle, error.out());
  if (code == LOCKSTEP_BRIDGE_LIMIT) {
    return Error{ErrorCode::kLimit, std::string(error.view()), std::move(label)};
  }
  if (code != LOCKSTEP_BRIDGE_OK) return to_error(code, error, label);
  return BridgeTokenizer(handle, std::move(label));
}

Result<std::vector<std::int32_t>> BridgeTokenizer::encode(std::string_view text,
                                                          bool match_added) const {
  Buffer out, error;
  const std::int32_t code = lockstep_tokenizer_encode(handle_, data_of(text), text.size(),
                                                      match_added ? 1 : 0, out.out(), error.out());
  if (code != LOCKSTEP_BRIDGE_OK) return to_error(code, error, label_);
  std::vector<std::int32_t> ids(out.view().size() / sizeof(std::int32_t));
  if (!ids.empty()) std::memcpy(ids.data(), out.view().data(), out.view().size());
  return ids;
}

Result<std::vector<std::string>> BridgeTokenizer::vocabulary() const {
  Buffer out, error;
  const std::int32_t code = lockstep_tokenizer_vocabulary(handle_, out.out(), error.out());
  if (code != LOCKSTEP_BRIDGE_OK) return to_error(code, error, label_);
  std::vector<std::string> tokens;
  for (std::string_view rest = out.view(); !rest.empty();) {
    std::uint32_t size = 0;
    CHECK(rest.size() >= sizeof size);
    std::memcpy(&size, rest.data(), sizeof size);
    rest.remove_prefix(sizeof size);
    CHECK(rest.size() >= size);
    tokens.emplace_back(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  return tokens;
}

Result<std::string> BridgeTokenizer::added_tokens_json() const {
  Buffer out, error;
  const std::int32_t code = lockstep_tokenizer_added(handle_, out.out(), error.out());
  if (code != LOCKSTEP_BRIDGE_OK) return to_error(code, error, label_);
  return std::string(out.view());
}

BridgeTemplate::BridgeTemplate(lockstep_template* handle, std::string label)
    : handle_(handle), label_(std::move(label)) {}

BridgeTemplate::BridgeTemplate(BridgeTemplate&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), label_(std::move(other.label_)) {}

BridgeTemplate& BridgeTemplate::operator=(BridgeTemplate&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(label_, other.label_);
  return *this;
}

BridgeTemplate::~BridgeTemplate() {
  lockstep_template_free(handle_);
}

Result<BridgeTemplate> BridgeTemplate::open(std::string_view source, std::string label) {
  lockstep_template* handle = nullptr;
  Buffer error;
  const std::int32_t code = lockstep_template_open(data_of(source), source.size(),
                                                   {.fuel = limits::kTemplateFuel,
                                                    .heap_bytes = limits::kTemplateHeapBytesMax,
                                                    .output_bytes = limits::kTemplateOutputBytesMax,
                                                    .seconds = limits::kTemplateSecondsMax},
                                                   &handle, error.out());
  if (code != LOCKSTEP_BRIDGE_OK) return to_error(code, error, label);
  return BridgeTemplate(handle, std::move(label));
}

Result<std::string> BridgeTemplate::render(std::string_view variables_json,
                                           std::string_view marks) const {
  Buffer out, error;
  const std::int32_t code =
      lockstep_template_render(handle_, data_of(variables_json), variables_json.size(),
                               data_of(marks), marks.size(), out.out(), error.out());
  if (code != LOCKSTEP_BRIDGE_OK) return to_error(code, error, label_);
  return std::string(out.view());
}

}  // namespace lockstep::text
