// The arguments of kernels, the same on every device: one struct for each family of kernels. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/type.h"
#include "graph/forms.h"
#include "graph/narrow.h"
#include "graph/ngram.h"
#include "runtime/model/block_list.h"
#include "weights/packed_matrix.h"

namespace continuo {

constexpr size_t block_terms = 256;  // terms of an inner product per block sum
// A block of attention lies in one block of a table.
static_assert(block_terms == block_positions);

// A block of one row's activations, quantised for one dtype and group of weights. Per group: s = max|x| / 127 and
// q = x / s, rounded to the nearest integer, ties to even, and clamped to ±127; s = 0 gives q = 0. A group that holds a
// NaN or an infinity has s = NaN and q = 0, so that every output of the group is NaN. s depends only on the numbers of
// its own group.
struct QuantisedBlock {
  int8_t terms[block_terms];
  float scales[block_terms / 32];
  // −zero·Σ q: turns Σ code·q into Σ (code − zero)·q; for q4_k −Σ q. For q6_k the sums of both halves of the group,
  // the first in the low 16 bits (half_sums).
  int32_t corrections[block_terms / 32];
};

// The corrections of a group of q6_k, and what they say.
constexpr int32_t half_sums(int32_t first, int32_t second) {
  return static_cast<int32_t>(static_cast<uint32_t>(second) << 16 | (static_cast<uint32_t>(first) & 0xFFFF));
}
constexpr int32_t first_half(int32_t sums) { return static_cast<int16_t>(sums); }
constexpr int32_t second_half(int32_t sums) { return sums >> 16; }

// The product of quantised weights and rows, block by block of 256 terms: acc = 0; for the block's groups in order
//   dot = Σ (code − zero)·q, an exact int32;  acc = fma(float(dot), w_scale · x_scale, acc), with one f32 product of
//   the scales;
// For q4_k, whose weights are d·sc·code − dmin·mn:
//   dot = Σ code·q;  acc = fma(float(sc · dot), d · x_scale, acc), then acc = fma(float(mn · −Σ q), dmin · x_scale,
//   acc);
// for q6_k, with an sc for each half of the group:
//   acc = fma(float(sc₀ · dot₀ + sc₁ · dot₁), d · x_scale, acc).
// Block sums are added in order from 0. Nothing overflows and float(dot) is exact: with 64 terms |Σ code·q| ≤
// 64·255·127 < 2²¹, the correction is at most 64·128·127 < 2²⁰, and |dot| ≤ 64·127·127 < 2²⁰; a code −128 makes it
// 64·128·127, still < 2²⁰. sc·dot of q4_k is at most 63·32·15·127 < 2²², the sum of q6_k 2·128·16·32·127 < 2²⁴.

// A key or a value of the list of an external memory: f32, f16, bf16, or f8 with an exponent for each head.
struct ListJob {
  const std::byte* from;    // [channels] of head 0
  float* to;                // [heads · channels]
  const int8_t* exponents;  // [heads]: a number is code · 2^exponent, −120 … 120; null: as it is
  size_t from_head;         // bytes from one head to the next
  size_t heads, channels, pairs;
  const uint32_t* increments;  // [pairs]; null: nothing turns
  uint32_t position;
  Type type;
};

// A causal convolution of each channel with its own taps over consecutive rows (conv.h).
struct ConvRun {
  const float *x, *tail;  // [rows][channels], and the taps − 1 rows before them
  const float* weights;   // [channels][taps]; a channel's last tap meets the row itself
  const float* bias;      // [channels]; null: zeros
  float* y;               // [rows][channels]
  size_t rows, channels, taps;
  bool silu;
};

// RWKV-7's recurrence of one head over consecutive tokens (wkv7.h). Pointers address the head's first channel in the
// first token's row.
struct Wkv7Run {
  float* state;                         // [keys][channels]: channels, those of values, are the lanes
  const float *r, *w, *k, *v, *kk, *a;  // [keys] of a token; v: [channels]
  float* y;                             // [channels] of a token
  size_t channels, keys;
  size_t stride;      // floats from one token's row of v and y to the next
  size_t key_stride;  // the same, of r, w, k, kk and a
  size_t tokens;
};

// Mamba-2's recurrence of one head over consecutive tokens (ssm.h). Pointers address the head's first channel, its
// number, or the first key of its group, in the first token's row.
struct SsmRun {
  float* state;         // [keys][channels]: channels are the lanes
  const float* x;       // [channels] of a token
  const float *dt, *w;  // one number of a token: its step, and the share of the state that stays
  const float *b, *c;   // [keys] of a token
  float skip;           // the share of x that goes to y by itself (Mamba's D)
  float* y;             // [channels] of a token
  size_t channels, keys;
  size_t stride;      // floats from one token's row of x and y to the next
  size_t heads;       // the same, of dt and w
  size_t key_stride;  // the same, of b and c
  size_t tokens;
};

// The perspective decay recurrence over consecutive tokens (pdr.h). Rows lie one behind the other.
struct PdrRun {
  float* state;            // [keys][channels]: channels are the lanes
  const float *gamma, *v;  // [tokens][channels]
  const float *k, *q;      // [tokens][keys]
  float* y;                // [tokens][channels]
  size_t channels, keys, tokens;
  bool convex;
};

// An ngram memory over consecutive tokens (ngram.h): its tables (graph/ngram.h), and rows one behind the other.
struct NgramRun {
  int32_t *table, *text;
  float* mixture;
  const int32_t* tokens;
  const float* base;  // [tokens][256]; null: zeros
  float* y;           // [tokens][256]
  size_t slots, rows;
  bool learns;  // from the tokens; else they are only read
  // Of subwords what they stand for, else null; base and y are [tokens][texts->count] then, and there is a base.
  const ngram::TokenTexts* texts = nullptr;
  float* kept = nullptr;  // [texts->count]: the base of the last prediction
  ngram::Kind kind = ngram::Kind::bytes;
};

// One row of keys and values that a query looks along: positions [first, last). The channels of a position lie at
// (p mod slots) · stride from keys and values, or in blocks; then keys and values are null, and slots is 0. Keys and
// values of f16 or bf16 are widened exactly.
struct AttendPart {
  const float* q;  // [channels]
  const void *keys, *values;
  size_t stride;  // numbers
  size_t first, last, slots;
  BlockList key_blocks = {}, value_blocks = {};
  Dtype dtype = Dtype::f32;  // f32, f16 or bf16
};
// Attention of one head of one token, over its parts in order.
struct AttendRun {
  AttendPart parts[3];
  size_t count;
  float* y;  // [channels]
  size_t channels;
  float scale;
};

// So many queries of a head of keys, or fewer, are faster with all heads of keys in one job, which is bound by memory.
constexpr size_t few_queries = 8;

// Attention of consecutive tokens along one row of keys and values: a query of the first token sees positions [first,
// last) of the part, and each token's one position more than the token's before it. The positions lie in different
// slots. A head of keys and values lies `channels` behind the one before; its queries and their y too, side by side.
struct AttendRows {
  AttendPart part;  // q and y are the first head's of the first token
  float* y;
  size_t rows;       // tokens
  size_t key_heads;  // heads of keys and values
  size_t heads;      // queries of a token that share one of those
  size_t stride;     // floats from one token's queries to the next, and from one y to the next
  size_t channels;
  float scale;
};

// Attention of few queries along many positions, whose blocks are computed apart from one another (split-KV: Dao and
// others, "Flash-Decoding", 2023). The blocks here are those of attend.h, and what they leave is joined in its order,
// so the bits are those of attend_rows. A long part is taken as several splits, one after the other. Queries are
// numbered by head of keys, then token, then head.
constexpr size_t split_queries = 64;
struct AttendSplit {
  AttendRows run;     // at most split_queries queries
  size_t first;       // the first position: run.part.first, or where the split before ended
  size_t blocks = 0;  // from there on
  // Of each block [blocks], of each query:
  float* scores = nullptr;   // [block_positions]: scores, and then weights
  float* values = nullptr;   // [channels]: Σ of the values by their weights
  float* highest = nullptr;  // the highest score
  float* carries = nullptr;  // by how much what came before shrinks
  float* totals = nullptr;   // Σ of the weights
  // Of each query, over all blocks before this split, and with it when it is joined; 0 before the first one:
  float *m = nullptr, *total = nullptr;

