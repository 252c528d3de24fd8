#include "runtime/adapt/tangents.h"

#include <algorithm>
#include <cmath>

#include "experts/form.h"
#include "experts/straight.h"
#include "weights/widen.h"

namespace continuo {

namespace {

constexpr float tangent_eps = 1e-6f;
using Row = std::vector<float>;

// The tangent of x · i ⊙ g, i = 1/√(Σ x² / n + ε); of `unit` n is 1 and there is no g.
Row norm_tangent(const float* x, const Row& along, const float* g, float eps, double n) {
  double squares = 0, products = 0;
  for (size_t i = 0; i < along.size(); ++i) {
    squares += static_cast<double>(x[i]) * x[i];
    products += static_cast<double>(x[i]) * along[i];
  }
  const double inverse = 1.0 / std::sqrt(squares / n + eps), cube = inverse * inverse * inverse * (products / n);
  Row out(along.size());
  for (size_t i = 0; i < along.size(); ++i)
    out[i] = static_cast<float>((along[i] * inverse - x[i] * cube) * (g ? g[i] : 1.0f));
  return out;
}

void add(Row& to, const Row& more) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += more[i];
}

}  // namespace

// One pass over the tokens, all directions beside each other.
class Tangents::Pass {
 public:
  Pass(Tangents& tangents, const Values& values, const Adapters& adapters, const std::vector<float>& theta,
       const std::vector<std::vector<float>>& directions)
      : tangents_(tangents),
        model_(*tangents.model_),
        form_(*model_.graph.perspective),
        kernels_(model_.host()),
        values_(values),
        adapters_(adapters),
        theta_(theta),
        directions_(directions),
        states_(form_.layers.size()),
        keys_(form_.layers.size()) {}

  Result<std::vector<float>> run(std::span<const int32_t> ids) {
    const size_t vocabulary = model_.graph.vocabulary();
    const auto& head = tangents_.constant("lm_head", 0);
    std::vector<double> sums(directions_.size(), 0);
    for (size_t t = 0; t < ids.size(); ++t) {
      auto hidden = token(t);
      if (!hidden) return hidden.error();
      const float* logits = values_.logits.data() + t * vocabulary;
      const float max = kernels_.max(logits, vocabulary), sum = kernels_.sum_exp(logits, max, vocabulary);
      Row p(vocabulary);
      for (size_t v = 0; v < vocabulary; ++v) p[v] = logits[v] - max;
      kernels_.exp(p.data(), p.data(), vocabulary);
      for (size_t kappa = 0; kappa < directions_.size(); ++kappa) {
        const Row z = times(head, (*hidden)[kappa]);
        double slope = 0;
        for (size_t v = 0; v < vocabulary; ++v) slope += static_cast<double>(p[v]) / sum * z[v];
        sums[kappa] += slope - z[static_cast<size_t>(ids[t])];
      }
    }
    std::vector<float> out;
    for (const double sum : sums) out.push_back(static_cast<float>(sum / static_cast<double>(ids.size())));
    return out;
  }

 private:
  using Rows = std::vector<Row>;  // [directions]

  const float* value(const std::string& name, size_t t) const {
    const auto& rows = values_.rows.at(name);
    return rows.data() + t * (rows.size() / tokens());
  }
  size_t tokens() const { return values_.logits.size() / model_.graph.vocabulary(); }

  Row times(const Matrix& w, const Row& x) const {
    Row out(w.outputs);
    for (size_t i = 0; i < w.outputs; ++i) out[i] = kernels_.dot(w.numbers.data() + i * w.inputs, x.data(), w.inputs);
    return out;
  }

