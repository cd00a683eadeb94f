// SPDX-License-Identifier: Apache-2.0
// Kernels of the CPU back end at the shapes of the demo model and of the 35B: linear, experts,
// delta and attend for 1 .. 9 and 64 rows. Weights rotate through copies larger than the last-level
// cache for the 35B and stay where they are for the demo model. LOCKSTEP_BENCH_THREADS sets the
// threads (default 1), LOCKSTEP_ISA the instruction set.
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/philox.h"
#include "lockstep/ops/make_backend.h"
#include "lockstep/ops/shapes.h"

namespace lockstep::ops {
namespace {

struct Geometry {
  const char* name;
  std::int64_t hidden, experts, top_k, expert_hidden;
  DeltaShape delta;
  AttentionShape attention;
};

constexpr Geometry kDemo = {"demo", 256, 24, 4, 64, {2, 4, 128, 128, 4}, {2, 1, 256, 64}};
constexpr Geometry k35b = {"35B", 2048, 256, 8, 512, {16, 32, 128, 128, 4}, {16, 2, 256, 64}};

class Noise {
 public:
  float uniform() { return 2.0f * uniform_open(bits()) - 1.0f; }
  std::uint32_t bits() { return philox4x32({next_++, 0, 0, 0}, {1, 2})[0]; }
  std::vector<float> floats(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values)
      value = uniform();
    return values;
  }

 private:
  std::uint32_t next_ = 0;
};

// Bytes that decode to moderate numbers in every format: codes from a short random run, scales of
// about 2^-6.
class Weights {
 public:
  Weights(const quant::Format& format, std::int64_t rows, std::int64_t cols) {
    const auto count = static_cast<std::size_t>(rows);
    codes_.resize(count * quant::row_bytes(format, cols));
    Noise noise;
    std::vector<std::byte> run(8191);
    for (std::size_t i = 0; i < run.size(); ++i) {
      run[i] = static_cast<std::byte>(noise.bits() & (format.quantized() ? 0xffu : 0x3fu));
    }
    for (std::size_t i = 0; i < codes_.size(); ++i)
      codes_[i] = run[i % run.size()];
    const std::byte scale = format.kind == quant::Kind::kAffine ? std::byte{0x3c} : std::byte{0x79};
    scales_.assign(count * quant::scale_row_bytes(format, cols), scale);
    view_ = {.format = format,
             .rows = rows,
             .cols = cols,
             .codes = codes_.data(),
             .scales = format.quantized() ? scales_.data() : nullptr,
             .biases = format.has_biases() ? scales_.data() : nullptr};
  }
  Weights(Weights&&) = default;
  const quant::MatrixView& view() const { return view_; }
  std::size_t bytes() const {
    return codes_.size() + scales_.size() * (view_.format.has_biases() ? 2 : 1);
  }

