// SPDX-License-Identifier: Apache-2.0
// Drives decode/accept.h with arbitrary drafts, caps and stops against a plain decoder of the same
// target: whatever is drafted, the emitted ids must be the plain ones.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/decode/accept.h"

namespace {

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::int32_t next() { return at_ < size_ ? data_[at_++] : 0; }
  bool left() const { return at_ < size_; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

// The target: a fixed function of the output index.
std::int32_t target(std::int32_t key, std::size_t index) {
  return static_cast<std::int32_t>((static_cast<std::size_t>(key) + index * 7) % 11);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::decode;
  Bytes bytes(data, size);
  const std::int32_t key = bytes.next();
  const std::int64_t cap = 1 + bytes.next();
  const std::vector<std::int32_t> stops = {bytes.next() % 16};
  const std::int32_t stop_text = bytes.next() % 16;

  std::vector<std::int32_t> plain;
  while (static_cast<std::int64_t>(plain.size()) < cap) {
    plain.push_back(target(key, plain.size()));
    if (plain.back() == stops[0] || plain.back() == stop_text) break;
  }

  std::vector<std::int32_t> out;
  Finish finish = Finish::kNone;
  while (finish == Finish::kNone) {
    std::vector<std::int32_t> drafts, picks;
    for (std::int32_t d = bytes.next() % 9; d > 0; --d)
      drafts.push_back(bytes.next() % 11);
    for (std::size_t j = 0; j <= drafts.size(); ++j) {
      picks.push_back(target(key, out.size() + j));
      if (j < drafts.size() && drafts[j] != picks[j]) break;
    }
    const Accepted a = accept({.drafts = drafts,
                               .picks = picks,
                               .tokens_left = cap - static_cast<std::int64_t>(out.size()),
                               .stop_ids = stops,
                               .text_stops = [&](std::int32_t t) { return t == stop_text; }});
    CHECK(a.emitted >= 1 && a.emitted <= static_cast<int>(picks.size()));
    CHECK(a.accepted <= a.tried && a.tried <= static_cast<int>(drafts.size()));
    out.insert(out.end(), picks.begin(), picks.begin() + a.emitted);
    finish = a.finish;
  }
  CHECK(out == plain);
  return 0;
}
