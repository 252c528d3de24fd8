// An ngram memory (docs/ngram.md): what followed the contexts of a text votes for the next token, and weights of the
// votes learn from each token that is read. graph/ngram.h has the tables; backends/ngram/
// reads the text and counts tokens in slots, both in whole numbers.
//
// With the votes i of context c(i) for token b(i), their confidences j(i), the rows s of the scales, and a base (0
// without a network):
//
//   m[c]  = Σ_s scale[row s][c]                                       in order of s
//   v[b]  = a base[b] + Σ dense[row][b] + Σ_i m[c(i)] w[j(i)]         by fma in order of i, then the match's
//   p     = e^(v − max v) / Σ e^(v − max v)
//
// and when the token y is known, e_i = (b(i) = y) − p[b(i)]:
//
//   g_j   = e_i m[c]
//   G_j   ← δ G_j + g_j²,   w_j ← w_j + η g_j / √(G_j + ε)            Adagrad (Duchi et al. 2011), with a decay
//   g_c   = Σ_i e_i w[j(i)]                                           with w before its step
//   G_c   ← δ G_c + g_c²,   scale[row s][c] ← scale[row s][c] + η' g_c / √(G_c + ε')     for each s
//   dense[row][b] ← dense[row][b] + ρ ((b = y) − p[b])
//
// Last, the likeliest token's logit is corrected by what its probability was worth in such a context before.
#pragma once

#include "backends/cpu/kernels/norm.h"
#include "backends/ngram/slots.h"
#include "backends/ngram/text.h"

