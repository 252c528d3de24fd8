#include "base/cast.h"

#include <bit>
#include <cmath>
#include <vector>

#include "test/check.h"

namespace continuo::test::cast_test {

namespace {

template <class T> std::byte* bytes(std::vector<T>& values) { return reinterpret_cast<std::byte*>(values.data()); }

// f32 numbers of every exponent and sign: beside each tie between two numbers with 3, 7 and 10 bits behind the point,
// and random ones.
std::vector<float> numbers() {
  std::vector<float> out;
  Random random(77);
  for (uint32_t exponent = 0; exponent < 512; ++exponent) {
    const auto put = [&](uint32_t fraction) {
      out.push_back(std::bit_cast<float>(exponent << 23 | (fraction & 0x7FFFFF)));
    };
    for (const int kept : {3, 7, 10}) {
      const uint32_t half = 1u << (22 - kept);
      for (uint32_t i = 0; i < 16; ++i) {
        const uint32_t tie = static_cast<uint32_t>(random.below(1u << kept)) * 2 * half + half;
        for (const uint32_t fraction : {tie, tie - 1, tie + 1, tie - half, 0u, 0x7FFFFFu}) put(fraction);
      }
    }
    // Subnormals of narrow formats have ties at every place.
    for (int place = 0; place < 23; ++place)
      for (const uint32_t near : {0u, 1u, 0xFFFFFFFFu}) put((1u << place) + near);
    for (size_t i = 0; i < 400; ++i) put(static_cast<uint32_t>(random.next()));
  }
  return out;
}

}  // namespace

TEST("cast: runs of f32 to f16, bf16 and f8, and back, have the bits of each number cast by itself") {
  auto in = numbers();
  for (const Type type : {Type::f16, Type::bf16, Type::f8}) {
    std::vector<uint8_t> run(in.size() * size_of(type)), each(run.size());
    cast(bytes(in), Type::f32, bytes(run), type, in.size());
    for (size_t i = 0; i < in.size(); ++i) write_number(bytes(each), type, i, double{in[i]});
    CHECK(run == each);
    std::vector<float> wide(in.size());
    cast(bytes(run), type, bytes(wide), Type::f32, in.size());
    bool same = true;
    for (size_t i = 0; i < in.size(); ++i) {
      const double one = read_number(bytes(run), type, i);
      same = same && (std::isnan(one) ? std::isnan(wide[i])
                                      : one == double{wide[i]} && std::signbit(one) == std::signbit(wide[i]));
    }
    CHECK(same);
  }
  // Every bit pattern of 16 bits, NaN of either kind among them.
  std::vector<uint16_t> patterns(1 << 16);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  for (const Type type : {Type::f16, Type::bf16}) {
    std::vector<uint32_t> wide(patterns.size());
    cast(bytes(patterns), type, bytes(wide), Type::f32, patterns.size());
    for (size_t i = 0; i < patterns.size(); ++i) {
      const double one = read_number(bytes(patterns), type, i);
      const auto found = std::bit_cast<float>(wide[i]);
      CHECK(std::isnan(one) ? std::isnan(found) && (wide[i] & 0x400000) != 0 : one == double{found});
    }
  }
  for (size_t i = 0; i < in.size(); ++i) {
    std::byte code{};
    write_number(&code, Type::f8, 0, double{in[i]});
    CHECK(static_cast<uint8_t>(code) == narrow_f8(in[i]));
  }
}

}  // namespace continuo::test::cast_test
