// SPDX-License-Identifier: Apache-2.0
// The verbs of the forward pass. model/ is written once against this class; every back end
// implements it, and reference/ defines what is right.
//
// Common rules:
// - Activations are row-major f32, [rows, width], in memory that only the back end touches;
//   model/ passes handles on and uses download() to look inside.
// - A verb works on all rows of a Batch. Each verb is RowInvariant (exactness.h): row m of its
//   output depends on row m of its inputs (and on its sequence's state) only, bit for bit, for
//   every number of rows, every neighbour and every thread count.
// - Rounding points are written at each verb. "dot" is the canonical dot product of dot.h.
// - Precision f32: activations, state and KV in f32; stored weights expand exactly (quant/).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/quant/format.h"

namespace lockstep::ops {

enum class SegmentClass : std::uint8_t {
  kStep,     // decode and verification windows: sequential delta rule
  kPrefill,  // prompt rows: chunked delta rule, chunks at absolute multiples of 64
};

class SequenceState;  // of one sequence; owned by model/, made by Backend::make_state

// A run of consecutive rows of one sequence.
struct Segment {
  SegmentClass cls = SegmentClass::kStep;
  std::int64_t row_begin = 0;
  std::int64_t row_count = 0;
  std::int64_t position = 0;  // cache index of the first row
  SequenceState* state = nullptr;
  // True: the rows may be undone by SequenceState::rewind. False: they are final.
  bool speculative = false;
};

// The rows of one forward call. Rotary coordinates are 3-axis (t, h, w); equal for text.
struct Batch {
  std::vector<Segment> segments;
  std::vector<std::int32_t> coordinates;  // [rows, 3]
  std::int64_t rows = 0;
};

// A handle to activations. `data` belongs to the back end that made it.
struct Tensor {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};

// Rows [begin, begin + count) of a tensor; shares its memory.
inline Tensor rows_of(Tensor t, std::int64_t begin, std::int64_t count) {
  return {.data = t.data + begin * t.width, .rows = count, .width = t.width};
}

// Weights as a back end wants them, made once from the artifact's bytes, which must outlive it.
// Concatenates several matrices of equal cols into one output row.
class Matrix {
 public:
  virtual ~Matrix() = default;
  virtual std::int64_t rows() const = 0;  // output width
  virtual std::int64_t cols() const = 0;
};

// One matrix per expert, all [rows, cols] in one format.
class ExpertBank {
 public:
  virtual ~ExpertBank() = default;
};

struct DeltaShape {
  std::int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, conv_kernel = 0;
  std::int64_t qk_channels() const { return key_heads * key_dim; }
  std::int64_t v_channels() const { return value_heads * value_dim; }
  std::int64_t conv_channels() const { return 2 * qk_channels() + v_channels(); }
};

struct AttentionShape {
  std::int64_t query_heads = 0, kv_heads = 0, head_dim = 0, rotary_dim = 0;
};

// What one sequence remembers. One delta layer or attention layer per entry.
struct StateShape {
  std::vector<DeltaShape> delta_layers;
  std::vector<AttentionShape> attention_layers;  // the target's first, then the head's
  int target_attention_layers = 0;               // how many of them rewind() cuts
};

// Gains are gamma (1 + w already added).
struct DeltaWeights {
  DeltaShape shape;
  std::vector<float> conv;     // [conv_channels, kernel]; the last tap multiplies the current row
  std::vector<float> a_log;    // [value_heads]
  std::vector<float> dt_bias;  // [value_heads]
  std::vector<float> norm;     // [value_dim]
  float norm_eps = 0;
};

struct AttentionWeights {
  AttentionShape shape;
  std::vector<float> q_norm, k_norm;  // [head_dim]
  std::vector<float> inv_freq;        // [rotary_dim / 2]
  std::vector<std::uint8_t> axis;     // [rotary_dim / 2]; 0, 1, 2: which coordinate turns the pair
  float norm_eps = 0;
};

struct RouterOutput {
  Tensor normed;          // [rows, hidden]: the block's normalised input
  std::int32_t* experts;  // [rows, top_k], descending probability, ties by lowest index
  Tensor weights;         // [rows, top_k], renormalised
  Tensor shared_gate;     // [rows, 1], after the sigmoid
};

// KV cache, conv rows and delta state of one sequence. `position` counts the target's rows; the
// head's attention layers grow by append_kv and attend with their own Segment::position.
class SequenceState {
 public:
  virtual ~SequenceState() = default;
  // Rows of the target's layers that are kept, those of the last speculative window included.
  virtual std::int64_t position() const = 0;
  // Keeps rows [0, position) of the target's layers. Only rows of the last segment, if it was
  // speculative, can be undone; CHECKs that no more is asked for. O(1): the delta state is replayed
  // from what the window's rows change in it by the next verb that needs it, and a kept row gives
  // the same bits as if the window had ended there.
  virtual void rewind(std::int64_t position) = 0;
  // Entries of one attention layer's cache (`attention_layer` indexes StateShape).
  virtual std::int64_t kv_length(int attention_layer) const = 0;
  virtual void truncate_kv(int attention_layer, std::int64_t length) = 0;
  virtual std::size_t bytes() const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;       // "reference", "cpu"
  virtual std::string precision() const = 0;  // "f32"
  virtual std::string isa() const = 0;        // "scalar", "avx2", "avx512"

