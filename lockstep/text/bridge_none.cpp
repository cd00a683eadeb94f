// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/bridge.h"

namespace lockstep::text {
namespace {

Error without_bridge(std::string where) {
  return Error{ErrorCode::kUnsupported,
               "can't be used: this program was built without the bridge; build with "
               "LOCKSTEP_BRIDGE=ON, or pass token ids instead of text",
               std::move(where)};
}

}  // namespace

BridgeTokenizer::BridgeTokenizer(BridgeTokenizer&&) noexcept = default;
BridgeTokenizer& BridgeTokenizer::operator=(BridgeTokenizer&&) noexcept = default;
BridgeTokenizer::~BridgeTokenizer() = default;

Result<BridgeTokenizer> BridgeTokenizer::open(std::string_view, std::string_view,
                                              std::string label) {
  return without_bridge(std::move(label));
}

Result<std::vector<std::int32_t>> BridgeTokenizer::encode(std::string_view, bool) const {
  return without_bridge(label_);
}

Result<std::vector<std::string>> BridgeTokenizer::vocabulary() const {
  return without_bridge(label_);
}

Result<std::string> BridgeTokenizer::added_tokens_json() const {
  return without_bridge(label_);
}

BridgeTemplate::BridgeTemplate(BridgeTemplate&&) noexcept = default;
BridgeTemplate& BridgeTemplate::operator=(BridgeTemplate&&) noexcept = default;
BridgeTemplate::~BridgeTemplate() = default;

Result<BridgeTemplate> BridgeTemplate::open(std::string_view, std::string label) {
  return without_bridge(std::move(label));
}

Result<std::string> BridgeTemplate::render(std::string_view, std::string_view) const {
  return without_bridge(label_);
}

}  // namespace lockstep::text