  Result<Rows> token(size_t t) {
    t_ = t;
    Rows x(directions_.size(), Row(model_.graph.width(model_.graph.language->hidden), 0.0f));
    size_t recurrent = 0, attentive = 0, dense = 0, routed = 0;
    for (size_t layer = 0; layer < form_.layers.size(); ++layer) {
      const auto& [is_recurrent, has_experts] = form_.layers[layer];
      at_ = text(layer, ".");
      const std::string before = layer == 0 ? "x" : text(layer - 1, ".x");
      Rows n = normed(before, "input_layernorm", layer, x);
      const Rows mixed = is_recurrent ? recurrence(n, layer, recurrent++) : attention(n, layer, attentive++);
      for (size_t kappa = 0; kappa < x.size(); ++kappa) add(x[kappa], mixed[kappa]);
      const Rows u = normed(at_ + "x.mixed", "post_attention_layernorm", layer, x);
      auto fed = has_experts ? experts(u, routed++) : Result<Rows>(mlp(u, dense++));
      if (!fed) return fed.error();
      for (size_t kappa = 0; kappa < x.size(); ++kappa) add(x[kappa], (*fed)[kappa]);
    }
    Rows hidden = normed(text(form_.layers.size() - 1, ".x"), "norm", 0, x);
    return projected(std::move(hidden));
  }

  Rows normed(const std::string& of, const std::string& weight, size_t member, const Rows& x) const {
    const auto& g = tangents_.constant(weight, member);
    Rows out;
    for (const auto& row : x)
      out.push_back(norm_tangent(value(of, t_), row, g.numbers.data(), form_.eps, static_cast<double>(row.size())));
    return out;
  }

  // The tangent of a linear map y = W x + B (A x) for x and its tangents.
  Rows mapped(const std::string& target, size_t place, const float* x, const Rows& along) const {
    const auto& w = tangents_.constant(target, place);
    const auto& targets = form_.adaptation->targets;
    const auto found = std::find_if(targets.begin(), targets.end(), [&](const auto& t) { return t.name == target; });
    Rows out;
    for (const auto& row : along) out.push_back(times(w, row));
    if (found == targets.end()) return out;
    const auto& at = adapters_.place(static_cast<size_t>(found - targets.begin()), place);
    const size_t rank = adapters_.rank();
    const auto low = [&](const std::vector<float>& from, const float* in) {
      Row h(rank);
      for (size_t i = 0; i < rank; ++i) h[i] = kernels_.dot(from.data() + at.A + i * at.inputs, in, at.inputs);
      return h;
    };
    const auto high = [&](const std::vector<float>& from, const Row& h, Row& to) {
      for (size_t i = 0; i < at.outputs; ++i) to[i] += kernels_.dot(from.data() + at.B + i * rank, h.data(), rank);
    };
    const Row Ax = low(theta_, x);
    for (size_t kappa = 0; kappa < along.size(); ++kappa) {
      high(directions_[kappa], Ax, out[kappa]);
      high(theta_, low(directions_[kappa], x), out[kappa]);
      high(theta_, low(theta_, along[kappa].data()), out[kappa]);
    }
    return out;
  }

  Row sigmoids(const float* z, size_t n) const {
    Row out(n);
    for (size_t i = 0; i < n; ++i) out[i] = -z[i];
    kernels_.exp(out.data(), out.data(), n);
    for (auto& each : out) each = 1.0f / (1.0f + each);
    return out;
  }

