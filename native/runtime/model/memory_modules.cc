#include "runtime/model/memory_modules.h"

#include <algorithm>
#include <cmath>

#include "base/cast.h"

namespace continuo {

namespace {

constexpr float norm_eps = 1e-5f;
// Multiplications of one task of the pool.
constexpr size_t task_products = 1 << 15;

std::optional<Type> type_of(const Tensor& tensor) {
  if (tensor.dtype == "F32") return Type::f32;
  if (tensor.dtype == "F16") return Type::f16;
  if (tensor.dtype == "BF16") return Type::bf16;
  return std::nullopt;
}

}  // namespace

class ModuleReader {
 public:
  ModuleReader(std::span<const Tensor> tensors) : tensors_(tensors) {}

  bool has(const std::string& name) const { return find(name) != nullptr; }

  std::vector<float> take(const std::string& name, const std::vector<uint64_t>& shape) {
    const auto* tensor = find(name);
    if (!tensor) {
      fail(text("tensor \"", name, "\" is missing, expected shape ", shape_text(shape)));
      return {};
    }
    const auto type = type_of(*tensor);
    if (tensor->shape != shape || !type) {
      fail(text("tensor \"", name, "\" is ", tensor->dtype, " of shape ", shape_text(tensor->shape),
                ", expected F32, F16 or BF16 of shape ", shape_text(shape)));
      return {};
    }
    std::vector<float> out(tensor->elements());
    cast(tensor->data.data(), *type, reinterpret_cast<std::byte*>(out.data()), Type::f32, out.size());
    if (!std::all_of(out.begin(), out.end(), [](float x) { return std::isfinite(x); }))
      fail(text("tensor \"", name, "\" has a number that is not finite"));
    return out;
  }
  MemoryModules::Linear linear(const std::string& name, uint64_t outputs, uint64_t inputs, bool biased) {
    MemoryModules::Linear out;
    out.outputs = outputs;
    out.weight = take(name + ".weight", {outputs, inputs});
    if (biased) out.bias = take(name + ".bias", {outputs});
    return out;
  }
  MemoryModules::LayerNorm norm(const std::string& name, uint64_t width) {
    return {take(name + ".weight", {width}), take(name + ".bias", {width})};
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const Tensor* find(const std::string& name) const {
    const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
    return found == tensors_.end() ? nullptr : &*found;
  }
  void fail(const std::string& what) {
    if (!error_) error_ = invalid("memory.safetensors: ", what, ".");
  }

  std::span<const Tensor> tensors_;
  std::optional<Error> error_;
};

Result<std::unique_ptr<const MemoryModules>> MemoryModules::read(const ExternalMemory& memory, size_t D,
                                                                 std::span<const Tensor> tensors) {
  if (memory.trimmer == 0 && !memory.qformer && !memory.topics) return std::unique_ptr<const MemoryModules>();
  std::unique_ptr<MemoryModules> out(new MemoryModules(memory, D));
  ModuleReader reader(tensors);
  if (memory.trimmer > 0) {
    out->trim_norm_ = reader.norm("trimmer.norm", D);
    out->trim_in_ = reader.linear("trimmer.in", memory.trimmer, D, true);
    out->trim_out_ = reader.linear("trimmer.out", 1, memory.trimmer, true);
  }
  if (const auto& q = memory.qformer) {
    const uint64_t F = q->width;
    out->in_norm_ = reader.norm("qformer.in_norm", D);
    out->in_proj_ = reader.linear("qformer.in_proj", F, D, true);
    out->positions_ = reader.take("qformer.positions", {memory.block, F});
    out->queries_ = reader.take("qformer.queries", {q->queries, F});
    for (size_t i = 0; i < q->layers; ++i) {
      const std::string prefix = text("qformer.layers.", i, ".");
      const auto attention = [&](const char* name) {
        const auto one = [&](const char* which) { return reader.linear(prefix + name + which, F, F, false); };
        return Attention{one(".q_proj"), one(".k_proj"), one(".v_proj"), one(".o_proj")};
      };
      Layer layer;
      layer.self_norm = reader.norm(prefix + "self_norm", F);
      layer.self = attention("self_attn");
      layer.cross_norm = reader.norm(prefix + "cross_norm", F);
      layer.cross = attention("cross_attn");
      layer.mlp_norm = reader.norm(prefix + "mlp_norm", F);
      layer.up = reader.linear(prefix + "mlp.up", 2 * F, F, true);
      layer.down = reader.linear(prefix + "mlp.down", F, 2 * F, true);
      out->layers_.push_back(std::move(layer));
    }
    out->out_norm_ = reader.norm("qformer.out_norm", F);
    if (reader.has("tombstone.k_proj.weight") || reader.has("tombstone.v_proj.weight")) {
      out->tombstone_k_ = reader.take("tombstone.k_proj.weight", {memory.layers, memory.kv(), F});
      out->tombstone_v_ = reader.take("tombstone.v_proj.weight", {memory.layers, memory.kv(), F});
    }
    out->gate_ = reader.linear("projector.gate_proj", memory.projector, D, false);
    out->up_ = reader.linear("projector.up_proj", memory.projector, D, false);
    out->down_ = reader.linear("projector.down_proj", F, memory.projector, false);
  }
  if (memory.topics) {
    out->walk_in_ = reader.linear("walker.in", memory.topics->walker_width, walker_inputs, true);
    out->walk_out_ = reader.linear("walker.out", 1, memory.topics->walker_width, true);
  }
  if (reader.error()) return *reader.error();
  return std::unique_ptr<const MemoryModules>(std::move(out));
}

void MemoryModules::apply(const HostWork& work, const Linear& linear, const float* x, size_t rows, float* y) {
  const size_t inputs = linear.weight.size() / linear.outputs, sums = rows * linear.outputs;
  // Sums of one task: enough that the task is worth its start.
  const size_t each = std::max<size_t>(1, task_products / inputs);
  work.pool.parallel_for((sums + each - 1) / each, [&](size_t task) {
    for (size_t i = task * each; i < std::min(sums, (task + 1) * each); ++i) {
      const size_t row = i / linear.outputs, o = i % linear.outputs;
      const float sum = work.kernels.dot(linear.weight.data() + o * inputs, x + row * inputs, inputs);
      y[i] = linear.bias.empty() ? sum : sum + linear.bias[o];
    }
  });
}

void MemoryModules::normalise(const HostWork& work, const LayerNorm& norm, const float* x, size_t rows, float* y) {
  work.kernels.norm(x, norm.weight.data(), norm.bias.data(), y, rows, norm.weight.size(), 1, norm_eps);
}

float MemoryModules::trim_score(const HostWork& work, const float* hidden) const {
  Numbers x(channels_), inner(trim_in_.outputs);
  normalise(work, trim_norm_, hidden, 1, x.data());
  apply(work, trim_in_, x.data(), 1, inner.data());
  work.kernels.map_silu(inner.data(), inner.data(), inner.size());
  float score = 0;
  apply(work, trim_out_, inner.data(), 1, &score);
  return score;
}

// x += the attention of `asking` [N, F] to `asked` [·, F].
void MemoryModules::attend(const HostWork& work, const Attention& of, const Numbers& asking, const Numbers& asked,
                           Numbers& x) const {
  const size_t F = memory_.qformer->width, heads = memory_.qformer->heads, d = F / heads;
  const size_t rows = asking.size() / F, others = asked.size() / F;
  Numbers q(rows * F), k(others * F), v(others * F), y(rows * F, 0.0f), out(rows * F);
  Numbers scores(rows * heads * others), weights(scores.size());
  apply(work, of.q, asking.data(), rows, q.data());
  apply(work, of.k, asked.data(), others, k.data());
  apply(work, of.v, asked.data(), others, v.data());
  const float root = std::sqrt(static_cast<float>(d));
  work.pool.parallel_for(rows * heads, [&](size_t task) {
    const size_t head = task % heads, at = task / heads * F + head * d;
    float *own = scores.data() + task * others, *weight = weights.data() + task * others;
    for (size_t j = 0; j < others; ++j) own[j] = work.kernels.dot(q.data() + at, k.data() + j * F + head * d, d) / root;
    work.kernels.softmax(own, 1, weight, others);
    for (size_t j = 0; j < others; ++j)
      for (size_t i = 0; i < d; ++i) y[at + i] = std::fma(weight[j], v[j * F + head * d + i], y[at + i]);
  });
  apply(work, of.o, y.data(), rows, out.data());
  for (size_t i = 0; i < x.size(); ++i) x[i] += out[i];
}

void MemoryModules::sum_up(const HostWork& work, const float* hidden, float* row) const {
  const size_t B = memory_.block, D = channels_, F = memory_.qformer->width, N = memory_.qformer->queries;
  Numbers normed(B * D), tokens(B * F), x = queries_, n(N * F), inner(2 * N * F);
  normalise(work, in_norm_, hidden, B, normed.data());
  apply(work, in_proj_, normed.data(), B, tokens.data());
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] += positions_[i];
  for (const auto& layer : layers_) {
    normalise(work, layer.self_norm, x.data(), N, n.data());
    attend(work, layer.self, n, n, x);
    normalise(work, layer.cross_norm, x.data(), N, n.data());
    attend(work, layer.cross, n, tokens, x);
    normalise(work, layer.mlp_norm, x.data(), N, n.data());
    apply(work, layer.up, n.data(), N, inner.data());
    work.kernels.map_gelu(inner.data(), inner.data(), inner.size());
    apply(work, layer.down, inner.data(), N, n.data());
    for (size_t i = 0; i < x.size(); ++i) x[i] += n[i];
  }
  normalise(work, out_norm_, x.data(), N, n.data());
  work.kernels.unit(n.data(), row, N, F, 1, unit_eps);
}

void MemoryModules::add_to_tombstone(const HostWork& work, const float* row, float* key, float* value) const {
  const size_t F = memory_.qformer->width, N = memory_.qformer->queries, each = memory_.layers * memory_.kv();
  Numbers mean(F, 0.0f);
  for (size_t j = 0; j < N; ++j)
    for (size_t i = 0; i < F; ++i) mean[i] += row[j * F + i];
  for (float& x : mean) x /= static_cast<float>(N);
  for (size_t i = 0; i < each; ++i) {
    key[i] += work.kernels.dot(tombstone_k_.data() + i * F, mean.data(), F);
    value[i] += work.kernels.dot(tombstone_v_.data() + i * F, mean.data(), F);
  }
}

std::vector<float> MemoryModules::question(const HostWork& work, const float* hidden) const {
  Numbers gate(gate_.outputs), up(up_.outputs), e(down_.outputs), out(down_.outputs);
  apply(work, gate_, hidden, 1, gate.data());
  apply(work, up_, hidden, 1, up.data());
  work.kernels.map_silu(gate.data(), gate.data(), gate.size());
  for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i];
  apply(work, down_, gate.data(), 1, e.data());
  work.kernels.unit(e.data(), out.data(), 1, e.size(), 1, unit_eps);
  return out;
}

float MemoryModules::walk_score(const HostWork& work, const float* features) const {
  Numbers inner(walk_in_.outputs);
  apply(work, walk_in_, features, 1, inner.data());
  work.kernels.map_silu(inner.data(), inner.data(), inner.size());
  float score = 0;
  apply(work, walk_out_, inner.data(), 1, &score);
  return score;
}

}  // namespace continuo