  // --- weights and memory ---------------------------------------------------------------
  virtual std::unique_ptr<Matrix> prepare(std::span<const quant::MatrixView> parts) = 0;
  virtual std::unique_ptr<ExpertBank> prepare_bank(std::span<const quant::MatrixView> experts) = 0;
  virtual std::unique_ptr<SequenceState> make_state(const StateShape& shape) = 0;
  // Scratch that lives until the next reset_scratch(). Contents undefined.
  virtual Tensor scratch(std::int64_t rows, std::int64_t width) = 0;
  virtual std::int32_t* scratch_ids(std::int64_t count) = 0;
  virtual void reset_scratch() = 0;
  virtual void download(const Tensor& from, std::span<float> to) = 0;
  virtual void upload(std::span<const float> from, Tensor to) = 0;
  // The values for the host to read until the next reset_scratch(). Host back ends give the memory
  // itself; others override with a copy.
  virtual std::span<const float> host_view(const Tensor& from) {
    return {from.data, static_cast<std::size_t>(from.rows * from.width)};
  }

  // --- verbs ----------------------------------------------------------------------------
  // out[m] = row ids[m] of the table, expanded.
  virtual void embed(const Matrix& table, std::span<const std::int32_t> ids, Tensor out) = 0;

  // out[m] = gamma * (x[m] * (1 / sqrt(mean(x[m]^2) + eps))). Sum of squares by the canonical dot.
  virtual void rms_norm(Tensor x, std::span<const float> gamma, float eps, Tensor out) = 0;

  // out[m, n] = dot(x[m], w[n]).
  virtual void linear(Tensor x, const Matrix& w, Tensor out) = 0;

  // Stage 1: out = linear(rms_norm(x), w).
  virtual void project(Tensor x, std::span<const float> gamma, float eps, const Matrix& w,
                       Tensor out) = 0;

  // Stage 2, delta. `projected` [rows, conv + v + 2 * value_heads] = qkv | z | b | a (spec 3.3).
  // Appends to layer `layer` of each segment's state. out [rows, value_heads * value_dim]. Order of
  // operations: reference/reference_delta.cpp; accumulates and keeps everything in f32.
  virtual void delta(const Batch& batch, int layer, const DeltaWeights& w, Tensor projected,
                     Tensor out) = 0;

  // Stage 2, attention. `projected` [rows, 2 * q_heads * d + 2 * kv_heads * d] = (query | gate per
  // head) | k | v (spec 3.2). Row r of a segment is stored at kv index position + r and sees
  // 0..position + r. out [rows, q_heads * d]. `position` is Segment::position.
  // Softmax over blocks of 64 positions, merged in order (reference/reference_attention.cpp).
  virtual void attend(const Batch& batch, int layer, const AttentionWeights& w, Tensor projected,
                      Tensor out) = 0;

  // Appends keys and values only: `projected` [rows, 2 * kv_heads * d] = k | v. For MTP priming.
  virtual void append_kv(const Batch& batch, int layer, const AttentionWeights& w,
                         Tensor projected) = 0;

  // Stage 3: x[m] += linear(y)[m].
  virtual void mix_out(Tensor y, const Matrix& w, Tensor x) = 0;

  // Stage 4. Softmax over all experts in f32, top k (ties by lowest index), renormalised.
  // `w` = router [experts] then shared gate [1].
  virtual RouterOutput route(Tensor x, std::span<const float> gamma, float eps, const Matrix& w,
                             int top_k) = 0;

  // Stage 5: activations [rows, top_k * expert_hidden + shared_hidden]: silu(gate x) * (up x) of
  // the selected experts in slot order, then of the shared expert.
  virtual Tensor experts_in(const RouterOutput& routed, const ExpertBank& gate,
                            const ExpertBank& up, const Matrix& shared_gate,
                            const Matrix& shared_up) = 0;

  // Stage 6: x[m] = x[m] + (sum over slots in order of weight * down(act)) + gate * shared_down.
  // The sum starts at zero, fma per slot; then one fma for the shared expert; then the residual.
  virtual void experts_out(const RouterOutput& routed, Tensor activations, const ExpertBank& down,
                           const Matrix& shared_down, Tensor x) = 0;

  // out [rows, 2 * hidden] = rms_norm(e) | rms_norm(h): input of the MTP fusion matrix.
  virtual void fuse(Tensor e, std::span<const float> gamma_e, Tensor h,
                    std::span<const float> gamma_h, float eps, Tensor out) = 0;

  // out[i] = in[rows[i]].
  virtual void gather_rows(Tensor in, std::span<const std::int32_t> rows, Tensor out) = 0;

  // Distinct experts that the last route() call selected over all its rows.
  virtual std::int64_t expert_union() const = 0;
};

}  // namespace lockstep::ops
