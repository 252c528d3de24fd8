// The state of an ngram memory (docs/ngram.md): tables of a context, of fixed sizes that follow from the number of
// slots and of tokens. The op `cache.ngram` reads a token, writes all of them, and gives the logits of the token after
// it. Where there are 256 tokens, they are bytes:
//
//   slots    i32 [slots, 2]  what followed each context: a check, three tokens, their counts
//   text     i32 [words]     the text so far as contexts see it: hashes, a ring of bytes, places of lines and numbers
//   mixture  f32 [numbers]   the weights of votes, and what the last prediction was made of
//
// Tokens of another vocabulary stand for bytes, any number of them: subwords. Contexts see the bytes, and what follows
// them and votes are tokens. A base is needed, since most tokens follow nothing that was seen:
//
//   slots    i32 [slots, 4]
//   text     i32 [words]     with a ring of tokens behind that of bytes
//   base     f32 [tokens]    the base's logits of the next token
//   mixture  f32 [numbers]   with logits of classes of tokens
#pragma once

#include <cstddef>
#include <cstdint>

namespace continuo::ngram {

constexpr size_t tokens = 256;
// A slot for subwords has 24 bits for a token.
constexpr size_t most_tokens = 1 << 24;
// Classes of subwords: token_class in backends/ngram/text.h.
constexpr size_t token_classes = 128;
constexpr size_t contexts = 22;
// Tokens that a slot keeps, the most frequent first: each is a vote.
constexpr size_t ranks = 3;
constexpr size_t most_votes = contexts * ranks;
constexpr size_t dense_tables = 4;
// Counts of a vote: classes of its own, of the others in its slot, and whether it came last.
constexpr size_t count_classes = 8;
constexpr size_t confidences = count_classes * count_classes * 2;

constexpr size_t selectors = 8;

// One of these numbers. A function and not an array: device code cannot read an array of constants outside of a
// function.
template <size_t... Of> constexpr size_t nth(size_t i) {
  constexpr size_t numbers[] = {Of...};
  return numbers[i];
}

// A form says which contexts vote, and how many rows the tables of a mixture have.
struct WholeForm {
  static constexpr bool small = false;
  static constexpr size_t contexts = ngram::contexts;
  static constexpr size_t context(size_t i) { return i; }
  // A row of scales: rounded up to whole vectors of the widest instruction set.
  static constexpr size_t lanes = 32;
  static constexpr size_t fields = 32;  // that are told apart
  static constexpr size_t rows(size_t selector) { return nth<20, 256, 2 * fields, 256, 256, 128, 80, 256>(selector); }
  // Logits by nothing, by the class of the last byte, by coarse classes of the last two, by the number of the field.
  static constexpr size_t dense_rows(size_t k) { return nth<1, 16, 64, 16>(k); }
  static constexpr size_t correction_rows = 256;
};

// A fifth of the state: the contexts that pay where slots are few, and fewer rows.
struct SmallForm {
  static constexpr bool small = true;
  static constexpr size_t contexts = 6;
  static constexpr size_t context(size_t i) { return nth<0, 1, 5, 8, 9, 13>(i); }
  static constexpr size_t lanes = 16;
  static constexpr size_t fields = 16;
  static constexpr size_t rows(size_t selector) { return nth<20, 16, 2 * fields, 16, 32, 16, 20, 16>(selector); }
  static constexpr size_t dense_rows(size_t k) { return nth<1, 16, 8, 8>(k); }
  static constexpr size_t correction_rows = 32;
};

template <class Form> constexpr size_t first_row(size_t selector) {
  size_t rows = 0;
  for (size_t i = 0; i < selector; ++i) rows += Form::rows(i);
  return rows;
}
template <class Form> constexpr size_t dense_first(size_t k) {
  size_t rows = 0;
  for (size_t i = 0; i < k; ++i) rows += Form::dense_rows(i);
  return rows;
}

constexpr size_t match_lengths = 24;
// The correction of the likeliest token: rows by context, places along its logit.
constexpr size_t correction_places = 17, corrections = 2;

// Where the parts of a mixture lie, in numbers. Rows of dense logits have so many columns; it keeps so many of the
// base's logits, and so many probabilities.
template <class Of, size_t Columns, size_t Base, size_t Shares> struct MixtureOf {
  using Form = Of;
  static constexpr size_t columns = Columns;
  static constexpr size_t votes = Form::contexts * ranks;
  static constexpr size_t scale_rows = first_row<Form>(selectors), dense_rows = dense_first<Form>(dense_tables);
  // A row of scales has one of each context, then one of the base's logits, and one of each table of dense logits.
  static constexpr size_t lanes = Form::lanes, base_lane = Form::contexts, dense_lane = base_lane + 1;
  static_assert(dense_lane + dense_tables <= lanes);
  // What a package may begin with: the weights, and of bytes the logits by nothing and by the class of the last byte.
  static constexpr size_t learned_weights = votes * confidences;
  static constexpr size_t learned_logits = Columns == tokens ? dense_first<Form>(2) * tokens : 0;
  static constexpr size_t weights = 0;                                     // [votes of a slot, confidence]
  static constexpr size_t weight_squares = weights + votes * confidences;  // sums of squared gradients
  static constexpr size_t scales = weight_squares + votes * confidences;   // [row, lane]
  static constexpr size_t scale_squares = scales + scale_rows * lanes;     // [lane]
  static constexpr size_t match = scale_squares + lanes;                   // [length]
  static constexpr size_t match_squares = match + match_lengths;
  static constexpr size_t dense = match_squares + match_lengths;  // [row, column]
  static constexpr size_t correction = dense + dense_rows * columns;
  // The weight of the base's logits, its sum of squared gradients, and of subwords the mean of the logits.
  static constexpr size_t base_weight = correction + corrections * Form::correction_rows * correction_places;
  // Of the last prediction: the base, probabilities, the scale of each lane, its correction, and what the base and each
  // table of dense logits counted.
  static constexpr size_t base = base_weight + 8;
  static constexpr size_t shares = base + Base;
  static constexpr size_t scale = shares + Shares;
  static constexpr size_t corrected = scale + lanes;  // the likeliest token's probability, its place along the logit
  static constexpr size_t gains = corrected + 8;
  static constexpr size_t numbers = gains + 8;
};
// Of bytes: the probability of each.
using mixture = MixtureOf<WholeForm, tokens, tokens, tokens>;
using small_mixture = MixtureOf<SmallForm, tokens, tokens, tokens>;
// Of subwords: those of each class, of each vote, and of the match.
constexpr size_t vote_shares = (most_votes + 1 + 7) / 8 * 8;
using subword_mixture = MixtureOf<WholeForm, token_classes, 0, token_classes + vote_shares>;

// What a mixture is of, told by how many numbers it has.
enum class Kind : uint8_t { bytes, small, subwords };
constexpr size_t mixture_numbers(Kind kind) {
  return kind == Kind::subwords ? subword_mixture::numbers
         : kind == Kind::small  ? small_mixture::numbers
                                : mixture::numbers;
}
constexpr Kind kind_of(size_t numbers) {
  return numbers == subword_mixture::numbers ? Kind::subwords
         : numbers == small_mixture::numbers ? Kind::small
                                             : Kind::bytes;
}
static_assert(mixture::numbers != subword_mixture::numbers && mixture::numbers != small_mixture::numbers);

// How many numbers a package has in its tensor `learned`. A memory of subwords takes the weights of one for bytes, and
// leaves the logits.
constexpr size_t learned_numbers(Kind kind) {
  return kind == Kind::small ? small_mixture::learned_weights + small_mixture::learned_logits
                             : mixture::learned_weights + mixture::learned_logits;
}

constexpr size_t least_slots = 1 << 10, most_slots = 1 << 24;

// Sizes of the text's arrays, each a power of two, for so many slots. The text of a small mixture is that of half of
// its slots: ring_slots.
struct Arrays {
  size_t ring;     // bytes of text
  size_t places;   // of matches and of lines, entries
  size_t numbers;  // entries
};
constexpr size_t ring_slots(Kind kind, size_t slots) { return kind == Kind::small ? slots / 2 : slots; }
constexpr Arrays arrays_of(size_t slots) {
  size_t ring = 4096;
  while (ring < slots && ring < (1u << 16)) ring *= 2;
  return {ring, ring / 16, ring / 64};
}

constexpr size_t most_digits = 20;

// The last two numbers behind the same beginning of a line.
struct NumberEntry {
  uint64_t last, before;
  uint32_t place;   // of the last one's first digit
  uint16_t digits;  // of the last one; 0: none
  uint16_t two;     // whether there is one before it
};
static_assert(sizeof(NumberEntry) == 24);

// The beginning of the table `text`; arrays follow.
struct Text {
  uint64_t word, word1, word2;        // hashes of the word so far and of the two before it
  uint64_t line;                      // hash of the line so far
  uint64_t masked, masked1, masked2;  // the same with each number as one mark; of the two lines before
  uint64_t field;                     // hash of the field so far
  uint64_t shape;                     // hash of the classes of the line's bytes
  uint64_t number;                    // the number so far
  uint32_t position;                  // tokens read, modulo 2³²
  uint32_t line_start, number_start;
  uint32_t fields;               // fields of the line before this one
  uint32_t match, match_length;  // the token that followed the longest match, and how long it is
  uint32_t column,
      field_place;       // 0: none; else the place behind the same beginning of a line, or in the field last time
  uint32_t entry;        // of the number that begins here or goes on; its index + 1
  uint32_t digits;       // of the number so far
  uint32_t order;        // 1: equals the last one so far; 2: greater, 3: less
  uint32_t after_digit;  // whether the last byte was a digit
  uint32_t expects[2];   // how many digits are expected: by the last step, by one; 0: no longer so
  uint8_t expected[2][most_digits];
  uint8_t follows1[256 * 4];  // by a byte: the bytes that followed it the last three times
  // What the next prediction asks, and was made of.
  int32_t slot[contexts];       // −1: none
  int32_t row[selectors];       // of the scales
  int32_t dense[dense_tables];  // rows
  int32_t corrected[2];         // rows
  int32_t likeliest;
  int32_t match_weight;  // −1: no match
  uint32_t match_token;
  uint32_t votes;
  uint16_t weight[most_votes];  // of each vote
  uint8_t token[most_votes];
  uint8_t pad[2];
};
static_assert(sizeof(Text) % 8 == 0);

// Words of i32 of the table `text`.
constexpr size_t words_of(size_t slots) {
  const Arrays a = arrays_of(slots);
  // The ring, three lists of places, what followed two bytes, and numbers.
  return (sizeof(Text) + a.ring + 4 * a.places * sizeof(uint32_t) + a.numbers * sizeof(NumberEntry)) / sizeof(int32_t);
}

// What stands behind the bytes of a text of subwords; a ring of tokens follows.
struct SubwordText {
  uint32_t position;           // tokens read, modulo 2³²
  uint32_t follows1[256 * 2];  // by a hash of a token: the tokens that followed it the last two times
  uint32_t token[most_votes];  // of each vote, in place of Text::token
  uint32_t pad;
};
static_assert(sizeof(SubwordText) % 4 == 0);

// Tokens in the ring: those of the text in the ring of bytes, where they have two bytes each.
constexpr size_t subword_ring(size_t slots) { return arrays_of(slots).ring / 2; }
constexpr size_t subword_words_of(size_t slots) {
  return words_of(slots) + sizeof(SubwordText) / sizeof(int32_t) + subword_ring(slots);
}

constexpr size_t words_of(Kind kind, size_t slots) {
  return kind == Kind::subwords ? subword_words_of(slots) : words_of(ring_slots(kind, slots));
}

// What the tokens of a vocabulary stand for, [tokens] each: their bytes, one token after the other, where those of each
// end, and its class.
struct TokenTexts {
  const uint8_t* bytes;
  const uint32_t* ends;
  const uint8_t* classes;
  size_t count;
};

}  // namespace continuo::ngram
