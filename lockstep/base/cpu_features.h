// SPDX-License-Identifier: Apache-2.0
// What the CPU can do, asked at run time (CPUID and the operating system's saved state).
#pragma once

#include <string>

namespace lockstep {

struct CpuFeatures {
  std::string name;  // brand string, e.g. "AMD EPYC 9354"
  bool avx2 = false;
  bool fma = false;
  bool f16c = false;
  bool avx512 = false;  // F, BW, DQ and VL together
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool amx_int8 = false;
  bool neon = false;

  // The sets that are present, "avx2 fma f16c ...".
  std::string to_string() const;
};

const CpuFeatures& cpu_features();

}  // namespace lockstep