  Rows recurrence(const Rows& n, size_t layer, size_t place) {
    const float* in = value(at_ + "n", t_);
    const Rows p = mapped("pdr.p_proj", place, in, n), v = mapped("pdr.v_proj", place, in, n);
    Rows k = mapped("pdr.k_proj", place, in, n), q = mapped("pdr.q_proj", place, in, n);
    const float *gamma = value(at_ + "pdr.gamma", t_), *value_v = value(at_ + "pdr.v", t_);
    const float *unit_k = value(at_ + "pdr.k.unit", t_), *unit_q = value(at_ + "pdr.q.unit", t_);
    const size_t E = v.empty() ? 0 : v[0].size(), r = k.empty() ? 0 : k[0].size();
    auto& [S, dS] = states_[layer];
    if (S.empty()) {
      S.assign(r * E, 0.0f);
      dS.assign(directions_.size(), Row(r * E, 0.0f));
    }
    const Row sigma = sigmoids(value(at_ + "pdr.logits", t_), E);
    Row u(E), next(r * E);
    for (size_t a = 0; a < E; ++a) u[a] = form_.convex ? (1.0f - gamma[a]) * value_v[a] : value_v[a];
    for (size_t b = 0; b < r; ++b) {
      for (size_t a = 0; a < E; ++a) next[b * E + a] = std::fma(gamma[a], S[b * E + a], unit_k[b] * u[a]);
    }
    Rows out;
    const auto& g = tangents_.constant("pdr.out_norm.weight", place);
    for (size_t kappa = 0; kappa < directions_.size(); ++kappa) {
      k[kappa] = norm_tangent(value(at_ + "pdr.k", t_), k[kappa], nullptr, tangent_eps, 1);
      q[kappa] = norm_tangent(value(at_ + "pdr.q", t_), q[kappa], nullptr, tangent_eps, 1);
      Row d_gamma(E), d_u(E), d_o(E, 0.0f);
      for (size_t a = 0; a < E; ++a) {
        d_gamma[a] = (form_.gamma_max - form_.gamma_min) * sigma[a] * (1.0f - sigma[a]) * p[kappa][a];
        d_u[a] = form_.convex ? (1.0f - gamma[a]) * v[kappa][a] - d_gamma[a] * value_v[a] : v[kappa][a];
      }
      for (size_t b = 0; b < r; ++b) {
        float* row = dS[kappa].data() + b * E;
        for (size_t a = 0; a < E; ++a) {
          row[a] = d_gamma[a] * S[b * E + a] + gamma[a] * row[a] + k[kappa][b] * u[a] + unit_k[b] * d_u[a];
          d_o[a] += row[a] * unit_q[b] + next[b * E + a] * q[kappa][b];
        }
      }
      out.push_back(
          norm_tangent(value(at_ + "pdr.read", t_), d_o, g.numbers.data(), form_.eps, static_cast<double>(E)));
    }
    S = std::move(next);
    return mapped("pdr.o_proj", place, value(at_ + "pdr.normed", t_), out);
  }

  Rows attention(const Rows& n, size_t layer, size_t place) {
    const float* in = value(at_ + "n", t_);
    const Rows q = turned(mapped("attn.q_proj", place, in, n)), k = turned(mapped("attn.k_proj", place, in, n));
    const Rows v = mapped("attn.v_proj", place, in, n);
    auto& [K, V] = keys_[layer];
    K.push_back(k);
    V.push_back(v);
    const auto& own = attention_of(model_.graph);
    const size_t width = q[0].size(), d = width / own.groups;
    const size_t first = t_ + 1 > own.window ? t_ + 1 - own.window : 0;
    Rows out(directions_.size(), Row(width, 0.0f));
    for (size_t head = 0; head < own.groups; ++head) {
      const size_t at = head / own.shared * d;
      const float* of_q = value(at_ + "attn.q.turned", t_) + head * d;
      Row weights;
      for (size_t p = first; p <= t_; ++p)
        weights.push_back(own.scale * kernels_.dot(of_q, value(at_ + "attn.k.turned", p) + at, d));
      kernels_.softmax(weights.data(), 1, weights.data(), weights.size());
      for (size_t kappa = 0; kappa < directions_.size(); ++kappa) {
        Row z;
        double mean = 0;
        for (size_t p = first; p <= t_; ++p) {
          const float* key = value(at_ + "attn.k.turned", p) + at;
          z.push_back(own.scale * (kernels_.dot(K[p][kappa].data() + at, of_q, d) +
                                   kernels_.dot(key, q[kappa].data() + head * d, d)));
          mean += static_cast<double>(weights[p - first]) * z.back();
        }
        for (size_t p = first; p <= t_; ++p) {
          const float a = weights[p - first], moved = a * static_cast<float>(z[p - first] - mean);
          const float *of_v = value(at_ + "attn.v", p) + at, *along = V[p][kappa].data() + at;
          for (size_t i = 0; i < d; ++i) out[kappa][head * d + i] += moved * of_v[i] + a * along[i];
        }
      }
    }
    return mapped("attn.o_proj", place, value(at_ + "attn.y", t_), out);
  }

  // Rotary positions are linear.
  Rows turned(Rows rows) const {
    const auto& own = attention_of(model_.graph);
    for (auto& row : rows) {
      const size_t heads = row.size() / own.channels;
      Row out(row.size());
      kernels_.rope(row.data(), out.data(), heads, own.channels, own.increments->size(), own.increments->data(),
                    static_cast<uint32_t>(t_));
      row = std::move(out);
    }
    return rows;
  }

