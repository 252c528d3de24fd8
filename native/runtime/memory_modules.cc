#include "runtime/memory_modules.h"

#include <algorithm>
#include <cmath>

#include "base/cast.h"

namespace continuo {

namespace {

constexpr float norm_eps = 1e-5f, unit_eps = 1e-12f;

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

void MemoryModules::apply(const HostKernels& kernels, const Linear& linear, const float* x, size_t rows, float* y) {
  const size_t inputs = linear.weight.size() / linear.outputs;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t o = 0; o < linear.outputs; ++o) {
      const float sum = kernels.dot(linear.weight.data() + o * inputs, x + row * inputs, inputs);
      y[row * linear.outputs + o] = linear.bias.empty() ? sum : sum + linear.bias[o];
    }
  }
}

void MemoryModules::normalise(const HostKernels& kernels, const LayerNorm& norm, const float* x, size_t rows,
                              float* y) {
  kernels.norm(x, norm.weight.data(), norm.bias.data(), y, rows, norm.weight.size(), 1, norm_eps);
}

float MemoryModules::trim_score(const HostKernels& kernels, const float* hidden) const {
  Numbers x(channels_), inner(trim_in_.outputs);
  normalise(kernels, trim_norm_, hidden, 1, x.data());
  apply(kernels, trim_in_, x.data(), 1, inner.data());
  kernels.map_silu(inner.data(), inner.data(), inner.size());
  float score = 0;
  apply(kernels, trim_out_, inner.data(), 1, &score);
  return score;
}

// x += the attention of `asking` [N, F] to `asked` [·, F].
void MemoryModules::attend(const HostKernels& kernels, const Attention& of, const Numbers& asking, const Numbers& asked,
                           Numbers& x) const {
  const size_t F = memory_.qformer->width, heads = memory_.qformer->heads, d = F / heads;
  const size_t rows = asking.size() / F, others = asked.size() / F;
  Numbers q(rows * F), k(others * F), v(others * F), y(rows * F, 0.0f), out(rows * F), scores(others);
  apply(kernels, of.q, asking.data(), rows, q.data());
  apply(kernels, of.k, asked.data(), others, k.data());
  apply(kernels, of.v, asked.data(), others, v.data());
  const float root = std::sqrt(static_cast<float>(d));
  for (size_t row = 0; row < rows; ++row) {
    for (size_t head = 0; head < heads; ++head) {
      const size_t at = row * F + head * d;
      for (size_t j = 0; j < others; ++j) scores[j] = kernels.dot(q.data() + at, k.data() + j * F + head * d, d) / root;
      Numbers weights(others);
      kernels.softmax(scores.data(), 1, weights.data(), others);
      for (size_t j = 0; j < others; ++j)
        for (size_t i = 0; i < d; ++i) y[at + i] = std::fma(weights[j], v[j * F + head * d + i], y[at + i]);
    }
  }
  apply(kernels, of.o, y.data(), rows, out.data());
  for (size_t i = 0; i < x.size(); ++i) x[i] += out[i];
}

void MemoryModules::sum_up(const HostKernels& kernels, const float* hidden, float* row) const {
  const size_t B = memory_.block, D = channels_, F = memory_.qformer->width, N = memory_.qformer->queries;
  Numbers normed(B * D), tokens(B * F), x = queries_, n(N * F), inner(2 * N * F);
  normalise(kernels, in_norm_, hidden, B, normed.data());
  apply(kernels, in_proj_, normed.data(), B, tokens.data());
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] += positions_[i];
  for (const auto& layer : layers_) {
    normalise(kernels, layer.self_norm, x.data(), N, n.data());
    attend(kernels, layer.self, n, n, x);
    normalise(kernels, layer.cross_norm, x.data(), N, n.data());
    attend(kernels, layer.cross, n, tokens, x);
    normalise(kernels, layer.mlp_norm, x.data(), N, n.data());
    apply(kernels, layer.up, n.data(), N, inner.data());
    kernels.map_gelu(inner.data(), inner.data(), inner.size());
    apply(kernels, layer.down, inner.data(), N, n.data());
    for (size_t i = 0; i < x.size(); ++i) x[i] += n[i];
  }
  normalise(kernels, out_norm_, x.data(), N, n.data());
  kernels.unit(n.data(), row, N, F, 1, unit_eps);
}

void MemoryModules::add_to_tombstone(const HostKernels& kernels, const float* row, float* key, float* value) const {
  const size_t F = memory_.qformer->width, N = memory_.qformer->queries, each = memory_.layers * memory_.kv();
  Numbers mean(F, 0.0f);
  for (size_t j = 0; j < N; ++j)
    for (size_t i = 0; i < F; ++i) mean[i] += row[j * F + i];
  for (float& x : mean) x /= static_cast<float>(N);
  for (size_t i = 0; i < each; ++i) {
    key[i] += kernels.dot(tombstone_k_.data() + i * F, mean.data(), F);
    value[i] += kernels.dot(tombstone_v_.data() + i * F, mean.data(), F);
  }
}

std::vector<float> MemoryModules::question(const HostKernels& kernels, const float* hidden) const {
  Numbers gate(gate_.outputs), up(up_.outputs), e(down_.outputs), out(down_.outputs);
  apply(kernels, gate_, hidden, 1, gate.data());
  apply(kernels, up_, hidden, 1, up.data());
  kernels.map_silu(gate.data(), gate.data(), gate.size());
  for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i];
  apply(kernels, down_, gate.data(), 1, e.data());
  kernels.unit(e.data(), out.data(), 1, e.size(), 1, unit_eps);
  return out;
}

float MemoryModules::walk_score(const HostKernels& kernels, const float* features) const {
  Numbers inner(walk_in_.outputs);
  apply(kernels, walk_in_, features, 1, inner.data());
  kernels.map_silu(inner.data(), inner.data(), inner.size());
  float score = 0;
  apply(kernels, walk_out_, inner.data(), 1, &score);
  return score;
}

}  // namespace continuo
