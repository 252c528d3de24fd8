// The kernels of an ngram memory: any cut gives the same bits, slots change hands by the rule of
// backends/ngram/slots.h, and a state that somebody made up leads nowhere outside its tables.
// test/models/ngram/ngram.reference.test.ts has the numbers.
#ifndef CONTINUO_INLINE
#define CONTINUO_INLINE inline
#endif
#include "backends/ngram/slots.h"
#include "test/kernel_inputs.h"

namespace continuo::test::ngram_test {

namespace {

using ngram::count_token, ngram::find_slot, ngram::Kind, ngram::Slot, ngram::SubwordSlot;

// Words between two guards, 8 bytes aligned as a context has its tables.
class Table {
 public:
  explicit Table(size_t words) : words_(words), memory_(words + 2 * fence, guard) {
    std::fill(begin(), begin() + words, 0u);
  }
  uint32_t* begin() { return memory_.data() + fence; }
  uint32_t* end() { return begin() + words_; }
  template <class T> T* as() { return reinterpret_cast<T*>(begin()); }
  bool fences_stand() const {
    const auto stands = [](uint32_t word) { return word == guard; };
    return std::all_of(memory_.begin(), memory_.begin() + fence, stands) &&
           std::all_of(memory_.end() - fence, memory_.end(), stands);
  }
  bool operator==(const Table& other) const { return memory_ == other.memory_; }

 private:
  static constexpr ptrdiff_t fence = 64;
  static constexpr uint32_t guard = 0x5ca1ab1e;
  size_t words_;
  std::vector<uint32_t> memory_;
};

// Of bytes, with a whole or a small mixture.
struct State {
  size_t slots;
  Kind kind;
  Table table, text, mixture;

  State(size_t count, const Kernels* kernels, const float* learned, Kind of = Kind::bytes)
      : slots(count),
        kind(of),
        table(2 * count),
        text(ngram::words_of(of, count)),
        mixture(ngram::mixture_numbers(of)) {
    kernels->ngram_first(mixture.as<float>(), learned, of);
  }
  bool operator==(const State&) const = default;
  bool fences_stand() const { return table.fences_stand() && text.fences_stand() && mixture.fences_stand(); }
};

// Logits after each token, read in pieces of at most so many rows.
std::vector<float> read(Random& random, const Kernels* kernels, State& state, const std::vector<int32_t>& tokens,
                        const std::vector<float>& base, size_t most) {
  Slice y(tokens.size() * ngram::tokens, random.below(17)), from(base, random.below(17));
  for (size_t row = 0; row < tokens.size();) {
    const size_t rows = std::min(tokens.size() - row, 1 + random.below(most));
    kernels->ngram({.table = state.table.as<int32_t>(),
                    .text = state.text.as<int32_t>(),
                    .mixture = state.mixture.as<float>(),
                    .tokens = tokens.data() + row,
                    .base = base.empty() ? nullptr : from.data() + row * ngram::tokens,
                    .y = y.data() + row * ngram::tokens,
                    .slots = state.slots,
                    .rows = rows,
                    .learns = true,
                    .kind = state.kind});
    row += rows;
  }
  CHECK(y.fences_stand() && state.fences_stand());
  return y.values();
}

// Lines of few templates, with numbers that rise, and bytes of no order.
std::vector<int32_t> some_text(Random& random, size_t length) {
  std::vector<int32_t> out;
  for (size_t number = random.below(100000); out.size() < length; number += 1 + random.below(3) / 2) {
    std::string line = random.below(3)
                           ? "at " + std::to_string(number) + " id=00" + std::to_string(number * 7) + ": ok\n"
                           : "GET /" + std::string(random.below(20), 'x') + " 200\n\n";
    for (const char c : line) out.push_back(static_cast<uint8_t>(c));
    for (size_t i = random.below(5) == 0 ? random.below(9) : 0; i > 0; --i)
      out.push_back(static_cast<int32_t>(random.below(256)));
  }
  out.resize(length);
  return out;
}

// A vocabulary of subwords: bytes, and words of several; the first stands for nothing.
struct Vocabulary {
  std::vector<uint8_t> bytes;
  std::vector<uint32_t> ends;
  std::vector<uint8_t> classes;
  ngram::TokenTexts texts{};

