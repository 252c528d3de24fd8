// The text so far as the contexts of an ngram memory see it (graph/ngram.h). Whole numbers only, so the same on every
// device. Before including it, define CONTINUO_INLINE.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/ngram.h"

namespace continuo::ngram {

CONTINUO_INLINE uint64_t mix(uint64_t h) {
  h ^= h >> 29;
  h *= 0xbf58476d1ce4e5b9ull;
  return h ^ h >> 32;
}

// Classes of bytes, and the same more coarsely.
CONTINUO_INLINE uint32_t class_of(uint32_t c) {
  if (c == '\n') return 0;
  if (c == ' ') return 1;
  if (c >= '0' && c <= '9') return 2;
  if (c >= 'a' && c <= 'f') return 3;
  if (c >= 'g' && c <= 'z') return 4;
  if (c >= 'A' && c <= 'F') return 5;
  if (c >= 'G' && c <= 'Z') return 6;
  if (c == '.') return 7;
  if (c == ':') return 8;
  if (c == '/') return 9;
  if (c == '=' || c == ',') return 10;
  if (c == '_' || c == '-') return 11;
  if (c == '(' || c == '[' || c == '<') return 12;
  if (c == ')' || c == ']' || c == '>') return 13;
  return c >= 128 ? 14 : 15;
}
CONTINUO_INLINE uint32_t coarse(uint32_t of_class) {
  constexpr uint8_t of[16] = {0, 1, 2, 3, 3, 4, 4, 5, 5, 5, 5, 5, 6, 6, 7, 6};
  return of[of_class];
}

// A class of 128: whether the bytes begin with a space, and the coarse classes of the first byte behind it and of the
// last.
CONTINUO_INLINE uint32_t token_class(const uint8_t* bytes, size_t count) {
  if (count == 0) return 0;
  const uint32_t space = bytes[0] == ' ', first = bytes[space && count > 1 ? 1 : 0], last = bytes[count - 1];
  return (space * 8 + coarse(class_of(first))) * 8 + coarse(class_of(last));
}

// The last tokens of a text, `position` of them so far: a power of two of them is kept.
template <class Token> struct Ring {
  const Token* tokens;
  size_t size;
  uint32_t position;

  CONTINUO_INLINE uint32_t at(uint32_t place) const { return tokens[place & (size - 1)]; }
  // The token so many before the last one.
  CONTINUO_INLINE uint32_t back(uint32_t n) const { return at(position - 1 - n); }
  // Whether the ring still has this place.
  CONTINUO_INLINE bool holds(uint32_t place) const { return position - place <= size; }
};

// Of `order` tokens a hash, never 0; 0 where there are not so many.
template <class Token> CONTINUO_INLINE uint64_t last_tokens(const Ring<Token>& ring, uint32_t order) {
  if (ring.position < order) return 0;
  uint64_t h = order * 0x9e3779b97f4a7c15ull;
  for (uint32_t i = 0; i < order; ++i) h = (h ^ ring.back(i)) * 0x100000001b3ull + (h >> 41);
  return mix(h) | 1;
}

constexpr uint32_t longest_look = 32;

// The longest match after a token was read: `match` is the place of the token that followed it, which is looked up by a
// hash of the last `key` tokens, of which `least` must agree.
template <class Token> CONTINUO_INLINE void follow_match(const Ring<Token>& ring, uint32_t key, uint32_t least,
                                                         uint32_t* places, size_t count, uint32_t& match,
                                                         uint32_t& match_length) {
  if (match_length > 0 && ring.at(match) == ring.back(0)) {
    ++match_length, ++match;
  } else {
    match_length = 0;
  }
  if (ring.position < key) return;
  uint64_t h = 0;
  for (uint32_t i = 0; i < key; ++i) h = (h ^ ring.back(i)) * 0x100000001b3ull;
  auto& place = places[static_cast<size_t>(mix(h)) & (count - 1)];
  if (match_length == 0 && place != 0 && ring.holds(place)) {
    uint32_t length = 0;
    while (length < longest_look && length < place && ring.holds(place - 1 - length) &&
           ring.at(place - 1 - length) == ring.back(length))
      ++length;
    if (length >= least) match = place, match_length = length;
  }
  place = ring.position;
}

// The table with its arrays.
struct Reader {
  Text& text;
  NumberEntry* numbers;
  uint32_t *matches, *columns, *field_places, *follows2;
  uint8_t* ring;
  Arrays sizes;

