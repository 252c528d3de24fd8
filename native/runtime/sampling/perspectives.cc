#include "runtime/sampling/perspectives.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/model/chance.h"

namespace continuo {

namespace {

// A distribution over the vocabulary: ln p and p.
struct Distribution {
  std::vector<float> lp, p;
};

Distribution distribution(const HostKernels& kernels, const float* logits, size_t n) {
  Distribution out{std::vector<float>(n), std::vector<float>(n)};
  const float max = kernels.max(logits, n), sum = kernels.sum_exp(logits, max, n);
  float log_sum = 0;
  kernels.log(&sum, &log_sum, 1);
  for (size_t v = 0; v < n; ++v) out.lp[v] = logits[v] - max - log_sum;
  kernels.exp(out.lp.data(), out.p.data(), n);
  return out;
}

constexpr float least_mass = 1e-30f;

// ln p of every entry of a distribution. Taken of p itself, as ln m is, so that equal distributions are apart by 0.
std::vector<float> logs_of(const HostKernels& kernels, const std::vector<float>& p) {
  std::vector<float> out(p.size());
  for (size_t v = 0; v < p.size(); ++v) out[v] = std::max(p[v], least_mass);
  kernels.log(out.data(), out.data(), out.size());
  return out;
}

// ½ Σ p (ln p − ln m) + ½ Σ q (ln q − ln m), m = (p + q) / 2.
float divergence(const HostKernels& kernels, const std::vector<float>& p, const std::vector<float>& log_p,
                 const std::vector<float>& q, const std::vector<float>& log_q) {
  const size_t n = p.size();
  std::vector<float> m(n), of_p(n), of_q(n);
  for (size_t v = 0; v < n; ++v) m[v] = (p[v] + q[v]) * 0.5f;
  m = logs_of(kernels, m);
  for (size_t v = 0; v < n; ++v) {
    of_p[v] = log_p[v] - m[v];
    of_q[v] = log_q[v] - m[v];
  }
  return 0.5f * kernels.dot(p.data(), of_p.data(), n) + 0.5f * kernels.dot(q.data(), of_q.data(), n);
}

std::vector<std::byte> downloaded(const Device& device, const std::byte* from, size_t bytes) {
  std::vector<std::byte> out(bytes);
  const Piece piece{from, bytes};
  const_cast<Device&>(device).download(out.data(), {&piece, 1});
  return out;
}

// The rows of block "again": for each row that fired, its perspectives that run layers.
class AgainRows {
 public:
  AgainRows(const Executor& executor, const Perspective& form) : model_(executor.model()), form_(form) {
    const auto& program = model_.programs[*model_.graph.again];
    inputs_.resize(program.inputs.size());
  }

  void add(const DrawnRow& row, Perspectives::Kind kind, uint32_t j) {
    const auto& mpd = *form_.perspectives;
    const uint64_t clock = row.context->head.pulse;
    const size_t channels = model_.graph.width(form_.start);
    const auto kept = downloaded(*model_.device, row.context->data(form_.start), channels * sizeof(float));
    std::vector<float> x(channels);
    std::memcpy(x.data(), kept.data(), kept.size());
    if (kind == Perspectives::Kind::jitter) {
      for (size_t i = 0; i < channels; ++i)
        x[i] = std::fma(mpd.jitter_std,
                        normal_of(chance(Purpose::jitter, j, clock, row.seed, static_cast<uint32_t>(i))), x[i]);
    }
    if (kind == Perspectives::Kind::dropout) {
      const auto limit = static_cast<uint32_t>(std::floor(mpd.dropout * 0x1p32));
      const float kept_share = static_cast<float>(1.0 - mpd.dropout);
      Words words{};
      for (size_t i = 0; i < channels; ++i) {
        if (i % 4 == 0) words = chance(Purpose::dropout, j, clock, row.seed, static_cast<uint32_t>(i / 4));
        x[i] = words[i % 4] < limit ? 0.0f : x[i] / kept_share;
      }
    }
    put(0, x);
    contexts_.push_back(row.context);
    if (inputs_.size() == 1) return;
    const bool random = kind == Perspectives::Kind::random;
    const float keep = random ? 0.0f : 1.0f, half = kind == Perspectives::Kind::antipode ? 0.5f : 0.0f;
    put(1, std::vector<float>{keep, keep});
    put(2, std::vector<int32_t>{kind == Perspectives::Kind::second ? 1 : 0});
    size_t input = 3;
    for (size_t layer = form_.layers.size() - mpd.layers; layer < form_.layers.size(); ++layer) {
      if (!form_.layers[layer].experts) continue;
      std::vector<float> move{half, half};
      if (random) {
        const auto words = chance(Purpose::random, j, clock, row.seed, static_cast<uint32_t>(layer));
        for (size_t axis = 0; axis < 2; ++axis) move[axis] = static_cast<float>(words[axis] >> 8) * 0x1p-24f;
      }
      put(input++, move);
    }
  }

  size_t rows() const { return contexts_.size(); }

  // Logits [rows, vocabulary] of all rows.
  std::vector<float> run(Executor& executor) const {
    const size_t block = *model_.graph.again, vocabulary = model_.graph.vocabulary();
    const size_t most = std::min(executor.rows_of(block), executor.rows_of(model_.graph.language->predict));
    const auto& program = model_.programs[block];
    const uint32_t hidden = program.result("hidden");
    std::vector<float> out(rows() * vocabulary);
    for (size_t from = 0; from < rows(); from += most) {
      const size_t count = std::min(most, rows() - from);
      for (size_t input = 0; input < inputs_.size(); ++input) {
        const size_t bytes = program.values[program.inputs[input]].bytes;
        executor.insert(block, input, std::span(inputs_[input]).subspan(from * bytes, count * bytes));
      }
      std::vector<Run> runs;
      for (size_t row = 0; row < count; ++row) runs.push_back({contexts_[from + row], row, 1});
      executor.step(block, count, runs);
      std::vector<const std::byte*> hiddens;
      for (size_t row = 0; row < count; ++row)
        hiddens.push_back(executor.address(block, hidden) + row * program.values[hidden].bytes);
      predict(executor, hiddens);
      std::copy_n(predicted(executor, count), count * vocabulary, out.data() + from * vocabulary);
    }
    return out;
  }