 private:
  quant::MatrixView view_;
  std::vector<std::byte> codes_, scales_;
};

std::unique_ptr<Backend> backend() {
  const char* threads = std::getenv("LOCKSTEP_BENCH_THREADS");
  BackendOptions options;
  options.threads = threads != nullptr ? std::atoi(threads) : 1;
  return std::move(make_backend(options)).value();
}

Tensor upload_new(Backend& b, const std::vector<float>& values, std::int64_t rows) {
  const Tensor t = b.scratch(rows, static_cast<std::int64_t>(values.size()) / rows);
  b.upload(values, t);
  return t;
}

void set_bytes(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}

void bench_linear(benchmark::State& state, const quant::Format& format, std::int64_t n,
                  std::int64_t k) {
  const auto b = backend();
  const std::int64_t rows = state.range(0);
  const Weights w(format, n, k);
  const auto matrix = b->prepare({&w.view(), 1});
  Noise noise;
  const Tensor x = upload_new(*b, noise.floats(rows * k), rows);
  const Tensor out = b->scratch(rows, n);
  for (auto _ : state)
    b->linear(x, *matrix, out);
  set_bytes(state, w.bytes());
  state.counters["GMAC/s"] = benchmark::Counter(static_cast<double>(rows * n * k) * 1e-9,
                                                benchmark::Counter::kIsIterationInvariantRate);
}

// One block: route, experts_in, experts_out. Rows route nearly independently. Bytes: those of the
// experts that were selected.
void bench_experts(benchmark::State& state, const Geometry& g, const quant::Format& format) {
  const auto b = backend();
  const std::int64_t rows = state.range(0);
  const Weights router(quant::float_format(DType::kBF16), g.experts + 1, g.hidden);
  const Weights in(format, g.expert_hidden * g.experts, g.hidden);
  const Weights down(format, g.hidden * g.experts, g.expert_hidden);
  std::vector<quant::MatrixView> in_views, down_views;
  for (std::int64_t e = 0; e < g.experts; ++e) {
    in_views.push_back(in.view().slice_rows(e * g.expert_hidden, g.expert_hidden));
    down_views.push_back(down.view().slice_rows(e * g.hidden, g.hidden));
  }
  const auto route = b->prepare({&router.view(), 1});
  const auto gate = b->prepare_bank(in_views), up = b->prepare_bank(in_views);
  const auto out = b->prepare_bank(down_views);
  const auto shared_in = b->prepare({in_views.data(), 1});
  const auto shared_down = b->prepare({down_views.data(), 1});
  Noise noise;
  const std::vector<float> x = noise.floats(rows * g.hidden);
  const std::vector<float> gamma(static_cast<std::size_t>(g.hidden), 1.0f);
  for (auto _ : state) {
    b->reset_scratch();
    const Tensor t = upload_new(*b, x, rows);
    const RouterOutput routed = b->route(t, gamma, 1e-6f, *route, static_cast<int>(g.top_k));
    const Tensor activations = b->experts_in(routed, *gate, *up, *shared_in, *shared_in);
    b->experts_out(routed, activations, *out, *shared_down, t);
  }
  const auto selected = static_cast<std::size_t>(b->expert_union() + 1);
  set_bytes(state, router.bytes() + selected * (2 * in.bytes() + down.bytes()) /
                                        static_cast<std::size_t>(g.experts));
  state.counters["union"] = static_cast<double>(b->expert_union());
}

DeltaWeights delta_weights(const DeltaShape& shape) {
  Noise noise;
  DeltaWeights w;
  w.shape = shape;
  w.conv = noise.floats(shape.conv_channels() * shape.conv_kernel);
  w.a_log = noise.floats(shape.value_heads);
  w.dt_bias = noise.floats(shape.value_heads);
  w.norm.assign(static_cast<std::size_t>(shape.value_dim), 1.0f);
  w.norm_eps = 1e-6f;
  return w;
}

Batch one_segment(SequenceState* s, SegmentClass cls, std::int64_t rows, bool speculative) {
  Batch batch;
  batch.rows = rows;
  batch.coordinates.assign(static_cast<std::size_t>(3 * rows), 7);
  batch.segments = {{.cls = cls,
                     .row_begin = 0,
                     .row_count = rows,
                     .position = s->position(),
                     .state = s,
                     .speculative = speculative}};
  return batch;
}

// Windows of `rows`, of which all are kept: the next call applies them.
void bench_delta(benchmark::State& state, const Geometry& g, SegmentClass cls) {
  const auto b = backend();
  const std::int64_t rows = state.range(0);
  const DeltaWeights w = delta_weights(g.delta);
  const auto s = b->make_state(
      {.delta_layers = {g.delta}, .attention_layers = {}, .target_attention_layers = 0});
  Noise noise;
  const std::vector<float> in = noise.floats(rows * delta_projected_width(g.delta));
  const Tensor x = upload_new(*b, in, rows);
  const Tensor out = b->scratch(rows, g.delta.v_channels());
  const bool speculative = cls == SegmentClass::kStep && rows > 1;
  for (auto _ : state)
    b->delta(one_segment(s.get(), cls, rows, speculative), 0, w, x, out);
  set_bytes(state, static_cast<std::size_t>(2 * g.delta.v_channels() * g.delta.key_dim * 4));
}

void bench_attend(benchmark::State& state, const Geometry& g, SegmentClass cls) {
  const auto b = backend();
  const std::int64_t rows = state.range(0), context = state.range(1);
  Noise noise;
  AttentionWeights w;
  w.shape = g.attention;
  w.q_norm.assign(static_cast<std::size_t>(g.attention.head_dim), 1.0f);
  w.k_norm = w.q_norm;
  w.inv_freq.assign(static_cast<std::size_t>(g.attention.rotary_dim / 2), 0.01f);
  w.axis.assign(w.inv_freq.size(), 0);
  w.norm_eps = 1e-6f;
  const auto s = b->make_state(
      {.delta_layers = {}, .attention_layers = {g.attention}, .target_attention_layers = 1});
  const std::int64_t kv = 2 * g.attention.kv_heads * g.attention.head_dim;
  b->append_kv(one_segment(s.get(), SegmentClass::kPrefill, context, false), 0, w,
               upload_new(*b, noise.floats(context * kv), context));
  const std::vector<float> in = noise.floats(rows * attention_projected_width(g.attention));
  for (auto _ : state) {
    b->reset_scratch();
    const Tensor x = upload_new(*b, in, rows);
    const Tensor out = b->scratch(rows, g.attention.query_heads * g.attention.head_dim);
    b->attend(one_segment(s.get(), cls, rows, cls == SegmentClass::kStep), 0, w, x, out);
    s->rewind(context);
  }
  set_bytes(state, static_cast<std::size_t>(context * kv * 4));
}

void rows_1_to_9(benchmark::internal::Benchmark* bench) {
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 9, 64})
    bench->Arg(rows);
  bench->UseRealTime();
}

