// An ngram memory (docs/ngram.md): what followed the contexts of a text votes for the next token, and weights of the
// votes learn from each token that is read. graph/ngram.h has the tables; text.h
// and slots.h read the text and count tokens in slots, both in whole numbers. What is the same for many numbers at
// once, logits and scales, is in the kernels of each device.
//
// With the votes i of context c(i) for token b(i), their confidences j(i), the rows s of the scales, and a base (0
// without a network):
//
//   m[c]  = Σ_s scale[row s][c]                                       in order of s; of contexts, base and dense tables
//   a     = max(a' + γ (m[base] − 1), 0),   d_k = 1 + γ (m[dense k] − 1)
//   v[b]  = a base[b] + Σ_k d_k dense_k[row][b] + Σ_i m[c(i)] w[j(i)]    by fma in order of i, then the match's
//   p     = e^(v − max v) / Σ e^(v − max v)
//
// and when the token y is known, e_i = (b(i) = y) − p[b(i)]:
//
//   g_j   = e_i m[c]
//   G_j   ← δ G_j + g_j²,   w_j ← w_j + η g_j / √(G_j + ε)            Adagrad (Duchi et al. 2011), with a decay
//   g_c   = Σ_i e_i w[j(i)]                                           with w before its step
//   g_base = γ (base[y] − Σ_b p[b] base[b]),   g_k = γ (dense_k[row][y] − Σ_b p[b] dense_k[row][b])
//   G_c   ← δ G_c + g_c²,   scale[row s][c] ← scale[row s][c] + η' g_c / √(G_c + ε')     for each s
//   dense[row][b] ← dense[row][b] + ρ ((b = y) − p[b])
//
// Last, the likeliest token's logit is corrected by what its probability was worth in such a context before.
//
// Of subwords, dense logits and their gradients are those of the classes of tokens, and a base is always there.
//
// Compiled once for every instruction set and once for CUDA. Before including it, define what math.h asks for, and
// include math.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/jobs.h"
#include "backends/ngram/slots.h"
#include "backends/ngram/text.h"

namespace continuo::CONTINUO_ISA {

constexpr float ngram_weight_step = 0.15f, ngram_scale_step = 0.8f, ngram_match_step = 0.4f;
constexpr float ngram_weight_floor = 3.0f, ngram_scale_floor = 12.0f, ngram_match_floor = 1.0f;
constexpr float ngram_base_step = 0.1f, ngram_base_floor = 4.0f;
constexpr float ngram_decay = 0.99998f;
// γ: how much a scale moves the weight of the base, or of dense logits.
constexpr float ngram_gain = 0.2f;
CONTINUO_INLINE constexpr float ngram_dense_step(size_t k) { return k == 1 || k == 2 ? 0.2f : 0.1f; }
constexpr float ngram_correction_step = 0.16f;

// A memory of bytes. Of: where the parts of its mixture lie.
template <class Of> struct NgramBytesOf {
  using Slot = ngram::Slot;
  using At = Of;
  ngram::Reader reader;
  Slot* slots;
  size_t count;
  float* mixture;

  CONTINUO_INLINE explicit NgramBytesOf(const NgramRun& run)
      : reader(run.text, ngram::ring_slots(run.kind, run.slots)),
        slots(reinterpret_cast<Slot*>(run.table)),
        count(run.slots),
        mixture(run.mixture) {}
  CONTINUO_INLINE ngram::Text& text() const { return reader.text; }
  CONTINUO_INLINE bool has_read() const { return text().position > 0; }
  CONTINUO_INLINE uint32_t vote(size_t i) const { return text().token[i]; }
  CONTINUO_INLINE void set_vote(size_t i, uint32_t token) const { text().token[i] = static_cast<uint8_t>(token); }
  // The probability that the last prediction gave the token of a vote, and that of the match.
  CONTINUO_INLINE float share(size_t i) const { return mixture[At::shares + vote(i)]; }
  CONTINUO_INLINE float match_share() const { return mixture[At::shares + (text().match_token & 0xff)]; }
  CONTINUO_INLINE uint32_t match_token() const { return text().match_token & 0xff; }
  // The token that follows the match, and its first byte.
  CONTINUO_INLINE uint32_t matched() const { return text().match_length > 0 ? reader.at(text().match) : 0; }
  CONTINUO_INLINE uint32_t first_byte(uint32_t token) const { return token; }
  CONTINUO_INLINE void keys(uint64_t (&key)[ngram::contexts]) const { reader.keys(key); }
};

using NgramBytes = NgramBytesOf<ngram::mixture>;
using NgramSmall = NgramBytesOf<ngram::small_mixture>;

// A memory of subwords.
struct NgramSubwords {
  using Slot = ngram::SubwordSlot;
  using At = ngram::subword_mixture;
  static constexpr size_t match_vote = ngram::most_votes;
  ngram::SubwordReader reader;
  Slot* slots;
  size_t count;
  float* mixture;