  explicit Vocabulary(Random& random, size_t count) {
    for (size_t token = 0; token < count; ++token) {
      if (token > 0 && token <= 256) bytes.push_back(static_cast<uint8_t>(token - 1));
      if (token > 256) {
        for (size_t i = 0; i < 1 + random.below(6); ++i)
          bytes.push_back(static_cast<uint8_t>(" \n:=0123456789abcxyzGET/"[random.below(24)]));
      }
      ends.push_back(static_cast<uint32_t>(bytes.size()));
      // Any number may be there: the kernel takes it modulo their number.
      classes.push_back(static_cast<uint8_t>(random.next()));
    }
    texts = {bytes.data(), ends.data(), classes.data(), count};
  }
};

struct SubwordState {
  size_t slots;
  Table table, text, mixture, kept;

  SubwordState(size_t count, size_t tokens, const Kernels* kernels)
      : slots(count),
        table(4 * count),
        text(ngram::subword_words_of(count)),
        mixture(ngram::subword_mixture::numbers),
        kept(tokens) {
    kernels->ngram_first(mixture.as<float>(), nullptr, Kind::subwords);
  }
  bool operator==(const SubwordState&) const = default;
  bool fences_stand() const {
    return table.fences_stand() && text.fences_stand() && mixture.fences_stand() && kept.fences_stand();
  }
};

std::vector<float> read_subwords(Random& random, const Kernels* kernels, SubwordState& state,
                                 const Vocabulary& vocabulary, const std::vector<int32_t>& tokens,
                                 const std::vector<float>& base, size_t most) {
  const size_t count = vocabulary.texts.count;
  Slice y(tokens.size() * count, random.below(17)), from(base, random.below(17));
  for (size_t row = 0; row < tokens.size();) {
    const size_t rows = std::min(tokens.size() - row, 1 + random.below(most));
    kernels->ngram({state.table.as<int32_t>(), state.text.as<int32_t>(), state.mixture.as<float>(), tokens.data() + row,
                    from.data() + row * count, y.data() + row * count, state.slots, rows, row % 3 != 2,
                    &vocabulary.texts, state.kept.as<float>(), Kind::subwords});
    row += rows;
  }
  CHECK(y.fences_stand() && state.fences_stand());
  return y.values();
}

// Tokens that come back often, in any order.
std::vector<int32_t> some_tokens(Random& random, size_t length, size_t count) {
  std::vector<int32_t> phrase, out;
  while (out.size() < length) {
    if (phrase.empty() || random.below(3) == 0) {
      phrase.clear();
      for (size_t i = 0; i < 2 + random.below(9); ++i) phrase.push_back(static_cast<int32_t>(random.below(count)));
    }
    out.insert(out.end(), phrase.begin(), phrase.end());
  }
  out.resize(length);
  return out;
}

}  // namespace

TEST("ngram: subwords give the same bits on every table, in any cut where nothing is drawn") {
  Random random(506);
  for (const size_t count : {1, 2, 257, 300, 1031}) {
    const Vocabulary vocabulary(random, count);
    const size_t slots = 1024 + 2 * random.below(1500);
    const auto tokens = some_tokens(random, rounds(260), count);
    const auto base = random.floats(tokens.size() * count, -3, 3);
    SubwordState want(slots, count, &generic_kernels);
    std::vector<float> y(tokens.size() * count);
    for (size_t row = 0; row < tokens.size(); ++row)
      generic_kernels.ngram({want.table.as<int32_t>(), want.text.as<int32_t>(), want.mixture.as<float>(),
                             tokens.data() + row, base.data() + row * count, y.data() + row * count, slots, 1, true,
                             &vocabulary.texts, want.kept.as<float>(), Kind::subwords});
    for (const auto* kernels : tables()) {
      SubwordState got(slots, count, kernels);
      Slice out(y.size(), random.below(17));
      for (size_t row = 0; row < tokens.size();) {
        const size_t rows = std::min(tokens.size() - row, 1 + random.below(40));
        kernels->ngram({got.table.as<int32_t>(), got.text.as<int32_t>(), got.mixture.as<float>(), tokens.data() + row,
                        base.data() + row * count, out.data() + row * count, slots, rows, true, &vocabulary.texts,
                        got.kept.as<float>(), Kind::subwords});
        row += rows;
      }
      CHECK(same(out.values(), y));
      CHECK(got == want && got.fences_stand());
    }
  }
}

TEST("ngram: tables of subwords that somebody made up lead nowhere outside them") {
  Random random(507);
  const uint32_t edges[] = {0, 1, 255, 1023, 1024, 65535, 65536, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
  for (int round = 0; round < static_cast<int>(rounds(60)); ++round) {
    const size_t count = 1 + random.below(600), slots = 1024 + 2 * random.below(900);
    const Vocabulary vocabulary(random, count);
    const auto tokens = some_tokens(random, 120, count);
    const auto base = random.floats(tokens.size() * count, -3, 3);
    SubwordState first(slots, count, &generic_kernels);
    read_subwords(random, &generic_kernels, first, vocabulary, tokens, base, 50);
    for (Table* forged : {&first.table, &first.text, &first.mixture, &first.kept}) {
      const size_t every = 1 + random.below(40);
      if (random.below(4) == 0) continue;
      for (auto& word : *forged) {
        if (random.below(every) == 0)
          word = random.below(2) ? edges[random.below(std::size(edges))] : static_cast<uint32_t>(random.next());
      }
    }
    // A token that the vocabulary does not have is taken for the first.
    auto odd = tokens;
    odd[3] = -1, odd[7] = 1 << 30;
    for (const auto* kernels : tables()) {
      SubwordState state = first;
      read_subwords(random, kernels, state, vocabulary, odd, base, 60);
    }
  }
}

TEST(
    "ngram: a slot of subwords keeps tokens of 24 bits, and is told by the bits of a key that do not choose its "
    "place") {
  std::vector<SubwordSlot> slots(1024);
  const uint64_t key = 0x123456789abcdef1;
  const int32_t at = find_slot(slots.data(), slots.size(), key);
  CHECK(at >= 0 && find_slot(slots.data(), slots.size(), key) == at);
  // Another key of the same place.
  const int32_t other = find_slot(slots.data(), slots.size(), key ^ 0x8000);
  CHECK(other == (at ^ 1));
  for (int i = 0; i < 300; ++i) count_token(slots[static_cast<size_t>(at)], 0xffffff);
  count_token(slots[static_cast<size_t>(at)], 5);
  const auto& slot = slots[static_cast<size_t>(at)];
  CHECK(slot.token_at(0) == 0xffffff && slot.count_at(0) == 188 && slot.token_at(1) == 5 && slot.count_at(1) == 1);
  CHECK((slot.check & 3) == 1);
}

TEST("ngram: every table gives the same bits in any cut, with a base and without") {
  Random random(501);
  for (const auto& [slots, kind] : {std::pair<size_t, Kind>{1024, Kind::bytes},
                                    {1030, Kind::bytes},
                                    {5000, Kind::bytes},
                                    {20000, Kind::bytes},
                                    {1024, Kind::small},
                                    {9002, Kind::small}}) {
    const auto tokens = some_text(random, rounds(1200));
    const auto learned = random.floats(ngram::learned_numbers(kind), -0.1f, 0.2f);
    for (const bool based : {false, true}) {
      const auto base = based ? random.floats(tokens.size() * ngram::tokens, -2, 2) : std::vector<float>{};
      State want(slots, &generic_kernels, learned.data(), kind);
      const auto y = read(random, &generic_kernels, want, tokens, base, 1);
      for (const auto* kernels : tables()) {
        for (const size_t most : {7, 300, 5000}) {
          State got(slots, kernels, learned.data(), kind);
          CHECK(same(read(random, kernels, got, tokens, base, most), y));
          CHECK(got == want);
        }
      }
    }
  }
}

TEST("ngram: a base counts where it is, and tokens are taken modulo 256") {
  Random random(502);
  auto tokens = some_text(random, 300);
  State plain(1024, &generic_kernels, nullptr), high(1024, &generic_kernels, nullptr);
  const auto y = read(random, &generic_kernels, plain, tokens, {}, 50);
  for (auto& token : tokens)
    token = static_cast<int32_t>(static_cast<uint32_t>(token) + 256 * static_cast<uint32_t>(random.next()));
  CHECK(same(read(random, &generic_kernels, high, tokens, std::vector<float>(y.size(), 0.0f), 50), y));
  CHECK(high == plain);
}

TEST("ngram: tables that somebody made up lead nowhere outside them") {
  Random random(503);
  const uint32_t edges[] = {0, 1, 255, 1023, 1024, 65535, 65536, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
  for (int round = 0; round < static_cast<int>(rounds(120)); ++round) {
    const auto tokens = some_text(random, 200);
    const size_t slots = 1024 + 2 * random.below(2000),
                 every[3] = {1 + random.below(4), 1 + random.below(30), 1 + random.below(90)};
    State first(slots, &generic_kernels, nullptr, round % 3 == 0 ? Kind::small : Kind::bytes);
    read(random, &generic_kernels, first, some_text(random, 200), {}, 200);
    Table* const forged[] = {&first.table, &first.text, &first.mixture};
    for (size_t which = 0; which < 3; ++which) {
      // Every table is sound now and then.
      if (random.below(4) == 0) continue;
      for (auto& word : *forged[which]) {
        if (random.below(every[which]) == 0)
          word = random.below(2) ? edges[random.below(std::size(edges))] : static_cast<uint32_t>(random.next());
      }
    }
    for (const auto* kernels : tables()) {
      State state = first;
      read(random, kernels, state, tokens, {}, 60);
    }
  }
}

TEST("ngram: a context finds its own slot, takes the free one, then the weaker one of two") {
  std::vector<Slot> slots(1024);
  // Keys of one pair, with checks of their own: multiples of 8, and 4.
  const auto key = [](uint64_t check) { return (check << 50) | 0x1000; };
  const int32_t a = find_slot(slots.data(), slots.size(), key(4));
  CHECK(a >= 0 && slots[a].check == 4);
  CHECK(find_slot(slots.data(), slots.size(), key(4)) == a);
  for (int i = 0; i < 9; ++i) count_token(slots[a], 'a');
  const int32_t b = find_slot(slots.data(), slots.size(), key(12));
  CHECK(b == (a ^ 1) && slots[b].check == 12 && slots[a].count[0] == 9);
  for (int i = 0; i < 3; ++i) count_token(slots[b], 'b');
  // A third one weakens the weaker one, and takes its place once it was seen but once.
  CHECK(find_slot(slots.data(), slots.size(), key(20)) == -1);
  CHECK(slots[b].count[0] == 2 && slots[a].count[0] == 9);
  CHECK(find_slot(slots.data(), slots.size(), key(20)) == -1);
  CHECK(slots[b].count[0] == 1);
  CHECK(find_slot(slots.data(), slots.size(), key(20)) == b);
  CHECK(slots[b].check == 20 && slots[b].count[0] == 0);
  CHECK(find_slot(slots.data(), slots.size(), key(12)) == b && slots[a].count[0] == 9);
}

TEST("ngram: any key falls into a pair of any table") {
  Random random(504);
  for (int round = 0; round < 20000; ++round) {
    const size_t count = 1024 + 2 * random.below(round % 2 ? 40 : 4000);
    std::vector<Slot> slots(count);
    const uint64_t key = round % 3 == 0 ? ~uint64_t{0} >> random.below(64) : random.next();
    const int32_t at = find_slot(slots.data(), count, key);
    CHECK(at >= 0 && static_cast<size_t>(at) < count);
    CHECK(find_slot(slots.data(), count, key) == at);
  }
}

TEST("ngram: a slot keeps the most frequent tokens in order, and which of them came last") {
  Random random(505);
  Slot slot{};
  slot.check = 0x7f4;
  uint32_t rank_of_last = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto token = static_cast<uint8_t>(random.below(random.below(9) == 0 ? 9 : 3));
    count_token(slot, token);
    rank_of_last = slot.check & 3;
    CHECK((slot.check & ~3) == 0x7f4 && rank_of_last < ngram::ranks);
    CHECK(slot.token[rank_of_last] == token && slot.count[rank_of_last] > 0);
    for (size_t rank = 0; rank < ngram::ranks; ++rank) {
      CHECK(slot.count[rank] <= ngram::most_count);
      for (size_t other = 0; other < rank; ++other)
        CHECK(slot.count[rank] == 0 || slot.token[rank] != slot.token[other]);
    }
  }
  for (int i = 0; i < 400; ++i) count_token(slot, 7);
  CHECK(slot.token[0] == 7 && slot.count[0] == ngram::most_count && slot.count[1] <= 1 && slot.count[2] <= 1);
  // One that is new takes the place of the rarest, and what is above it falls by a quarter.
  count_token(slot, 8);
  CHECK(slot.count[0] == 188 && slot.count[1] + slot.count[2] <= 2);
}

}  // namespace continuo::test::ngram_test
