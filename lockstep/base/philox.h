// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A number is a pure function of
// key and counter, so what a draw yields can't depend on who else drew.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

// Uniform in the open interval (0, 1): the 23 high bits plus one half, which float holds exactly.
inline float uniform_open(std::uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * 0x1p-23f;
}

}  // namespace lockstep