  CONTINUO_INLINE explicit NgramSubwords(const NgramRun& run)
      : reader(run.text, run.slots, *run.texts),
        slots(reinterpret_cast<Slot*>(run.table)),
        count(run.slots),
        mixture(run.mixture) {}
  CONTINUO_INLINE ngram::Text& text() const { return reader.parts.text; }
  CONTINUO_INLINE bool has_read() const { return reader.more.position > 0; }
  // A state may be made up.
  CONTINUO_INLINE uint32_t known(uint32_t token) const { return token < reader.texts.count ? token : 0; }
  CONTINUO_INLINE uint32_t vote(size_t i) const { return known(reader.more.token[i]); }
  CONTINUO_INLINE void set_vote(size_t i, uint32_t token) const { reader.more.token[i] = token; }
  CONTINUO_INLINE float share(size_t i) const { return mixture[At::shares + ngram::token_classes + i]; }
  CONTINUO_INLINE float match_share() const { return share(match_vote); }
  CONTINUO_INLINE uint32_t match_token() const { return known(text().match_token); }
  CONTINUO_INLINE uint32_t matched() const { return known(reader.matched()); }
  CONTINUO_INLINE uint32_t first_byte(uint32_t token) const { return reader.first_byte(token); }
  CONTINUO_INLINE void keys(uint64_t (&key)[ngram::contexts]) const { reader.keys(key); }
};

// A row of a state that may be made up.
CONTINUO_INLINE float* ngram_row(float* rows, int32_t row, size_t count, size_t columns) {
  return rows + (static_cast<uint32_t>(row) < count ? static_cast<size_t>(row) : 0) * columns;
}

CONTINUO_INLINE float ngram_adagrad(float& squares, float g, float step, float floor) {
  squares = fma(squares, ngram_decay, g * g);
  return step * g / sqrt(squares + floor);
}

// Weights of votes and of the match learn from the token that followed the last prediction. Gives the gradients of the
// scales, [lanes].
template <class State> CONTINUO_INLINE void ngram_learn_votes(const State& state, uint32_t y, float* gradient) {
  using at = typename State::At;
  auto& text = state.text();
  float* const mixture = state.mixture;
  const float* const scale = mixture + at::scale;
  for (size_t lane = 0; lane < at::lanes; ++lane) gradient[lane] = 0.0f;
  const size_t votes = text.votes < at::votes ? text.votes : at::votes;
  for (size_t i = 0; i < votes; ++i) {
    const size_t j = text.weight[i] < at::votes * ngram::confidences ? text.weight[i] : 0;
    const size_t context = j / (ngram::confidences * ngram::ranks);
    float& w = mixture[at::weights + j];
    const float e = (state.vote(i) == y ? 1.0f : 0.0f) - state.share(i);
    gradient[context] = fma(e, w, gradient[context]);
    w += ngram_adagrad(mixture[at::weight_squares + j], e * scale[context], ngram_weight_step, ngram_weight_floor);
  }
  if (text.match_weight >= 0) {
    const size_t length = static_cast<size_t>(text.match_weight) % ngram::match_lengths;
    mixture[at::match + length] += ngram_adagrad(mixture[at::match_squares + length],
                                                 (state.match_token() == y ? 1.0f : 0.0f) - state.match_share(),
                                                 ngram_match_step, ngram_match_floor);
  }
}

// `mean`: of the base's logits, by the probabilities of the last prediction. Adds the gradient of its scale.
template <class State>
CONTINUO_INLINE void ngram_learn_base(const State& state, float logit, float mean, float* gradient) {
  gradient[State::At::base_lane] = ngram_gain * (logit - mean);
  float* const base_weight = state.mixture + State::At::base_weight;
  const float weight = base_weight[0] + ngram_adagrad(base_weight[1], logit - mean, ngram_base_step, ngram_base_floor);
  base_weight[0] = weight < 0.0f ? 0.0f : weight;
}

// What the base and the dense logits count, by the scales of the next prediction. `k`: 0, the base; then the tables.
template <class State> CONTINUO_INLINE float ngram_gain_of(const State& state, size_t k, float scale) {
  const float gain = fma(ngram_gain, scale - 1.0f, k == 0 ? state.mixture[State::At::base_weight] : 1.0f);
  return k == 0 && gain < 0.0f ? 0.0f : gain;
}

// The correction learns: the error of the corrected probability, shared by the two places around its logit. And slots
// count the token.
template <class State> CONTINUO_INLINE void ngram_learn_counts(const State& state, uint32_t y) {
  using at = typename State::At;
  auto& text = state.text();
  float* const mixture = state.mixture;
  const float error = (static_cast<uint32_t>(text.likeliest) == y ? 1.0f : 0.0f) - mixture[at::corrected];
  const float along = mixture[at::corrected + 1];
  const size_t place = along >= 0.0f && along < ngram::correction_places - 1 ? static_cast<size_t>(along) : 0;
  const float part = along - static_cast<float>(place);
  for (size_t k = 0; k < ngram::corrections; ++k) {
    float* row = ngram_row(mixture + at::correction, text.corrected[k], ngram::corrections * at::Form::correction_rows,
                           ngram::correction_places);
    row[place] = fma(ngram_correction_step * error, 1.0f - part, row[place]);
    row[place + 1] = fma(ngram_correction_step * error, part, row[place + 1]);
  }
  for (size_t c = 0; c < at::Form::contexts; ++c) {
    if (static_cast<uint32_t>(text.slot[c]) < state.count) count_token(state.slots[text.slot[c]], y);
  }
}

CONTINUO_INLINE uint32_t ngram_count_class(uint32_t count) {
  return count < 4 ? count : count < 5 ? 3 : count < 8 ? 4 : count < 20 ? 5 : count < 80 ? 6 : 7;
}

// Which weights, scales and logits the next prediction is made of. `learns`: a context that is new gets a slot.
template <class State> CONTINUO_INLINE void ngram_ask(const State& state, const uint64_t (&keys)[ngram::contexts],
                                                      const ngram::Ring<uint8_t>& bytes, bool learns) {
  using at = typename State::At;
  using Form = typename at::Form;
  auto& text = state.text();
  uint32_t votes = 0, order = 0;
  uint32_t sure[ngram::contexts] = {};
  for (size_t i = 0; i < Form::contexts; ++i) {
    const size_t c = Form::context(i);
    text.slot[i] = keys[c] == 0 ? -1
                   : learns     ? find_slot(state.slots, state.count, keys[c])
                                : known_slot(state.slots, state.count, keys[c]);
    if (text.slot[i] < 0) continue;
    const auto& slot = state.slots[text.slot[i]];
    const uint32_t counts[ngram::ranks] = {slot.count_at(0), slot.count_at(1), slot.count_at(2)};
    const uint32_t all = counts[0] + counts[1] + counts[2], others = all - counts[0];
    if (counts[0] > 0) sure[c] = others == 0 ? (counts[0] > 3 ? 3 : 2) : counts[0] > 2 * others ? 1 : 0;
    for (uint32_t rank = 0; rank < ngram::ranks && counts[rank] > 0; ++rank, ++votes) {
      const uint32_t confidence =
          ngram_count_class(counts[rank]) * ngram::count_classes + ngram_count_class(all - counts[rank]);
      text.weight[votes] = static_cast<uint16_t>((i * ngram::ranks + rank) * ngram::confidences + confidence * 2 +
                                                 ((slot.check & 3) == rank));
      state.set_vote(votes, slot.token_at(rank));
    }
  }
  // Of the last two, three and four bytes; later contexts may have taken a slot meanwhile.
  for (size_t i = 0; i < Form::contexts && Form::context(i) < 3; ++i) {
    const size_t c = Form::context(i);
    const auto* slot = text.slot[i] < 0 ? nullptr : state.slots + text.slot[i];
    if (sure[c] > 0 || (slot && slot->count_at(0) > slot->count_at(1) + slot->count_at(2)))
      order = static_cast<uint32_t>(c) + 1;
  }
  text.votes = votes;
  const uint32_t length = text.match_length, predicted = state.matched();
  const uint32_t of = ngram::class_of(text.position > 0 ? bytes.back(0) : 0),
                 before = ngram::class_of(text.position > 1 ? bytes.back(1) : 0);
  const uint32_t quarter = (text.position - text.line_start) / 4, along = quarter < 15 ? quarter : 15;
  const uint32_t fields = text.fields < Form::fields - 1 ? text.fields : static_cast<uint32_t>(Form::fields - 1);
  const uint32_t eighth = length / 8 < 3 ? length / 8 : 3;
  const auto within = [](uint64_t hash, size_t selector) {
    return static_cast<uint32_t>(hash & (Form::rows(selector) - 1));
  };
  const uint32_t picked[ngram::selectors] = {
      order * 5 + (length == 0   ? 0
                   : length < 8  ? 1
                   : length < 16 ? 2
                   : length < 32 ? 3
                                 : 4),
      Form::small ? of : of * 16 + before,
      fields * 2 + (text.field == 0),
      Form::small ? sure[5] * 4 + sure[8] : sure[5] * 64 + sure[4] * 16 + sure[3] * 4 + sure[7],
      within(ngram::mix(text.masked * 3), 4),
      within(ngram::mix(text.shape), 5),
      length == 0 ? of : 16 + eighth + (Form::small ? 0 : ngram::class_of(state.first_byte(predicted)) * 4),
      Form::small ? along : of * 16 + along};
  for (size_t s = 0; s < ngram::selectors; ++s)
    text.row[s] = static_cast<int32_t>(ngram::first_row<Form>(s) + picked[s]);
  const uint32_t rows[ngram::dense_tables] = {
      0, of, Form::small ? ngram::coarse(before) : ngram::coarse(of) * 8 + ngram::coarse(before),
      static_cast<uint32_t>(text.fields & (Form::dense_rows(3) - 1))};
  for (size_t k = 0; k < ngram::dense_tables; ++k)
    text.dense[k] = static_cast<int32_t>(ngram::dense_first<Form>(k) + rows[k]);
  text.match_weight = length == 0 ? -1
                                  : static_cast<int32_t>(length < 16   ? length
                                                         : length < 32 ? 16 + (length - 16) / 4
                                                                       : 20 + (length > 64) + (length > 200));
  text.match_token = predicted;
}

// Adds what votes and the match say to the logits.
template <class State> CONTINUO_INLINE void ngram_add_votes(const State& state, float* y) {
  using at = typename State::At;
  const auto& text = state.text();
  const float* const mixture = state.mixture;
  for (uint32_t i = 0; i < text.votes; ++i) {
    const size_t j = text.weight[i];
    float& logit = y[state.vote(i)];
    logit = fma(mixture[at::scale + j / (ngram::confidences * ngram::ranks)], mixture[at::weights + j], logit);
  }
  if (text.match_weight >= 0) y[state.match_token()] += mixture[at::match + static_cast<size_t>(text.match_weight)];
}

// Corrects the logit of the likeliest token, whose probability is this.
template <class State> CONTINUO_INLINE void ngram_correct(const State& state, float* y, uint32_t likeliest,
                                                          float probability, uint64_t in_context) {
  using at = typename State::At;
  auto& text = state.text();
  float* const mixture = state.mixture;
  const float share = probability < 1e-6f ? 1e-6f : probability > 1.0f - 1e-6f ? 1.0f - 1e-6f : probability;
  const float logit = log(share / (1.0f - share));
  // 0 also where it is no number.
  const float f = logit + 8.0f, along = f > 0.0f ? (f > 15.99f ? 15.99f : f) : 0.0f;
  const auto place = static_cast<size_t>(along);
  const float part = along - static_cast<float>(place);
  const uint64_t contexts[ngram::corrections] = {text.masked * 7 + text.field, in_context};
  float correction = 0.0f;
  for (size_t k = 0; k < ngram::corrections; ++k) {
    const auto row =
        k * at::Form::correction_rows + static_cast<size_t>(ngram::mix(contexts[k]) & (at::Form::correction_rows - 1));
    text.corrected[k] = static_cast<int32_t>(row);
    const float* at_row = mixture + at::correction + row * ngram::correction_places;
    correction += fma(part, at_row[place + 1] - at_row[place], at_row[place]);
  }
  y[likeliest] += correction;
  text.likeliest = static_cast<int32_t>(likeliest);
  mixture[at::corrected] = sigmoid(logit + correction);
  mixture[at::corrected + 1] = along;
}

// The first number i of a mixture: what was learned before (null: nothing), of subwords the weights alone, and of the
// others what leaves votes as they are.
template <class At> CONTINUO_INLINE float ngram_first_of(size_t i, const float* learned) {
  const size_t scale = i - At::scales, match = i - At::match, weight = i - At::weights, logit = i - At::dense;
  if (learned && weight < At::learned_weights) return learned[weight];
  // nvcc refuses a comparison with no logits.
  if constexpr (At::learned_logits > 0) {
    if (learned && logit < At::learned_logits) return learned[At::learned_weights + logit];
  }
  if (scale < At::scale_rows * At::lanes) return 1.0f / ngram::selectors;
  if (match < ngram::match_lengths) return match == 0 ? 0.0f : 0.3f + 0.1f * static_cast<float>(match);
  if (i == At::base_weight) return 1.0f;
  if (weight >= At::learned_weights) return 0.0f;
  const size_t own = weight % ngram::confidences / (2 * ngram::count_classes),
               others = weight / 2 % ngram::count_classes;
  const bool most_frequent = weight / ngram::confidences % ngram::ranks == 0;
  return most_frequent && others < own ? 0.04f * static_cast<float>(own - others) : 0.0f;
}

}  // namespace continuo::CONTINUO_ISA