namespace continuo::CONTINUO_ISA {

struct NgramState {
  ngram::Reader reader;
  ngram::Slot* slots;
  size_t count;
  float* mixture;
};

constexpr float ngram_weight_step = 0.15f, ngram_scale_step = 0.8f, ngram_match_step = 0.4f;
constexpr float ngram_weight_floor = 3.0f, ngram_scale_floor = 12.0f, ngram_match_floor = 1.0f;
constexpr float ngram_base_step = 0.1f, ngram_base_floor = 4.0f;
constexpr float ngram_decay = 0.99998f;
constexpr float ngram_dense_steps[4] = {0.1f, 0.2f, 0.2f, 0.1f};
constexpr float ngram_correction_step = 0.16f;

// A row of a state that may be made up.
CONTINUO_INLINE float* ngram_row(float* rows, int32_t row, size_t count, size_t columns) {
  return rows + (static_cast<uint32_t>(row) < count ? static_cast<size_t>(row) : 0) * columns;
}

CONTINUO_INLINE float ngram_adagrad(float& squares, float g, float step, float floor) {
  squares = fma(squares, ngram_decay, g * g);
  return step * g / sqrt(squares + floor);
}

// Learns from the token that followed the last prediction.
CONTINUO_INLINE void ngram_learn(NgramState& state, uint32_t y, bool with_base) {
  namespace at = ngram::mixture;
  auto& text = state.reader.text;
  float* const mixture = state.mixture;
  const float* const p = mixture + at::shares;
  const float* const scale = mixture + at::scale;
  float gradient[ngram::lanes] = {};
  const size_t votes = text.votes < ngram::most_votes ? text.votes : ngram::most_votes;
  for (size_t i = 0; i < votes; ++i) {
    const size_t j = text.weight[i] < ngram::most_votes * ngram::confidences ? text.weight[i] : 0;
    const size_t context = j / (ngram::confidences * ngram::ranks);
    float& w = mixture[at::weights + j];
    const float e = (text.token[i] == y ? 1.0f : 0.0f) - p[text.token[i]];
    gradient[context] = fma(e, w, gradient[context]);
    w += ngram_adagrad(mixture[at::weight_squares + j], e * scale[context], ngram_weight_step, ngram_weight_floor);
  }
  float* rows[ngram::selectors];
  for (size_t s = 0; s < ngram::selectors; ++s)
    rows[s] = ngram_row(mixture + at::scales, text.row[s], ngram::scale_rows, ngram::lanes);
  for (size_t lane = 0; lane < ngram::lanes; lane += width) {
    const Vec g = load<Vec>(gradient + lane);
    const Vec squares = fma(load<Vec>(mixture + at::scale_squares + lane), splat<Vec>(ngram_decay), g * g);
    store(mixture + at::scale_squares + lane, squares);
    const Vec step = splat<Vec>(ngram_scale_step) * g / sqrt(squares + splat<Vec>(ngram_scale_floor));
    for (auto* row : rows) store(row + lane, load<Vec>(row + lane) + step);
  }
  if (text.match_weight >= 0) {
    const size_t length = static_cast<size_t>(text.match_weight) % ngram::match_lengths;
    const uint32_t token = text.match_token & 0xff;
    mixture[at::match + length] +=
        ngram_adagrad(mixture[at::match_squares + length], (token == y ? 1.0f : 0.0f) - p[token], ngram_match_step,
                      ngram_match_floor);
  }
  if (with_base) {
    const float* base = mixture + at::base;
    const float g = base[y] - dot(p, base, ngram::tokens);
    const float weight =
        mixture[at::base_weight] + ngram_adagrad(mixture[at::base_weight + 1], g, ngram_base_step, ngram_base_floor);
    mixture[at::base_weight] = weight < 0.0f ? 0.0f : weight;
  }
  float* dense[4];
  for (size_t k = 0; k < 4; ++k)
    dense[k] = ngram_row(mixture + at::dense, text.dense[k], ngram::dense_rows, ngram::tokens);
  for (size_t b = 0; b < ngram::tokens; b += width) {
    const Vec share = load<Vec>(p + b);
    for (size_t k = 0; k < 4; ++k)
      store(dense[k] + b, fma(splat<Vec>(-ngram_dense_steps[k]), share, load<Vec>(dense[k] + b)));
  }
  for (size_t k = 0; k < 4; ++k) dense[k][y] += ngram_dense_steps[k];
  // The correction: the error of the corrected probability, shared by the two places around its logit.
  const float error = (static_cast<uint32_t>(text.likeliest) == y ? 1.0f : 0.0f) - mixture[at::corrected];
  const float along = mixture[at::corrected + 1];
  size_t place = along >= 0.0f && along < ngram::correction_places - 1 ? static_cast<size_t>(along) : 0;
  const float part = along - static_cast<float>(place);
  for (size_t k = 0; k < ngram::corrections; ++k) {
    float* row = ngram_row(mixture + at::correction, text.corrected[k], ngram::corrections * ngram::correction_rows,
                           ngram::correction_places);
    row[place] = fma(ngram_correction_step * error, 1.0f - part, row[place]);
    row[place + 1] = fma(ngram_correction_step * error, part, row[place + 1]);
  }
  for (size_t c = 0; c < ngram::contexts; ++c) {
    if (static_cast<uint32_t>(text.slot[c]) < state.count && text.position > 0)
      count_token(state.slots[text.slot[c]], static_cast<uint8_t>(y));
  }
}

CONTINUO_INLINE uint32_t ngram_count_class(uint32_t count) {
  return count < 4 ? count : count < 5 ? 3 : count < 8 ? 4 : count < 20 ? 5 : count < 80 ? 6 : 7;
}

// Which weights, scales and logits the next prediction is made of. `learns`: a context that is new gets a slot.
CONTINUO_INLINE void ngram_ask(NgramState& state, uint32_t c, bool learns) {
  auto& reader = state.reader;
  auto& text = reader.text;
  uint64_t keys[ngram::contexts];
  reader.keys(keys);
  for (size_t i = 0; i < ngram::contexts; ++i)
    __builtin_prefetch(state.slots + ((keys[i] >> 20 & 0xffffffff) * state.count >> 32));
  uint32_t votes = 0;
  uint32_t sure[ngram::contexts];
  for (size_t i = 0; i < ngram::contexts; ++i) {
    text.slot[i] = keys[i] == 0 ? -1
                   : learns     ? find_slot(state.slots, state.count, keys[i])
                                : known_slot(state.slots, state.count, keys[i]);
    sure[i] = 0;
    if (text.slot[i] < 0) continue;
    const auto& slot = state.slots[text.slot[i]];
    const uint32_t all = slot.count[0] + slot.count[1] + slot.count[2], others = all - slot.count[0];
    if (slot.count[0] > 0) sure[i] = others == 0 ? (slot.count[0] > 3 ? 3 : 2) : slot.count[0] > 2 * others ? 1 : 0;
    for (uint32_t rank = 0; rank < ngram::ranks && slot.count[rank] > 0; ++rank, ++votes) {
      const uint32_t confidence =
          ngram_count_class(slot.count[rank]) * ngram::count_classes + ngram_count_class(all - slot.count[rank]);
      text.weight[votes] = static_cast<uint16_t>((i * ngram::ranks + rank) * ngram::confidences + confidence * 2 +
                                                 ((slot.check & 3) == rank));
      text.token[votes] = slot.token[rank];
    }
  }
  text.votes = votes;
  const uint32_t length = text.match_length, previous = text.position > 1 ? reader.back(1) : 0;
  const uint32_t of = ngram::class_of(c), before = ngram::class_of(previous),
                 predicted = length > 0 ? reader.at(text.match) : 0;
  uint32_t order = 0;
  for (uint32_t i = 0; i < 3; ++i) {
    if (sure[i] > 0 ||
        (text.slot[i] >= 0 &&
         state.slots[text.slot[i]].count[0] > state.slots[text.slot[i]].count[1] + state.slots[text.slot[i]].count[2]))
      order = i + 1;
  }
  const uint32_t along = (text.position - text.line_start) / 4, fields = text.fields < 31 ? text.fields : 31;
  const uint32_t picked[ngram::selectors] = {
      order * 5 + (length == 0   ? 0
                   : length < 8  ? 1
                   : length < 16 ? 2
                   : length < 32 ? 3
                                 : 4),
      of * 16 + before,
      fields * 2 + (text.field == 0),
      sure[5] * 64 + sure[4] * 16 + sure[3] * 4 + sure[7],
      static_cast<uint32_t>(ngram::mix(text.masked * 3) & 255),
      static_cast<uint32_t>(ngram::mix(text.shape) & 127),
      length == 0 ? of : 16 + ngram::class_of(predicted) * 4 + (length / 8 < 3 ? length / 8 : 3),
      of * 16 + (along < 15 ? along : 15)};
  for (size_t s = 0; s < ngram::selectors; ++s) text.row[s] = static_cast<int32_t>(ngram::first_row(s) + picked[s]);
  const uint32_t rows[4] = {0, of, ngram::coarse(of) * 8 + ngram::coarse(before), text.fields & 15};
  for (size_t k = 0; k < 4; ++k) text.dense[k] = static_cast<int32_t>(ngram::dense_first[k] + rows[k]);
  text.match_weight = length == 0 ? -1
                                  : static_cast<int32_t>(length < 16   ? length
                                                         : length < 32 ? 16 + (length - 16) / 4
                                                                       : 20 + (length > 64) + (length > 200));
  text.match_token = predicted;
}

// The logits of the next token.
CONTINUO_INLINE void ngram_predict(NgramState& state, uint32_t c, const float* base, float* y) {
  namespace at = ngram::mixture;
  auto& text = state.reader.text;
  float* const mixture = state.mixture;
  float* const scale = mixture + at::scale;
  for (size_t lane = 0; lane < ngram::lanes; lane += width) {
    Vec sum{};
    for (size_t s = 0; s < ngram::selectors; ++s)
      sum += load<Vec>(mixture + at::scales + static_cast<size_t>(text.row[s]) * ngram::lanes + lane);
    store(scale + lane, sum);
  }
  const float* dense[4];
  for (size_t k = 0; k < 4; ++k) dense[k] = mixture + at::dense + static_cast<size_t>(text.dense[k]) * ngram::tokens;
  for (size_t b = 0; b < ngram::tokens; b += width) {
    Vec v = load<Vec>(dense[0] + b) + load<Vec>(dense[1] + b) + load<Vec>(dense[2] + b) + load<Vec>(dense[3] + b);
    if (base) {
      const Vec logits = load<Vec>(base + b);
      store(mixture + at::base + b, logits);
      v = fma(splat<Vec>(mixture[at::base_weight]), logits, v);
    }
    store(y + b, v);
  }
  for (uint32_t i = 0; i < text.votes; ++i) {
    const size_t j = text.weight[i];
    y[text.token[i]] = fma(scale[j / (ngram::confidences * ngram::ranks)], mixture[at::weights + j], y[text.token[i]]);
  }
  if (text.match_weight >= 0) y[text.match_token] += mixture[at::match + static_cast<size_t>(text.match_weight)];
  float* const p = mixture + at::shares;
  const float most = max(y, ngram::tokens);
  for (size_t b = 0; b < ngram::tokens; b += width) store(p + b, exp(load<Vec>(y + b) - splat<Vec>(most)));
  const float inverse = 1.0f / reduce(ngram::tokens, [=](auto acc, size_t i)
                                                         CONTINUO_LAMBDA { return acc + load<decltype(acc)>(p + i); });
  for (size_t b = 0; b < ngram::tokens; b += width) store(p + b, load<Vec>(p + b) * splat<Vec>(inverse));
  // Of equal ones the first.
  uint32_t likeliest = 0;
  while (y[likeliest] != most && likeliest + 1 < ngram::tokens) ++likeliest;
  const float share = p[likeliest] < 1e-6f ? 1e-6f : p[likeliest] > 1.0f - 1e-6f ? 1.0f - 1e-6f : p[likeliest];
  const float logit = log(share / (1.0f - share));
  // 0 also where it is no number.
  const float f = logit + 8.0f, along = f > 0.0f ? (f > 15.99f ? 15.99f : f) : 0.0f;
  const auto place = static_cast<size_t>(along);
  const float part = along - static_cast<float>(place);
  const uint64_t contexts[ngram::corrections] = {text.masked * 7 + text.field, c * 256 + likeliest};
  float correction = 0.0f;
  for (size_t k = 0; k < ngram::corrections; ++k) {
    const auto row =
        k * ngram::correction_rows + static_cast<size_t>(ngram::mix(contexts[k]) & (ngram::correction_rows - 1));
    text.corrected[k] = static_cast<int32_t>(row);
    const float* at_row = mixture + at::correction + row * ngram::correction_places;
    correction += fma(part, at_row[place + 1] - at_row[place], at_row[place]);
  }
  y[likeliest] += correction;
  text.likeliest = static_cast<int32_t>(likeliest);
  mixture[at::corrected] = sigmoid(logit + correction);
  mixture[at::corrected + 1] = along;
}

// Reads the tokens of a run, and gives the logits after each of them.
inline void ngram_read(const NgramRun& run) {
  NgramState state{ngram::Reader(run.text, run.slots), reinterpret_cast<ngram::Slot*>(run.table), run.slots,
                   run.mixture};
  for (size_t row = 0; row < run.rows; ++row) {
    const auto token = static_cast<uint32_t>(run.tokens[row]) & 0xff;
    if (run.learns && state.reader.text.position > 0) ngram_learn(state, token, run.base != nullptr);
    state.reader.read(token);
    ngram_ask(state, token, run.learns);
    ngram_predict(state, token, run.base ? run.base + row * ngram::tokens : nullptr, run.y + row * ngram::tokens);
  }
}

// The first numbers of a mixture: what was learned before (null: nothing), and of the others what leaves votes as they
// are.
inline void ngram_first(float* mixture, const float* learned) {
  namespace at = ngram::mixture;
  for (size_t i = 0; i < at::numbers; ++i) mixture[i] = 0.0f;
  for (size_t i = 0; i < ngram::scale_rows * ngram::lanes; ++i) mixture[at::scales + i] = 1.0f / ngram::selectors;
  for (size_t i = 0; i < ngram::match_lengths; ++i)
    mixture[at::match + i] = i == 0 ? 0.0f : 0.3f + 0.1f * static_cast<float>(i);
  for (size_t context = 0; context < ngram::contexts; ++context) {
    for (size_t own = 1; own < ngram::count_classes; ++own) {
      for (size_t others = 0; others < own; ++others) {
        for (size_t last = 0; last < 2; ++last) {
          const size_t j =
              context * ngram::ranks * ngram::confidences + (own * ngram::count_classes + others) * 2 + last;
          mixture[at::weights + j] = 0.04f * static_cast<float>(own - others);
        }
      }
    }
  }
  mixture[at::base_weight] = 1.0f;
  if (!learned) return;
  for (size_t i = 0; i < ngram::learned_weights; ++i) mixture[at::weights + i] = learned[i];
  for (size_t i = 0; i < ngram::learned_logits; ++i) mixture[at::dense + i] = learned[ngram::learned_weights + i];
}

}  // namespace continuo::CONTINUO_ISA
