// SPDX-License-Identifier: Apache-2.0
// Any text as config.json or generation_config.json: what is accepted must expand to tensors of
// positive, bounded shapes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/base/check.h"
#include "lockstep/spec/config.h"
#include "lockstep/spec/generation_config.h"
#include "lockstep/spec/tensor_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)spec::parse_generation_config(text, "fuzz");
  const auto config = spec::parse_config(text, "fuzz");
  if (!config.ok()) {
    CHECK(!config.error().message.empty());
    return 0;
  }
  for (const spec::ExpectedTensor& tensor : spec::expected_tensors(*config)) {
    for (const std::int64_t axis : tensor.shape)
      CHECK(axis > 0);
    CHECK(tensor.element_count() > 0);
  }
  return 0;
}