  CONTINUO_INLINE Reader(int32_t* words, size_t slots)
      : text(*reinterpret_cast<Text*>(words)), sizes(arrays_of(slots)) {
    auto* at = reinterpret_cast<unsigned char*>(words) + sizeof(Text);
    numbers = reinterpret_cast<NumberEntry*>(at);
    matches = reinterpret_cast<uint32_t*>(at + sizes.numbers * sizeof(NumberEntry));
    columns = matches + sizes.places;
    field_places = columns + sizes.places;
    follows2 = field_places + sizes.places;
    ring = reinterpret_cast<uint8_t*>(follows2 + sizes.places);
  }

  // A context may come from a file that somebody made up: an index in it is believed only within its table.
  CONTINUO_INLINE NumberEntry& number_entry() const { return numbers[(text.entry - 1) & (sizes.numbers - 1)]; }
  CONTINUO_INLINE uint32_t expected(size_t which) const {
    const bool there = text.digits < text.expects[which] && text.digits < most_digits;
    return there ? text.expected[which][text.digits] : 0;
  }

  CONTINUO_INLINE Ring<uint8_t> bytes() const { return {ring, sizes.ring, text.position}; }
  CONTINUO_INLINE uint32_t at(uint32_t place) const { return bytes().at(place); }
  CONTINUO_INLINE uint32_t back(uint32_t n) const { return bytes().back(n); }
  CONTINUO_INLINE bool holds(uint32_t place) const { return bytes().holds(place); }
  CONTINUO_INLINE size_t index(uint64_t hash) const { return static_cast<size_t>(mix(hash)) & (sizes.places - 1); }

  // A token that is a byte.
  CONTINUO_INLINE void read(uint32_t c) const {
    put(c);
    follow_match(bytes(), 6, 5, matches, sizes.places, text.match, text.match_length);
    follow(c);
  }
  // A byte of a token, whose matches are those of tokens.
  CONTINUO_INLINE void read_part(uint32_t c) const {
    put(c);
    follow(c);
  }

 private:
  CONTINUO_INLINE void put(uint32_t c) const {
    ring[text.position & (sizes.ring - 1)] = static_cast<uint8_t>(c);
    ++text.position;
  }

  CONTINUO_INLINE void follow(uint32_t c) const {
    const bool digit = c >= '0' && c <= '9';
    if (c == '\n') {
      begin_line();
    } else {
      follow_line(c, digit);
    }
    follow_number(c, digit);
    auto& column = columns[index(text.masked)];
    text.column = column;
    column = text.position;
    if (text.position - 1 >= 2) {
      const uint32_t one = back(1), two = back(2);
      auto* one_follows = text.follows1 + one * 4;
      one_follows[2] = one_follows[1], one_follows[1] = one_follows[0], one_follows[0] = static_cast<uint8_t>(c);
      auto& both = follows2[index(one << 8 | two)];
      both = (both << 8 | c) & 0xffffff;
    }
  }

  CONTINUO_INLINE void begin_line() const {
    text.masked2 = text.masked1, text.masked1 = text.masked;
    text.line = text.masked = text.shape = 1;
    text.word = text.word1 = text.word2 = text.field = 0;
    text.fields = text.after_digit = text.field_place = 0;
    text.line_start = text.position;
  }

  CONTINUO_INLINE void follow_line(uint32_t c, bool digit) const {
    text.line = mix(text.line * 31 + c + 7);
    if (!digit) {
      text.masked = mix(text.masked * 31 + c + 7);
    } else if (!text.after_digit) {
      text.masked = mix(text.masked * 31 + 300);
    }
    text.after_digit = digit;
    text.shape = mix(text.shape * 31 + class_of(c));
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 128;
    if (letter || digit || c == '_' || c == '.' || c == '-' || c == '$') {
      text.word = mix(text.word * 37 + c + 3);
    } else {
      if (text.word != 0) text.word2 = text.word1, text.word1 = text.word;
      text.word = 0;
    }
    if (c == ' ' || c == '=' || c == ',' || c == ':' || c == '[' || c == '(' || c == ';' || c == '"') {
      ++text.fields;
      text.field = 0;
      auto& place = field_places[index(text.fields * 77ull + text.word1 * 5)];
      text.field_place = place;
      place = text.position;
    } else {
      text.field = mix(text.field * 41 + c + 5);
      if (text.field_place != 0) ++text.field_place;
    }
  }