  size_t queries() const { return run.rows * run.key_heads * run.heads; }
  // The position behind the last one that any query sees.
  size_t end() const { return run.part.last + run.rows - 1; }
  // Of that, how many blocks there are from `first` on.
  size_t blocks_left() const { return (end() - 1) / block_positions + 1 - first / block_positions; }

  // Floats that splits of at most so many blocks take; and lays them there.
  size_t floats(size_t most) const { return queries() * (most * (block_positions + run.channels + 3) + 2); }
  void lay(float* scratch, size_t most) {
    const auto take = [&](size_t count) { return std::exchange(scratch, scratch + queries() * count); };
    scores = take(most * block_positions), values = take(most * run.channels);
    highest = take(most), carries = take(most), totals = take(most);
    m = take(1), total = take(1);
    for (size_t i = 0; i < queries(); ++i) m[i] = total[i] = 0.0f;
  }
};

// One level of one head of a matrix memory over consecutive tokens (memory.h). Pointers address the head's first
// channel, or the level's and head's gate, in the first token's row.
struct MemoryRun {
  float *M, *S, *G;  // [channels (key)][channels (value)]; S and G null where the form has none
  const float *q, *k, *v;
  const float *theta, *eta, *alpha;
  float* y;  // what is read, level after level
  size_t channels;
  size_t stride;  // floats from one token's row to the next
  size_t gates;   // the same, of a row of gates
  size_t tokens;
  uint64_t clock;  // of the first token
  uint64_t period;
  float mix;   // the level's share in y
  bool begin;  // the first level: y starts here
};

}  // namespace continuo
