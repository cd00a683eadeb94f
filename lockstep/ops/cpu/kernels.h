// SPDX-License-Identifier: Apache-2.0
// The bodies that depend on the instruction set, as one table of functions for each. All tables
// give the same bits. Pieces of verbs for one thread; memory, threads and order are the caller's.
#pragma once

#include <cstdint>

#include "lockstep/base/limits.h"
#include "lockstep/ops/backend.h"
#include "lockstep/quant/format.h"

namespace lockstep::ops::cpu {

inline constexpr std::int64_t kChunk =
    limits::kChunkGrain;  // rows of a delta chunk, keys of a block

// out[m * out_stride + i] = dot(x[m], row row_begin + i of w), for all m and i.
struct DotArgs {
  const quant::MatrixView* w = nullptr;
  std::int64_t row_begin = 0, row_end = 0;
  const float* const* x = nullptr;  // x_count pointers to rows of w->cols floats
  std::int64_t x_count = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  float* scratch = nullptr;  // dot_scratch_floats(cols)
};
std::int64_t dot_scratch_floats(std::int64_t cols);
std::int64_t expand_block_rows(std::int64_t cols);  // rows that are expanded at a time

// What a row of a window changes in a head's state: numbers = factor numbers + change k^T, and
// their scale (kDeltaScaleMin). Applying it later gives the bits that the window itself computed
// with.
struct DeltaWindow {
  float* k = nullptr;       // [rows, key_heads, key_dim], normalised
  float* change = nullptr;  // [rows, value_heads, value_dim]
  float* factor = nullptr;  // [rows, value_heads]
  float* scale = nullptr;   // [rows, value_heads], after the row
};

// One value head over one segment.
struct DeltaHeadArgs {
  const DeltaWeights* w = nullptr;
  Segment segment;
  std::int64_t head = 0;
  const float* projected = nullptr;  // the segment's first row
  float* out = nullptr;              // the segment's first row, [rows, v_channels]
  float* state = nullptr;            // the head's [value_dim, key_dim]
  float* scales = nullptr;           // of all heads' states
  const float* history = nullptr;    // [kernel - 1, conv_channels] before the segment
  float* next_history = nullptr;     // speculative: history and all rows; else the last kernel - 1
  DeltaWindow pending;               // rows not yet in `state`
  std::int64_t pending_count = 0;
  DeltaWindow window;        // takes the rows of a speculative segment
  float* scratch = nullptr;  // delta_scratch_floats(shape)
};
std::int64_t delta_scratch_floats(const DeltaShape& shape);

inline constexpr std::int64_t kAttendRows = 16;
inline constexpr std::int64_t kAttendHeads = 16;  // of one KV head
inline constexpr std::int64_t kAttendQueries = kAttendRows * kAttendHeads;

// Query heads [head_begin, head_end), all of one KV head, for rows [row_begin, row_end).
struct AttendArgs {
  const AttentionWeights* w = nullptr;
  std::int64_t row_begin = 0, row_end = 0;  // within the segment, at most kAttendRows
  std::int64_t head_begin = 0, head_end = 0;
  std::int64_t position = 0;         // of the segment's first row
  const float* queries = nullptr;    // [rows, q_heads, head_dim], ready; first row of the segment
  const float* projected = nullptr;  // for the gates
  const float* const* blocks = nullptr;  // block c: keys [kv_heads, 64, head_dim], then values
  float* out = nullptr;
  float* scratch = nullptr;  // attend_scratch_floats(shape)
};
std::int64_t attend_scratch_floats(const AttentionShape& shape);

struct TurnArgs {
  const float* gamma = nullptr;
  float eps = 0;
  std::int64_t head_dim = 0, pairs = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
};

struct WeightedRows {
  const float* products = nullptr;
  std::int64_t stride = 0;
  const std::int32_t* places = nullptr;
  const float* weights = nullptr;
  std::int64_t count = 0;
};

struct KernelTable {
  const char* isa;
  void (*dot_rows)(const DotArgs& args);
  void (*expand_row)(const quant::MatrixView& w, std::int64_t row, float* out);
  void (*rms_norm_row)(const float* x, const float* gamma, float eps, std::int64_t n, float* out);
  // out = silu(gate) * up; out may be one of them.
  void (*gated_product)(const float* gate, const float* up, std::int64_t n, float* out);
  // x += sum over i in order of weights[i] * row places[i] of `products`, the sum from +0.
  void (*add_weighted)(const WeightedRows& rows, std::int64_t n, float* x);
  // p /= sum of e^(p - largest).
  void (*softmax)(float* p, std::int64_t n);
  void (*norm_and_turn)(const TurnArgs& args, const float* x, float* out);
  void (*delta_head)(const DeltaHeadArgs& args);
  void (*attend)(const AttendArgs& args);
};

const KernelTable& scalar_kernels();
#if defined(__x86_64__)
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
#endif

}  // namespace lockstep::ops::cpu