  CONTINUO_INLINE void follow_number(uint32_t c, bool digit) const {
    if (digit) {
      if (text.digits == 0) text.number_start = text.position - 1, text.number = 0;
      if (text.entry != 0) {
        const auto& entry = number_entry();
        const uint32_t last = text.digits < entry.digits ? at(entry.place + text.digits) : 0;
        if (text.order == 1 && last != c) text.order = last < c ? 2 : 3;
        for (size_t i = 0; i < 2; ++i) {
          if (expected(i) != c) text.expects[i] = 0;
        }
      }
      if (++text.digits < 19) text.number = text.number * 10 + (c - '0');
      return;
    }
    if (text.digits > 0 && text.entry != 0) {
      auto& entry = number_entry();
      entry.two = entry.digits > 0;
      entry.before = entry.last, entry.last = text.number;
      entry.place = text.number_start;
      entry.digits = static_cast<uint16_t>(text.digits < 255 ? text.digits : 255);
    }
    text.digits = 0;
    text.order = 1;
    text.entry = static_cast<uint32_t>(static_cast<size_t>(mix(text.masked * 3 + 0x77)) & (sizes.numbers - 1)) + 1;
    text.expects[0] = text.expects[1] = 0;
    const auto& entry = number_entry();
    constexpr uint64_t most = 1000000000000000000ull;
    if (entry.digits == 0 || entry.digits >= 19 || entry.last >= most || entry.before > most) return;
    uint64_t next = entry.two ? 2 * entry.last - entry.before : entry.last + 1;
    if (next > most) next = entry.last;
    const uint32_t least = holds(entry.place) && at(entry.place) == '0' ? entry.digits : 1;
    expect(0, next, least);
    expect(1, entry.last + 1, least);
  }

  CONTINUO_INLINE void expect(size_t which, uint64_t number, uint32_t least) const {
    uint8_t backwards[most_digits];
    uint32_t n = 0;
    for (; number > 0 || n < least; number /= 10) backwards[n++] = static_cast<uint8_t>('0' + number % 10);
    for (uint32_t i = 0; i < n; ++i) text.expected[which][i] = backwards[n - 1 - i];
    text.expects[which] = n;
  }

 public:
  // Hashes of the contexts of the next token, a byte; 0 where there is none.
  CONTINUO_INLINE void keys(uint64_t (&key)[contexts]) const {
    const uint32_t c = back(0);
    for (uint32_t i = 0; i < 3; ++i) key[i] = last_tokens(bytes(), i + 2);
    key[9] = key[10] = key[14] = key[15] = 0;
    if (text.position >= 5) {
      const uint64_t two = static_cast<uint64_t>(back(2)) << 8 | back(3);
      key[9] = hashed((static_cast<uint64_t>(back(1)) << 16 | two) * 0x9e37 + 0x909);
      key[10] = hashed((static_cast<uint64_t>(c) << 16 | two) * 0x9e37 + 0xa0a);
      const auto* one = text.follows1 + c * 4;
      key[14] = hashed((static_cast<uint64_t>(one[1]) << 16 | one[0] << 8 | c) * 0x9e3779b1ull + 0x1212);
      const uint64_t both = follows2[index(c << 8 | back(1))];
      key[15] = hashed((both << 16 | c << 8 | back(1)) * 0x9e3779b1ull + 0x1313);
    }
    text_keys(key, text.match_length > 0 ? at(text.match) : 0);
  }

  // Those that do not depend on what a token is. `matched`: the token that follows the match.
  CONTINUO_INLINE void text_keys(uint64_t (&key)[contexts], uint64_t matched) const {
    const uint32_t c = back(0);
    key[3] = hashed(text.word * 3 + text.word1 * 5 + 0x101);
    key[4] = hashed(text.line + 0x303);
    key[5] = hashed(text.masked * 3 + 0x404);
    key[6] = hashed(text.masked * 3 + text.masked1 * 5 + 0x606);
    key[7] = hashed(text.line * 3 + text.masked1 * 5 + text.masked2 * 11 + 0x707);
    key[8] = hashed(text.fields * 977ull + text.field * 5 + 0x808);
    const uint32_t above = text.column != 0 && holds(text.column) ? at(text.column) : 0;
    key[11] = hashed((static_cast<uint64_t>(above) << 8 | c) * 0x9e3779 + text.field * 3 + 0xc0c);
    const uint32_t there = text.field_place != 0 && holds(text.field_place) ? at(text.field_place) : 0;
    key[12] =
        hashed((static_cast<uint64_t>(there) << 8 | c) * 0x9e3779 + (static_cast<uint64_t>(text.fields) << 32) + 0xd0d);
    key[13] = hashed((text.position - text.line_start) * 911ull + c + 0x111);
    const uint32_t length = text.match_length < 15 ? text.match_length : 15;
    key[16] = hashed((matched << 16 | length << 8 | c) * 0x9e3779b1ull + 0x1414);
    number_keys(key + 17, c);
  }