  // silu(a) ⊙ b.
  Row gated(const float* a, const float* b, const Row& d_a, const Row& d_b) const {
    const Row sigma = sigmoids(a, d_a.size());
    Row out(d_a.size());
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = (sigma[i] + a[i] * sigma[i] * (1.0f - sigma[i])) * d_a[i] * b[i] + a[i] * sigma[i] * d_b[i];
    return out;
  }

  Rows mlp(const Rows& u, size_t place) const {
    Rows out;
    for (const auto& row : u) {
      const Row a = times(tangents_.constant("mlp.gate_proj", place), row);
      const Row b = times(tangents_.constant("mlp.up_proj", place), row);
      const Row h = gated(value(at_ + "mlp.gate", t_), value(at_ + "mlp.up", t_), a, b);
      out.push_back(times(tangents_.constant("mlp.down_proj", place), h));
    }
    return out;
  }

  // The choice and the weights of the chosen count as constants.
  Result<Rows> experts(const Rows& u, size_t place) {
    const auto layer = layers_of(model_.graph)[place];
    auto& store = *model_.experts;
    const auto& shape = store.index(layer)->shape;
    const auto& ids = values_.ids.at(at_ + "experts");
    const float *x = value(at_ + "u", t_), *weights = value(at_ + "route.weights", t_);
    Rows out(u.size(), Row(shape.channels, 0.0f));
    for (size_t rank = 0; rank < form_.top_k; ++rank) {
      const auto expert = static_cast<uint32_t>(ids[t_ * form_.top_k + rank]);
      auto loan = store.take(layer, {&expert, 1});
      if (!loan) return loan.error();
      const auto matrix = [&](size_t which) { return experts::matrix_of(shape, which, loan->bytes().data()); };
      const auto gate = matrix(0), up = matrix(1), down = matrix(2);
      Row a(shape.inner), b(shape.inner), d_a(shape.inner), d_b(shape.inner), y(shape.channels);
      experts::product(gate, x, a.data());
      experts::product(up, x, b.data());
      for (size_t kappa = 0; kappa < u.size(); ++kappa) {
        experts::straight(gate, u[kappa].data(), d_a.data());
        experts::straight(up, u[kappa].data(), d_b.data());
        const Row h = gated(a.data(), b.data(), d_a, d_b);
        experts::straight(down, h.data(), y.data());
        for (size_t i = 0; i < y.size(); ++i) out[kappa][i] += weights[rank] * y[i];
      }
    }
    return out;
  }

  Rows projected(Rows y) const {
    const auto found = tangents_.names_.find("spp.normals");
    if (found == tangents_.names_.end()) return y;
    const auto &normals = tangents_.constant("spp.normals", 0), &offsets = tangents_.constant("spp.offsets", 0);
    const Node& node = project_of(model_.graph);
    const size_t h = offsets.numbers.size(), n = y.empty() ? 0 : y[0].size();
    Row at(value("normed", t_), value("normed", t_) + n), c(h, 0.0f);
    Rows d_c(y.size(), Row(h, 0.0f));
    Row inverses(h);
    for (size_t j = 0; j < h; ++j) {
      const float* normal = normals.numbers.data() + j * n;
      inverses[j] = 1.0f / kernels_.dot(normal, normal, n);
    }
    bool changed = true;
    for (int64_t sweep = 0; sweep < node.number && changed; ++sweep) {
      changed = false;
      for (size_t j = 0; j < h; ++j) {
        const float* normal = normals.numbers.data() + j * n;
        const float s = (kernels_.dot(normal, at.data(), n) - (offsets.numbers[j] + node.scale)) * inverses[j];
        const float next = std::max(c[j] + s, 0.0f);
        for (size_t kappa = 0; kappa < y.size(); ++kappa) {
          const float d_next =
              c[j] + s > 0 ? d_c[kappa][j] + kernels_.dot(normal, y[kappa].data(), n) * inverses[j] : 0.0f;
          const float by = d_next - d_c[kappa][j];
          for (size_t i = 0; by != 0 && i < n; ++i) y[kappa][i] -= by * normal[i];
          d_c[kappa][j] = d_next;
        }
        if (next == c[j]) continue;
        for (size_t i = 0; i < n; ++i) at[i] = std::fma(c[j] - next, normal[i], at[i]);
        c[j] = next;
        changed = true;
      }
    }
    return y;
  }

