// An ngram memory on the CPU (backends/ngram/mixture.h): what is the same for many numbers at once.
#pragma once

#include "backends/cpu/kernels/norm.h"
#include "backends/ngram/mixture.h"

namespace continuo::CONTINUO_ISA {

// Scales learn by their gradients.
template <class State> CONTINUO_INLINE void ngram_learn_scales(const State& state, const float* gradient) {
  using at = typename State::At;
  const auto& text = state.text();
  float* const mixture = state.mixture;
  float* rows[ngram::selectors];
  for (size_t s = 0; s < ngram::selectors; ++s)
    rows[s] = ngram_row(mixture + at::scales, text.row[s], at::scale_rows, at::lanes);
  for (size_t lane = 0; lane < at::lanes; lane += width) {
    const Vec g = load<Vec>(gradient + lane);
    const Vec squares = fma(load<Vec>(mixture + at::scale_squares + lane), splat<Vec>(ngram_decay), g * g);
    store(mixture + at::scale_squares + lane, squares);
    const Vec step = splat<Vec>(ngram_scale_step) * g / sqrt(squares + splat<Vec>(ngram_scale_floor));
    for (auto* row : rows) store(row + lane, load<Vec>(row + lane) + step);
  }
}

// A row of each table of dense logits.
template <class State> CONTINUO_INLINE float* ngram_dense_row(const State& state, size_t k) {
  using at = typename State::At;
  return ngram_row(state.mixture + at::dense, state.text().dense[k], at::dense_rows, at::columns);
}

// Gradients of the scales of dense logits. `column`: the token that followed, or its class.
template <class State> CONTINUO_INLINE void ngram_judge_dense(const State& state, size_t column, float* gradient) {
  using at = typename State::At;
  for (size_t k = 0; k < ngram::dense_tables; ++k) {
    const float* row = ngram_dense_row(state, k);
    gradient[at::dense_lane + k] = ngram_gain * (row[column] - dot(state.mixture + at::shares, row, at::columns));
  }
}

template <class State> CONTINUO_INLINE void ngram_learn_dense(const State& state, size_t column) {
  using at = typename State::At;
  const float* const p = state.mixture + at::shares;
  float* dense[ngram::dense_tables];
  for (size_t k = 0; k < ngram::dense_tables; ++k) dense[k] = ngram_dense_row(state, k);
  for (size_t b = 0; b < at::columns; b += width) {
    const Vec share = load<Vec>(p + b);
    for (size_t k = 0; k < ngram::dense_tables; ++k)
      store(dense[k] + b, fma(splat<Vec>(-ngram_dense_step(k)), share, load<Vec>(dense[k] + b)));
  }
  for (size_t k = 0; k < ngram::dense_tables; ++k) dense[k][column] += ngram_dense_step(k);
}

template <class Of> CONTINUO_INLINE void ngram_learn(const NgramBytesOf<Of>& state, uint32_t y, const float* base) {
  using at = Of;
  float gradient[at::lanes];
  ngram_learn_votes(state, y, gradient);
  if (base) {
    const float* kept = state.mixture + at::base;
    ngram_learn_base(state, kept[y], dot(state.mixture + at::shares, kept, ngram::tokens), gradient);
  }
  ngram_judge_dense(state, y, gradient);
  ngram_learn_scales(state, gradient);
  ngram_learn_dense(state, y);
  ngram_learn_counts(state, y);
}

// `base`: the logits that the last prediction was made of.
CONTINUO_INLINE void ngram_learn(const NgramSubwords& state, uint32_t y, const float* base) {
  using at = NgramSubwords::At;
  float gradient[at::lanes];
  const size_t column = state.reader.texts.classes[y] % ngram::token_classes;
  ngram_learn_votes(state, y, gradient);
  ngram_learn_base(state, base[y], state.mixture[NgramSubwords::At::base_weight + 2], gradient);
  ngram_judge_dense(state, column, gradient);
  ngram_learn_scales(state, gradient);
  ngram_learn_dense(state, column);
  ngram_learn_counts(state, y);
}

// Asks the slots of the contexts, which are fetched meanwhile.
template <class State>
CONTINUO_INLINE void ngram_look(const State& state, const ngram::Ring<uint8_t>& bytes, bool learns) {
  uint64_t keys[ngram::contexts];
  state.keys(keys);
  for (size_t i = 0; i < State::At::Form::contexts; ++i)
    __builtin_prefetch(state.slots + ngram::slot_pair(state.count, keys[State::At::Form::context(i)]));
  ngram_ask(state, keys, bytes, learns);
}

// The scale of each lane, and what follows from those of the base and of dense logits.
template <class State> CONTINUO_INLINE void ngram_scale(const State& state) {
  using at = typename State::At;
  float* const mixture = state.mixture;
  for (size_t lane = 0; lane < at::lanes; lane += width) {
    Vec sum{};
    for (size_t s = 0; s < ngram::selectors; ++s)
      sum += load<Vec>(mixture + at::scales + static_cast<size_t>(state.text().row[s]) * at::lanes + lane);
    store(mixture + at::scale + lane, sum);
  }
  for (size_t k = 0; k <= ngram::dense_tables; ++k)
    mixture[at::gains + k] = ngram_gain_of(state, k, mixture[at::scale + at::base_lane + k]);
}

// The sum of the rows of dense logits for the columns from b on.
template <class State> CONTINUO_INLINE Vec ngram_dense(const State& state, size_t b) {
  const auto row = [&](size_t k) CONTINUO_LAMBDA {
    return splat<Vec>(state.mixture[State::At::gains + 1 + k]) *
           load<Vec>(state.mixture + State::At::dense +
                     static_cast<size_t>(state.text().dense[k]) * State::At::columns + b);
  };
  return row(0) + row(1) + row(2) + row(3);
}

// Of equal ones the first.
CONTINUO_INLINE uint32_t ngram_likeliest(const float* y, size_t tokens, float most) {
  uint32_t likeliest = 0;
  while (y[likeliest] != most && likeliest + 1 < tokens) ++likeliest;
  return likeliest;
}

// The logits of the next token.
template <class Of>
CONTINUO_INLINE void ngram_predict(const NgramBytesOf<Of>& state, uint32_t c, const float* base, float* y) {
  using at = Of;
  float* const mixture = state.mixture;
  ngram_scale(state);
  for (size_t b = 0; b < ngram::tokens; b += width) {
    Vec v = ngram_dense(state, b);
    if (base) {
      const Vec logits = load<Vec>(base + b);
      store(mixture + at::base + b, logits);
      v = fma(splat<Vec>(mixture[at::gains]), logits, v);
    }
    store(y + b, v);
  }
  ngram_add_votes(state, y);
  float* const p = mixture + at::shares;
  const float most = max(y, ngram::tokens);
  for (size_t b = 0; b < ngram::tokens; b += width) store(p + b, exp(load<Vec>(y + b) - splat<Vec>(most)));
  const float inverse = 1.0f / reduce(ngram::tokens, [=](auto acc, size_t i)
                                                         CONTINUO_LAMBDA { return acc + load<decltype(acc)>(p + i); });
  for (size_t b = 0; b < ngram::tokens; b += width) store(p + b, load<Vec>(p + b) * splat<Vec>(inverse));
  const uint32_t likeliest = ngram_likeliest(y, ngram::tokens, most);
  ngram_correct(state, y, likeliest, p[likeliest], c * 256 + likeliest);
}

// The same of subwords, [tokens of the vocabulary]. Powers are added up by class, each class in order of its tokens,
// and then the classes.
CONTINUO_INLINE void ngram_predict(const NgramSubwords& state, uint32_t c, const float* base, float* y) {
  using at = NgramSubwords::At;
  const auto& texts = state.reader.texts;
  float* const mixture = state.mixture;
  ngram_scale(state);
  float dense[ngram::token_classes];
  for (size_t b = 0; b < ngram::token_classes; b += width) store(dense + b, ngram_dense(state, b));
  const float weight = mixture[at::gains];
  for (size_t b = 0; b < texts.count; ++b) y[b] = fma(weight, base[b], dense[texts.classes[b] % ngram::token_classes]);
  ngram_add_votes(state, y);
  const float most = max(y, texts.count);
  float powers[block_terms], sums[ngram::token_classes] = {}, mean = 0.0f;
  for (size_t first = 0; first < texts.count; first += block_terms) {
    const size_t n = texts.count - first < block_terms ? texts.count - first : block_terms;
    map(n, powers, [=](auto v) CONTINUO_LAMBDA { return exp(v - splat<decltype(v)>(most)); }, y + first);
    for (size_t i = 0; i < n; ++i) sums[texts.classes[first + i] % ngram::token_classes] += powers[i];
    mean += dot(powers, base + first, n);
  }
  float total = 0.0f;
  for (const float sum : sums) total += sum;
  const float inverse = 1.0f / total;
  float* const shares = mixture + at::shares;
  for (size_t k = 0; k < ngram::token_classes; ++k) shares[k] = sums[k] * inverse;
  const auto share = [=](uint32_t token) CONTINUO_LAMBDA { return exp(y[token] - most) * inverse; };
  for (size_t i = 0; i < state.text().votes; ++i) shares[ngram::token_classes + i] = share(state.vote(i));
  shares[ngram::token_classes + NgramSubwords::match_vote] = share(state.match_token());
  mixture[at::base_weight + 2] = mean * inverse;
  const uint32_t likeliest = ngram_likeliest(y, texts.count, most);
  ngram_correct(state, y, likeliest, share(likeliest), static_cast<uint64_t>(c) << 24 | likeliest);
}

// Reads the tokens of a run, and gives the logits after each of them.
template <class Of> inline void ngram_read_bytes(const NgramRun& run) {
  const NgramBytesOf<Of> state(run);
  for (size_t row = 0; row < run.rows; ++row) {
    const auto token = static_cast<uint32_t>(run.tokens[row]) & 0xff;
    if (run.learns && state.has_read()) ngram_learn(state, token, run.base);
    state.reader.read(token);
    ngram_look(state, state.reader.bytes(), run.learns);
    ngram_predict(state, token, run.base ? run.base + row * ngram::tokens : nullptr, run.y + row * ngram::tokens);
  }
}

inline void ngram_read_subwords(const NgramRun& run) {
  const auto& texts = *run.texts;
  const NgramSubwords state(run);
  for (size_t row = 0; row < run.rows; ++row) {
    const uint32_t token = state.known(static_cast<uint32_t>(run.tokens[row]));
    const float* base = run.base + row * texts.count;
    if (run.learns && state.has_read()) ngram_learn(state, token, row == 0 ? run.kept : base - texts.count);
    state.reader.read(token);
    const auto bytes = state.reader.parts.bytes();
    ngram_look(state, bytes, run.learns);
    ngram_predict(state, bytes.position > 0 ? bytes.back(0) : 0, base, run.y + row * texts.count);
  }
  if (run.rows > 0) {
    const float* last = run.base + (run.rows - 1) * texts.count;
    for (size_t b = 0; b < texts.count; ++b) run.kept[b] = last[b];
  }
}

inline void ngram_read(const NgramRun& run) {
  switch (run.kind) {
    case ngram::Kind::subwords: return ngram_read_subwords(run);
    case ngram::Kind::small: return ngram_read_bytes<ngram::small_mixture>(run);
    case ngram::Kind::bytes: return ngram_read_bytes<ngram::mixture>(run);
  }
}

inline void ngram_first(float* mixture, const float* learned, ngram::Kind kind) {
  const size_t numbers = ngram::mixture_numbers(kind);
  for (size_t i = 0; i < numbers; ++i)
    mixture[i] = kind == ngram::Kind::subwords ? ngram_first_of<ngram::subword_mixture>(i, learned)
                 : kind == ngram::Kind::small  ? ngram_first_of<ngram::small_mixture>(i, learned)
                                               : ngram_first_of<ngram::mixture>(i, learned);
}

}  // namespace continuo::CONTINUO_ISA
