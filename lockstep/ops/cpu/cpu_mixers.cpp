// SPDX-License-Identifier: Apache-2.0
// delta, attend and append_kv: pieces of work for the team.
#include <algorithm>
#include <cstring>

#include "lockstep/base/check.h"
#include "lockstep/ops/cpu/cpu_backend.h"
#include "lockstep/ops/cpu/cpu_state.h"
#include "lockstep/ops/shapes.h"

namespace lockstep::ops::cpu {
namespace {

CpuState& cast(SequenceState* state) {
  return static_cast<CpuState&>(*state);
}

float* row_of(const Tensor& t, std::int64_t row) {
  return t.data + row * t.width;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

void CpuBackend::delta(const Batch& batch, int layer, const DeltaWeights& w, Tensor projected,
                       Tensor out) {
  check_delta(batch, w, projected, out);
  const DeltaShape& shape = w.shape;
  const auto segments = static_cast<std::int64_t>(batch.segments.size());
  delta_args_.clear();
  for (const Segment& segment : batch.segments) {
    DeltaHeadArgs args = cast(segment.state).delta_layer(layer).begin(segment);
    args.w = &w;
    args.projected = row_of(projected, segment.row_begin);
    args.out = row_of(out, segment.row_begin);
    delta_args_.push_back(args);
  }
  const std::int64_t work = 4 * batch.rows * shape.v_channels() * shape.key_dim;
  team_.run(work, [&](int part, int parts) {
    float* temp = team_.scratch(part, delta_scratch_floats(shape));
    // Heads outermost, so that every thread gets a share of each segment.
    const Range units = split(segments * shape.value_heads, 1, part, parts);
    for (std::int64_t u = units.begin; u < units.end; ++u) {
      DeltaHeadArgs args = delta_args_[static_cast<std::size_t>(u % segments)];
      args.head = u / segments;
      args.state = cast(args.segment.state).delta_layer(layer).state(args.head);
      args.scratch = temp;
      kernels_.delta_head(args);
    }
  });
  for (const Segment& segment : batch.segments) {
    CpuState& state = cast(segment.state);
    state.delta_layer(layer).end(segment);
    state.advance(segment.position + segment.row_count);
  }
}

void CpuBackend::append_rows(const Batch& batch, int layer, const AttentionWeights& w,
                             const float* kv, std::int64_t row_stride) {
  const AttentionShape& s = w.shape;
  const RotaryTable& table = rotary_.get(batch, w);
  const std::int64_t pairs = s.rotary_dim / 2;
  for (const Segment& segment : batch.segments) {
    CpuState& state = cast(segment.state);
    KvCache& cache = state.kv(layer);
    CHECK(cache.length() == segment.position);
    cache.grow(segment.row_count);
    for (std::int64_t r = 0; r < segment.row_count; ++r) {
      const std::int64_t row = segment.row_begin + r;
      const TurnArgs turn = {.gamma = w.k_norm.data(),
                             .eps = w.norm_eps,
                             .head_dim = s.head_dim,
                             .pairs = pairs,
                             .cos = table.cos.data() + row * pairs,
                             .sin = table.sin.data() + row * pairs};
      for (std::int64_t h = 0; h < s.kv_heads; ++h) {
        const float* k = kv + row * row_stride + h * s.head_dim;
        kernels_.norm_and_turn(turn, k, cache.key(segment.position + r, h));
        std::memcpy(cache.value(segment.position + r, h), k + s.kv_heads * s.head_dim,
                    static_cast<std::size_t>(s.head_dim) * sizeof(float));
      }
    }
    if (state.is_target(layer)) state.advance(segment.position + segment.row_count);
  }
}

void CpuBackend::turn_queries(const Batch& batch, const AttentionWeights& w,
                              const Tensor& projected, const Tensor& queries) {
  const AttentionShape& s = w.shape;
  const RotaryTable& table = rotary_.get(batch, w);
  const std::int64_t pairs = s.rotary_dim / 2;
  team_.run(4 * batch.rows * s.query_heads * s.head_dim, [&](int part, int parts) {
    const Range rows = split(batch.rows, 1, part, parts);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const TurnArgs turn = {.gamma = w.q_norm.data(),
                             .eps = w.norm_eps,
                             .head_dim = s.head_dim,
                             .pairs = pairs,
                             .cos = table.cos.data() + row * pairs,
                             .sin = table.sin.data() + row * pairs};
      for (std::int64_t h = 0; h < s.query_heads; ++h) {
        kernels_.norm_and_turn(turn, row_of(projected, row) + 2 * h * s.head_dim,
                               row_of(queries, row) + h * s.head_dim);
      }
    }
  });
}

void CpuBackend::list_attend_units(const Batch& batch, const AttentionShape& shape) {
  const std::int64_t group = shape.query_heads / shape.kv_heads;
  std::int64_t row_blocks = 0;
  for (const Segment& s : batch.segments)
    row_blocks += ceil_div(s.row_count, kAttendRows);
  // Heads of one KV head go together, unless that would leave threads idle.
  const std::int64_t wanted = ceil_div(team_.threads(), row_blocks * shape.kv_heads);
  const std::int64_t heads = std::min(kAttendHeads, ceil_div(group, std::min(wanted, group)));
  attend_units_.clear();
  for (const Segment& s : batch.segments) {
    for (std::int64_t row = 0; row < s.row_count; row += kAttendRows) {
      for (std::int64_t head = 0; head < shape.query_heads;) {
        const std::int64_t group_end = (head / group + 1) * group;
        const std::int64_t head_end = std::min(group_end, head + heads);
        attend_units_.push_back({.segment = &s,
                                 .row_begin = row,
                                 .row_end = std::min(s.row_count, row + kAttendRows),
                                 .head_begin = head,
                                 .head_end = head_end});
        head = head_end;
      }
    }
  }
}

void CpuBackend::attend(const Batch& batch, int layer, const AttentionWeights& w, Tensor projected,
                        Tensor out) {
  check_attention(batch, w);
  const AttentionShape& s = w.shape;
  CHECK(projected.rows == batch.rows && projected.width == attention_projected_width(s));
  CHECK(out.rows == batch.rows && out.width == s.query_heads * s.head_dim);
  append_rows(batch, layer, w, projected.data + 2 * s.query_heads * s.head_dim, projected.width);
  const Tensor queries = scratch(batch.rows, out.width);
  turn_queries(batch, w, projected, queries);
  std::int64_t work = 0;
  for (const Segment& segment : batch.segments) {
    work += 2 * segment.row_count * (segment.position + segment.row_count) * out.width;
  }
  list_attend_units(batch, s);
  team_.run(work, [&](int part, int parts) {
    float* temp = team_.scratch(part, attend_scratch_floats(s));
    // Dealt in turn: later rows of a prompt see more.
    for (auto u = static_cast<std::size_t>(part); u < attend_units_.size();
         u += static_cast<std::size_t>(parts)) {
      const AttendUnit& unit = attend_units_[u];
      const Segment& segment = *unit.segment;
      kernels_.attend({.w = &w,
                       .row_begin = unit.row_begin,
                       .row_end = unit.row_end,
                       .head_begin = unit.head_begin,
                       .head_end = unit.head_end,
                       .position = segment.position,
                       .queries = row_of(queries, segment.row_begin),
                       .projected = row_of(projected, segment.row_begin),
                       .blocks = cast(segment.state).kv(layer).blocks(),
                       .out = row_of(out, segment.row_begin),
                       .scratch = temp});
    }
  });
}

void CpuBackend::append_kv(const Batch& batch, int layer, const AttentionWeights& w,
                           Tensor projected) {
  check_attention(batch, w);
  CHECK(projected.rows == batch.rows);
  CHECK(projected.width == 2 * w.shape.kv_heads * w.shape.head_dim);
  append_rows(batch, layer, w, projected.data, projected.width);
}

}  // namespace lockstep::ops::cpu
