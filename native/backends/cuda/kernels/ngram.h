// An ngram memory (backends/ngram/mixture.h) by the threads of a block: one thread reads the text, asks the slots and
// weighs the votes, in the order of the CPU; what is the same for many numbers at once is done by all.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/sample.h"
#include "backends/jobs.h"
#include "backends/ngram/mixture.h"

namespace continuo::cuda {

CONTINUO_INLINE bool is_first_thread() { return threadIdx.x == 0; }

// Scales learn by their gradients.
template <class State> CONTINUO_INLINE void ngram_learn_scales(const State& state, const float* gradient) {
  using at = typename State::At;
  float* const mixture = state.mixture;
  for (size_t lane = threadIdx.x; lane < at::lanes; lane += blockDim.x) {
    const float g = gradient[lane], squares = fma(mixture[at::scale_squares + lane], ngram_decay, g * g);
    mixture[at::scale_squares + lane] = squares;
    const float step = ngram_scale_step * g / sqrt(squares + ngram_scale_floor);
    for (size_t s = 0; s < ngram::selectors; ++s)
      ngram_row(mixture + at::scales, state.text().row[s], at::scale_rows, at::lanes)[lane] += step;
  }
}

// A row of each table of dense logits.
template <class State> CONTINUO_INLINE float* ngram_dense_row(const State& state, size_t k) {
  using at = typename State::At;
  return ngram_row(state.mixture + at::dense, state.text().dense[k], at::dense_rows, at::columns);
}

// `column`: the token that followed, or its class.
template <class State> CONTINUO_INLINE void ngram_learn_dense(const State& state, size_t column) {
  using at = typename State::At;
  const float* const p = state.mixture + at::shares;
  for (size_t b = threadIdx.x; b < at::columns; b += blockDim.x) {
    for (size_t k = 0; k < ngram::dense_tables; ++k) {
      float& logit = ngram_dense_row(state, k)[b];
      logit = fma(-ngram_dense_step(k), p[b], logit);
      if (b == column) logit += ngram_dense_step(k);
    }
  }
}

// `logit`, `mean`: of the base, where there is one.
template <class State>
CONTINUO_INLINE void ngram_learn(const State& state, uint32_t y, size_t column, bool based, float logit, float mean) {
  using at = typename State::At;
  __shared__ float gradient[at::lanes];
  const float* const p = state.mixture + at::shares;
  float expected[ngram::dense_tables];
  for (size_t k = 0; k < ngram::dense_tables; ++k) {
    const float* row = ngram_dense_row(state, k);
    expected[k] = reduce(at::columns, [=](float acc, size_t b) { return fma(p[b], row[b], acc); });
  }
  __syncthreads();
  if (is_first_thread()) {
    ngram_learn_votes(state, y, gradient);
    if (based) ngram_learn_base(state, logit, mean, gradient);
    for (size_t k = 0; k < ngram::dense_tables; ++k)
      gradient[at::dense_lane + k] = ngram_gain * (ngram_dense_row(state, k)[column] - expected[k]);
  }
  __syncthreads();
  ngram_learn_scales(state, gradient);
  ngram_learn_dense(state, column);
  __syncthreads();
  if (is_first_thread()) ngram_learn_counts(state, y);
}

// Reads the token, and asks the slots of its contexts.
template <class State, class Reader> CONTINUO_INLINE void ngram_read_token(const State& state, const Reader& reader,
                                                                           uint32_t token, const ngram::Reader& text,
                                                                           bool learns) {
  __syncthreads();
  if (is_first_thread()) {
    reader.read(token);
    uint64_t keys[ngram::contexts];
    state.keys(keys);
    ngram_ask(state, keys, text.bytes(), learns);
  }
  __syncthreads();
}

// The scale of each lane, and what follows from those of the base and of dense logits.
template <class State> CONTINUO_INLINE void ngram_scale(const State& state) {
  using at = typename State::At;
  for (size_t lane = threadIdx.x; lane < at::lanes; lane += blockDim.x) {
    float sum = 0.0f;
    for (size_t s = 0; s < ngram::selectors; ++s)
      sum += state.mixture[at::scales + static_cast<size_t>(state.text().row[s]) * at::lanes + lane];
    state.mixture[at::scale + lane] = sum;
    if (lane < at::base_lane || lane > at::base_lane + ngram::dense_tables) continue;
    const size_t k = lane - at::base_lane;
    state.mixture[at::gains + k] = ngram_gain_of(state, k, sum);
  }
  __syncthreads();
}

template <class State> CONTINUO_INLINE float ngram_dense(const State& state, size_t b) {
  const auto row = [&](size_t k) {
    return state.mixture[State::At::gains + 1 + k] *
           state.mixture[State::At::dense + static_cast<size_t>(state.text().dense[k]) * State::At::columns + b];
  };
  return row(0) + row(1) + row(2) + row(3);
}

// Adds the votes to the logits; gives the largest.
template <class State> CONTINUO_INLINE float ngram_vote(const State& state, float* y, size_t tokens) {
  __syncthreads();
  if (is_first_thread()) ngram_add_votes(state, y);
  __syncthreads();
  return max(y, tokens);
}

// The first of the largest logits; the last token where none is as large.
CONTINUO_INLINE uint32_t ngram_likeliest(const float* y, size_t tokens, float most) {
  // As many as a block may have.
  __shared__ uint32_t first[1024];
  uint32_t own = static_cast<uint32_t>(tokens - 1);
  for (size_t b = threadIdx.x; b < tokens; b += blockDim.x) {
    if (y[b] != most) continue;
    own = static_cast<uint32_t>(b);
    break;
  }
  first[threadIdx.x] = own;
  __syncthreads();
  for (uint32_t i = 0; i < blockDim.x; ++i) own = first[i] < own ? first[i] : own;
  return own;
}

template <class Of>
CONTINUO_INLINE void ngram_predict(const NgramBytesOf<Of>& state, uint32_t c, const float* base, float* y) {
  using at = Of;
  float* const mixture = state.mixture;
  ngram_scale(state);
  for (size_t b = threadIdx.x; b < ngram::tokens; b += blockDim.x) {
    float v = ngram_dense(state, b);
    if (base) {
      mixture[at::base + b] = base[b];
      v = fma(mixture[at::gains], base[b], v);
    }
    y[b] = v;
  }
  const float most = ngram_vote(state, y, ngram::tokens);
  float* const p = mixture + at::shares;
  for (size_t b = threadIdx.x; b < ngram::tokens; b += blockDim.x) p[b] = exp(y[b] - most);
  const float inverse = 1.0f / reduce(ngram::tokens, [=](float acc, size_t i) { return acc + p[i]; });
  // Everybody has read what everybody now changes.
  __syncthreads();
  for (size_t b = threadIdx.x; b < ngram::tokens; b += blockDim.x) p[b] *= inverse;
  const uint32_t likeliest = ngram_likeliest(y, ngram::tokens, most);
  if (is_first_thread()) ngram_correct(state, y, likeliest, p[likeliest], c * 256 + likeliest);
}

CONTINUO_INLINE void ngram_predict(const NgramSubwords& state, uint32_t c, const float* base, float* y) {
  using at = NgramSubwords::At;
  __shared__ float dense[ngram::token_classes];
  __shared__ float sums[ngram::token_classes];
  const auto& texts = state.reader.texts;
  float* const mixture = state.mixture;
  ngram_scale(state);
  for (size_t k = threadIdx.x; k < ngram::token_classes; k += blockDim.x) dense[k] = ngram_dense(state, k);
  __syncthreads();
  const float weight = mixture[at::gains];
  for (size_t b = threadIdx.x; b < texts.count; b += blockDim.x)
    y[b] = fma(weight, base[b], dense[texts.classes[b] % ngram::token_classes]);
  const float most = ngram_vote(state, y, texts.count);
  for (size_t k = threadIdx.x; k < ngram::token_classes; k += blockDim.x) {
    float sum = 0.0f;
    for (size_t b = 0; b < texts.count; ++b) {
      if (texts.classes[b] % ngram::token_classes == k) sum += exp(y[b] - most);
    }
    sums[k] = sum;
  }
  const float mean = reduce(texts.count, [=](float acc, size_t b) { return fma(exp(y[b] - most), base[b], acc); });
  float total = 0.0f;
  for (size_t k = 0; k < ngram::token_classes; ++k) total += sums[k];
  const float inverse = 1.0f / total;
  float* const shares = mixture + at::shares;
  const auto share = [=](uint32_t token) { return exp(y[token] - most) * inverse; };
  for (size_t k = threadIdx.x; k < ngram::token_classes; k += blockDim.x) shares[k] = sums[k] * inverse;
  for (size_t i = threadIdx.x; i < state.text().votes; i += blockDim.x)
    shares[ngram::token_classes + i] = share(state.vote(i));
  const uint32_t likeliest = ngram_likeliest(y, texts.count, most);
  if (!is_first_thread()) return;
  shares[ngram::token_classes + NgramSubwords::match_vote] = share(state.match_token());
  mixture[at::base_weight + 2] = mean * inverse;
  ngram_correct(state, y, likeliest, share(likeliest), static_cast<uint64_t>(c) << 24 | likeliest);
}

template <class Of> CONTINUO_INLINE void ngram_read_bytes(const NgramRun& run) {
  using at = Of;
  const NgramBytesOf<Of> state(run);
  const float *kept = run.mixture + at::base, *p = run.mixture + at::shares;
  for (size_t row = 0; row < run.rows; ++row) {
    const auto token = static_cast<uint32_t>(run.tokens[row]) & 0xff;
    __syncthreads();
    if (run.learns && state.has_read()) {
      float mean = 0.0f;
      if (run.base) mean = reduce(ngram::tokens, [=](float acc, size_t b) { return fma(p[b], kept[b], acc); });
      ngram_learn(state, token, token, run.base != nullptr, kept[token], mean);
    }
    ngram_read_token(state, state.reader, token, state.reader, run.learns);
    ngram_predict(state, token, run.base ? run.base + row * ngram::tokens : nullptr, run.y + row * ngram::tokens);
  }
}

CONTINUO_INLINE void ngram_read_subwords(const NgramRun& run) {
  const auto& texts = *run.texts;
  const NgramSubwords state(run);
  for (size_t row = 0; row < run.rows; ++row) {
    const uint32_t token = state.known(static_cast<uint32_t>(run.tokens[row]));
    const float* base = run.base + row * texts.count;
    __syncthreads();
    if (run.learns && state.has_read()) {
      const float* last = row == 0 ? run.kept : base - texts.count;
      ngram_learn(state, token, texts.classes[token] % ngram::token_classes, true, last[token],
                  run.mixture[NgramSubwords::At::base_weight + 2]);
    }
    const auto& text = state.reader.parts;
    ngram_read_token(state, state.reader, token, text, run.learns);
    ngram_predict(state, text.text.position > 0 ? text.back(0) : 0, base, run.y + row * texts.count);
  }
  __syncthreads();
  const float* last = run.base + (run.rows - 1) * texts.count;
  for (size_t b = threadIdx.x; b < texts.count && run.rows > 0; b += blockDim.x) run.kept[b] = last[b];
}

CONTINUO_INLINE void ngram_read(const NgramRun& run) {
  switch (run.kind) {
    case ngram::Kind::subwords: return ngram_read_subwords(run);
    case ngram::Kind::small: return ngram_read_bytes<ngram::small_mixture>(run);
    case ngram::Kind::bytes: return ngram_read_bytes<ngram::mixture>(run);
  }
}

CONTINUO_INLINE void ngram_first(float* mixture, const float* learned, ngram::Kind kind) {
  const size_t numbers = ngram::mixture_numbers(kind);
  for (size_t i = threadIdx.x; i < numbers; i += blockDim.x)
    mixture[i] = kind == ngram::Kind::subwords ? ngram_first_of<ngram::subword_mixture>(i, learned)
                 : kind == ngram::Kind::small  ? ngram_first_of<ngram::small_mixture>(i, learned)
                                               : ngram_first_of<ngram::mixture>(i, learned);
}

}  // namespace continuo::cuda
