// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/cpu_features.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lockstep {
namespace {

#if defined(__x86_64__)
std::string brand() {
  std::uint32_t words[12] = {};
  if (__get_cpuid_max(0x80000000u, nullptr) < 0x80000004u) return "x86-64";
  for (unsigned i = 0; i < 3; ++i) {
    __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                &words[4 * i + 3]);
  }
  char text[49] = {};
  std::memcpy(text, words, 48);
  std::string name(text);
  while (!name.empty() && name.back() == ' ')
    name.pop_back();
  while (!name.empty() && name.front() == ' ')
    name.erase(name.begin());
  return name;
}
#endif

CpuFeatures detect() {
  CpuFeatures f;
#if defined(__x86_64__)
  __builtin_cpu_init();
  f.name = brand();
  f.avx2 = __builtin_cpu_supports("avx2");
  f.fma = __builtin_cpu_supports("fma");
  f.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  f.avx512_vnni = f.avx512 && __builtin_cpu_supports("avx512vnni");
  f.avx512_bf16 = f.avx512 && __builtin_cpu_supports("avx512bf16");
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d)) f.f16c = f.avx2 && (c & (1u << 29)) != 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) f.amx_int8 = f.avx512 && (d & (1u << 25)) != 0;
#elif defined(__aarch64__)
  f.name = "aarch64";
  f.neon = true;
#else
  f.name = "unknown";
#endif
  return f;
}

}  // namespace

std::string CpuFeatures::to_string() const {
  std::string text;
  const auto add = [&](bool have, const char* set) {
    if (have) text += text.empty() ? set : std::string(" ") + set;
  };
  add(avx2, "avx2");
  add(fma, "fma");
  add(f16c, "f16c");
  add(avx512, "avx512");
  add(avx512_vnni, "avx512_vnni");
  add(avx512_bf16, "avx512_bf16");
  add(amx_int8, "amx_int8");
  add(neon, "neon");
  return text;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

}  // namespace lockstep