void add_linear(const std::string& name, const quant::Format& format, std::int64_t n,
                std::int64_t k) {
  benchmark::RegisterBenchmark(("linear/" + name + "/" + format.name()).c_str(),
                               [=](benchmark::State& s) { bench_linear(s, format, n, k); })
      ->Apply(rows_1_to_9);
}

void register_geometry(const Geometry& g, const std::vector<quant::Format>& formats) {
  const std::string name = g.name;
  for (const quant::Format& format : formats) {
    add_linear(name + "_delta_in", format, delta_projected_width(g.delta), g.hidden);
    add_linear(name + "_delta_out", format, g.hidden, g.delta.v_channels());
    benchmark::RegisterBenchmark(("experts/" + name + "/" + format.name()).c_str(),
                                 [=](benchmark::State& s) { bench_experts(s, g, format); })
        ->Apply(rows_1_to_9);
  }
  benchmark::RegisterBenchmark(("delta_step/" + name).c_str(),
                               [=](benchmark::State& s) { bench_delta(s, g, SegmentClass::kStep); })
      ->DenseRange(1, 5)
      ->Arg(9)
      ->UseRealTime();
  benchmark::RegisterBenchmark(
      ("delta_prefill/" + name).c_str(),
      [=](benchmark::State& s) { bench_delta(s, g, SegmentClass::kPrefill); })
      ->Arg(64)
      ->Arg(512)
      ->UseRealTime();
  for (const std::int64_t context : {256, 4096}) {
    auto* step = benchmark::RegisterBenchmark(
        ("attend_step/" + name).c_str(),
        [=](benchmark::State& s) { bench_attend(s, g, SegmentClass::kStep); });
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 9})
      step->Args({rows, context});
    step->UseRealTime();
  }
}

}  // namespace

void register_all() {
  const quant::Format bf16 = quant::float_format(DType::kBF16);
  register_geometry(kDemo, {bf16, quant::affine(4, 64), quant::affine(8, 64), quant::mxfp4()});
  add_linear("demo_head", bf16, 6144, 256);
  register_geometry(k35b, {quant::affine(4, 64)});
  add_linear("35B_head", quant::affine(4, 64), 248'320, 2048);
}

}  // namespace lockstep::ops

int main(int argc, char** argv) {
  lockstep::ops::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