  static CONTINUO_INLINE uint64_t hashed(uint64_t h) { return mix(h) | 1; }

 private:
  CONTINUO_INLINE void number_keys(uint64_t* key, uint32_t c) const {
    const auto& entry = number_entry();
    const bool known = text.entry != 0 && entry.digits > 0;
    uint32_t next = 0, after = 0, step = 0, one = 0, left = 0;
    if (known) {
      if (text.digits < entry.digits) next = at(entry.place + text.digits);
      if (text.digits + 1u < entry.digits) after = at(entry.place + text.digits + 1);
      step = expected(0), one = expected(1);
      left = text.digits > entry.digits ? 0 : entry.digits - text.digits < 14u ? entry.digits - text.digits + 1 : 15;
    }
    const uint64_t line = mix(text.masked * 5 + 0x99);
    const uint64_t steps =
        (static_cast<uint64_t>(step) << 16 | static_cast<uint64_t>(text.expects[0] > 0) << 8 | one) * 64;
    key[0] = mix(line + (next * 4 + text.order) * 16 + left + 0x2121) | 1;
    key[1] =
        mix(((static_cast<uint64_t>(next) << 16 | text.order << 8 | after) * 16 + left) * 0x9e3779b1ull + 0x2222) | 1;
    key[2] = mix((steps + text.order * 16 + left) * 0x9e3779b1ull + 0x2323) | 1;
    key[3] = mix(line * 3 + steps + 0x2424) | 1;
    key[4] = mix(line * 3 + text.digits * 16 + (text.digits > 0 ? c : 0) + 0x2525) | 1;
  }
};

// A text of subwords: what its bytes are to contexts, and its tokens.
struct SubwordReader {
  Reader parts;
  SubwordText& more;
  uint32_t* tokens;
  size_t size;
  const TokenTexts& texts;

  CONTINUO_INLINE SubwordReader(int32_t* words, size_t slots, const TokenTexts& of)
      : parts(words, slots),
        more(*reinterpret_cast<SubwordText*>(words + words_of(slots))),
        tokens(reinterpret_cast<uint32_t*>(words + words_of(slots)) + sizeof(SubwordText) / sizeof(uint32_t)),
        size(subword_ring(slots)),
        texts(of) {}

  CONTINUO_INLINE Ring<uint32_t> ring() const { return {tokens, size, more.position}; }
  // The token that follows the match; 0 without one.
  CONTINUO_INLINE uint32_t matched() const { return parts.text.match_length > 0 ? ring().at(parts.text.match) : 0; }
  CONTINUO_INLINE uint32_t first_byte(uint32_t token) const {
    if (token >= texts.count) return 0;
    const uint32_t from = token == 0 ? 0 : texts.ends[token - 1];
    return from < texts.ends[token] ? texts.bytes[from] : 0;
  }

  CONTINUO_INLINE void read(uint32_t token) const {
    tokens[more.position & (size - 1)] = token;
    ++more.position;
    follow_match(ring(), 2, 2, parts.matches, parts.sizes.places, parts.text.match, parts.text.match_length);
    for (uint32_t i = token == 0 ? 0 : texts.ends[token - 1]; i < texts.ends[token]; ++i)
      parts.read_part(texts.bytes[i]);
    if (more.position - 1 >= 1) {
      auto* follows = more.follows1 + follows_of(ring().back(1));
      follows[1] = follows[0], follows[0] = token;
    }
  }

  CONTINUO_INLINE void keys(uint64_t (&key)[contexts]) const {
    for (uint32_t i = 0; i < 3; ++i) key[i] = last_tokens(ring(), i + 1);
    key[9] = key[10] = key[14] = key[15] = 0;
    if (more.position >= 4) {
      const uint64_t one = ring().back(0), two = ring().back(1), three = ring().back(2);
      key[9] = Reader::hashed((two << 24 | three) * 0x9e3779b1ull + 0x909);
      key[10] = Reader::hashed((one << 24 | three) * 0x9e3779b1ull + 0xa0a);
      const auto* follows = more.follows1 + follows_of(more.position > 0 ? ring().back(0) : 0);
      key[14] = Reader::hashed(mix(static_cast<uint64_t>(follows[1]) << 24 | follows[0]) * 31 + one + 0x1212);
      key[15] = last_tokens(ring(), 4);
    }
    parts.text_keys(key, matched());
  }

 private:
  static CONTINUO_INLINE size_t follows_of(uint32_t token) { return (mix(token) & 255) * 2; }
};

}  // namespace continuo::ngram