  // What nodes of block "step" say.
  struct Attention {
    size_t groups = 1, shared = 1, channels = 1, window = 0;
    float scale = 1;
    const std::vector<uint32_t>* increments = nullptr;
  };
  static const Node* find(const Graph& graph, Op op) {
    for (const auto& node : graph.blocks[graph.language->step].nodes) {
      if (node.op == op) return &node;
    }
    return nullptr;
  }
  static Attention attention_of(const Graph& graph) {
    const Node &attend = *find(graph, Op::cache_attend), &rope = *find(graph, Op::rope);
    const size_t width = graph.width(attend.out);
    const auto& ring = graph.declarations[attend.in[3].name].axes[1];
    return {attend.groups, attend.shared,   width / attend.groups, static_cast<size_t>(ring.extent),
            attend.scale,  &rope.increments};
  }
  static const Node& project_of(const Graph& graph) { return *find(graph, Op::project); }
  static std::vector<uint32_t> layers_of(const Graph& graph) {
    std::vector<uint32_t> out;
    for (uint32_t layer = 0; layer < graph.perspective->layers.size(); ++layer) {
      if (graph.perspective->layers[layer].experts) out.push_back(layer);
    }
    return out;
  }

  Tangents& tangents_;
  const Model& model_;
  const Perspective& form_;
  const HostKernels& kernels_;
  const Values& values_;
  const Adapters& adapters_;
  const std::vector<float>& theta_;
  const std::vector<std::vector<float>>& directions_;
  struct State {
    Row S;
    Rows tangents;
  };
  struct Keys {
    std::vector<Rows> K, V;  // [tokens][directions]
  };
  std::vector<State> states_;  // [layers]
  std::vector<Keys> keys_;     // [layers]
  size_t t_ = 0;
  std::string at_;
};

Tangents::Tangents(std::shared_ptr<const Model> model) : model_(std::move(model)) {
  for (Name name = 0; name < model_->graph.declarations.size(); ++name)
    names_.emplace(model_->graph.declarations[name].name, name);
}

const Tangents::Matrix& Tangents::constant(const std::string& name, size_t member) {
  const Name declaration = names_.at(name);
  const auto found = constants_.find({declaration, member});
  if (found != constants_.end()) return found->second;
  const auto& held = model_->constants[model_->constant_index.of(declaration, member)];
  std::vector<std::byte> bytes(held.bytes.size());
  const Piece piece{held.bytes.data(), held.bytes.size()};
  model_->device->download(bytes.data(), {&piece, 1});
  Matrix out{held.outputs, held.inputs, std::vector<float>(numbers_of(held))};
  widen(held, bytes, out.numbers.data());
  return constants_.emplace(std::pair{declaration, member}, std::move(out)).first->second;
}

void Tangents::collect(Executor& executor, size_t rows, Values& to) const {
  const auto& graph = model_->graph;
  const auto& program = model_->programs[graph.language->step];
  for (const auto& [name, declaration] : names_) {
    const auto& d = graph.declarations[declaration];
    if (d.kind != Kind::volatile_ || program.last_value[declaration] == no_name) continue;
    const std::byte* from = executor.fetch(graph.language->step, program.last_value[declaration], rows);
    const size_t count = rows * static_cast<size_t>(d.elements());
    if (d.type == Type::f32) {
      auto& all = to.rows[name];
      all.insert(all.end(), reinterpret_cast<const float*>(from), reinterpret_cast<const float*>(from) + count);
    } else if (d.type == Type::i32) {
      auto& all = to.ids[name];
      all.insert(all.end(), reinterpret_cast<const int32_t*>(from), reinterpret_cast<const int32_t*>(from) + count);
    }
  }
}

Result<std::vector<float>> Tangents::slopes(const Values& values, std::span<const int32_t> ids,
                                            const std::vector<float>& theta,
                                            const std::vector<std::vector<float>>& directions) {
  const Adapters adapters(*model_);
  return Pass(*this, values, adapters, theta, directions).run(ids);
}

}  // namespace continuo