 private:
  template <class T> void put(size_t input, const std::vector<T>& row) {
    const auto bytes = std::as_bytes(std::span(row));
    inputs_[input].insert(inputs_[input].end(), bytes.begin(), bytes.end());
  }

  const Model& model_;
  const Perspective& form_;
  std::vector<std::vector<std::byte>> inputs_;
  std::vector<Context*> contexts_;
};

// What the hyperdimensional memory knows of the hidden vector after the last token.
HyperSpace::Recalled recall(const Model& model, const Perspective& form, Context& context) {
  const auto& memory = *form.memory;
  const size_t channels = model.graph.width(model.graph.language->hidden);
  const auto* hiddens = context.data(form.hiddens);
  const auto place = static_cast<size_t>((context.head.pulse - 1) % form.recent);
  const auto hidden = downloaded(*model.device, hiddens + place * channels, channels);
  const auto banks = downloaded(model.device_of(model.layout[model.slice_of[form.banks]]), context.data(form.banks),
                                memory.banks * memory.bits);
  const auto whole = [](const std::vector<std::byte>& bytes) {
    return std::span(reinterpret_cast<const int8_t*>(bytes.data()), bytes.size());
  };
  const auto key = model.hyper_space->key(whole(hidden));
  return model.hyper_space->recall(whole(banks), key);
}

}  // namespace

std::vector<Drawn> draw_perspectives(Executor& executor, std::span<const DrawnRow> rows, const float* logits) {
  const auto& model = executor.model();
  const auto& kernels = model.host();
  const auto& form = *model.graph.perspective;
  const auto& mpd = *form.perspectives;
  const size_t vocabulary = model.graph.vocabulary(), count = mpd.kinds.size();
  std::vector<Drawn> out(rows.size());
  std::vector<std::vector<Distribution>> views(rows.size());
  AgainRows again(executor, form);
  for (size_t r = 0; r < rows.size(); ++r) {
    const float* own = logits + r * vocabulary;
    if (!kernels.finite(own, vocabulary)) continue;
    auto base = distribution(kernels, own, vocabulary);
    auto& note = out[r].note;
    note.entropy = -kernels.dot(base.p.data(), base.lp.data(), vocabulary);
    note.fired = kernels.max(base.p.data(), vocabulary) < mpd.max_p || note.entropy > mpd.entropy;
    if (!note.fired) continue;
    std::vector<float> cooled(own, own + vocabulary);
    for (auto& logit : cooled) logit /= mpd.temperature;
    for (size_t j = 0; j < count; ++j) {
      const auto kind = mpd.kinds[j];
      views[r].push_back(kind == Perspectives::Kind::temperature ? distribution(kernels, cooled.data(), vocabulary)
                                                                 : Distribution{});
      if (Perspectives::runs(kind)) again.add(rows[r], kind, static_cast<uint32_t>(j));
    }
    views[r][0] = std::move(base);
  }
  const auto seen = again.run(executor);
  const float* next = seen.data();
  for (size_t r = 0; r < rows.size(); ++r) {
    auto& note = out[r].note;
    if (!note.fired) continue;
    auto& view = views[r];
    for (size_t j = 0; j < count; ++j) {
      if (!Perspectives::runs(mpd.kinds[j])) continue;
      view[j] = distribution(kernels, next, vocabulary);
      next += vocabulary;
    }
    std::vector<std::vector<float>> logs;
    for (const auto& each : view) logs.push_back(logs_of(kernels, each.p));
    float most = 0;
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = i + 1; j < count; ++j) {
        const float apart = divergence(kernels, view[i].p, logs[i], view[j].p, logs[j]);
        // NaN stays: a perspective whose logits are not finite agrees with none.
        if (apart > most || apart != apart) most = apart;
      }
    }
    note.agreed = most < mpd.jsd;
    if (most != most) continue;
    note.jsd = most;
    const float share = 1.0f / static_cast<float>(count);
    const auto mean = [&](auto member, size_t v) {
      float sum = 0;
      for (const auto& each : view) sum += (each.*member)[v];
      return sum * share;
    };
    std::vector<float> drawn(vocabulary);
    if (*note.agreed) {
      for (size_t v = 0; v < vocabulary; ++v) drawn[v] = mean(&Distribution::lp, v);
      out[r].logits = distribution(kernels, drawn.data(), vocabulary).lp;
      continue;
    }
    if (!form.memory) continue;
    const auto recalled = recall(model, form, *rows[r].context);
    if (!recalled.found) continue;
    note.recalled = recalled;
    if (!recalled.hit) continue;
    const auto bits = static_cast<float>(form.memory->bits);
    const float weight = form.memory->blend * (bits - 2.0f * static_cast<float>(recalled.distance)) / bits;
    note.weight = weight;
    for (size_t v = 0; v < vocabulary; ++v) {
      const float own = static_cast<int32_t>(v) == recalled.token ? weight : 0.0f;
      drawn[v] = std::max((1.0f - weight) * mean(&Distribution::p, v) + own, least_mass);
    }
    kernels.log(drawn.data(), drawn.data(), vocabulary);
    out[r].logits = std::move(drawn);
  }
  return out;
}

}  // namespace continuo
