#include "runtime/memory/payload.h"

#include <cmath>
#include <cstring>

#include "backends/cpu/kernels/kernels.h"
#include "test/check.h"

namespace continuo::test::payload_test {

namespace {

ExternalMemory some_memory(Type cold, size_t B, size_t L, size_t G, size_t d) {
  ExternalMemory memory;
  memory.block = B, memory.layers = L, memory.key_heads = G, memory.channels = d, memory.cold = cold;
  return memory;
}

// The E4M3 number nearest to x, the even one of two, in double; |x| ≤ 464.
double nearest_f8(double x) {
  if (x == 0) return x;
  const int e = std::max(-6, std::ilogb(x));
  const double step = std::ldexp(1.0, e - 3);
  return std::nearbyint(x / step) * step;
}

struct Rows {
  size_t B, C;
  std::vector<float> numbers;  // [L, 2, B, C]
  const float* operator()(size_t l, size_t which, size_t token, float* = nullptr) const {
    return numbers.data() + ((l * keys_and_values + which) * B + token) * C;
  }
};

uint32_t number_at(const std::vector<std::byte>& bytes, size_t at, size_t count) {
  uint32_t out = 0;
  for (size_t i = 0; i < count; ++i) out |= static_cast<uint32_t>(bytes[at + i]) << (8 * i);
  return out;
}

}  // namespace

TEST("f8_exponent is the least whole number with most ≤ 448 · 2^e, within −120 and 120") {
  Random random(5);
  std::vector<float> numbers{448, 448.00003f, 447.99997f, 224, 224.00002f, 1, 0x1p-149f, 0x1.fffffep127f, 896};
  for (size_t i = 0; i < 2000; ++i)
    numbers.push_back(std::ldexp(random.uniform(0.5f, 1), static_cast<int>(random.below(276)) - 148));
  for (const float most : numbers) {
    const int e = f8_exponent(most);
    CHECK(e >= -120 && e <= 120);
    CHECK(double{most} <= std::ldexp(448.0, e) || e == 120);
    CHECK(e == -120 || double{most} > std::ldexp(448.0, e - 1));
  }
  CHECK(f8_exponent(0) == 0);
}

TEST("payload: has its bytes, and reads back what the cast of each number gives, for any sizes and any magnitudes") {
  Random random(6);
  ThreadPool pool(2);
  for (const Type cold : {Type::f8, Type::f16, Type::f32}) {
    for (size_t turn = 0; turn < 30; ++turn) {
      const auto memory =
          some_memory(cold, 4 + random.below(20), 1 + random.below(3), 1 + random.below(3), 2 * (1 + random.below(9)));
      const size_t B = memory.block, L = memory.layers, G = memory.key_heads, d = memory.channels;
      Rows rows{B, G * d, random.floats(L * keys_and_values * B * G * d, -3, 3)};
      // Heads of very different size, one of them all zeros.
      for (size_t i = 0; i < rows.numbers.size(); ++i) {
        const size_t head = i / d % G, layer = i / (keys_and_values * B * G * d);
        if (cold == Type::f8) rows.numbers[i] = std::ldexp(rows.numbers[i], static_cast<int>(head * 20) - 30);
        if (head == 0 && layer == 0 && turn % 3 == 0) rows.numbers[i] = 0;
      }
      const Payload payload(memory);
      CHECK(payload.bytes() == payload_bytes(memory));
      std::vector<std::byte> bytes(payload.bytes(), std::byte{0xEE});
      const auto squares = payload.encode(static_cast<uint32_t>(turn), rows, pool, bytes);
      CHECK(std::memcmp(bytes.data(), "CNTB", 4) == 0);
      CHECK(number_at(bytes, 4, 2) == 1);
      CHECK(number_at(bytes, 6, 2) == (cold == Type::f8 ? 0u : cold == Type::f16 ? 1u : 2u));
      const size_t header[] = {B, L, G, d, turn};
      for (size_t i = 0; i < std::size(header); ++i) CHECK(number_at(bytes, 8 + 4 * i, 4) == header[i]);
      double sums[keys_and_values] = {};
      std::vector<float> out;
      for (size_t l = 0; l < L; ++l) {
        for (size_t which = 0; which < keys_and_values; ++which) {
          std::vector<float> most(G);
          for (size_t token = 0; token < B; ++token)
            for (size_t i = 0; i < G * d; ++i) most[i / d] = std::max(most[i / d], std::fabs(rows(l, which, token)[i]));
          for (size_t token = 0; token < B; ++token) {
            const auto row = payload.row(bytes.data(), token);
            const auto* exponents = cold == Type::f8 ? reinterpret_cast<const int8_t*>(row.exponents) : nullptr;
            for (const auto* table : runnable_kernels()) {
              std::vector<float> read(G * d);
              table->rerotate_kv({row.from[which] + l * row.from_layer, read.data(),
                                  exponents ? exponents + (l * keys_and_values + which) * G : nullptr, row.from_head, G,
                                  d, d / 2, nullptr, 0, row.type});
              CHECK(table == runnable_kernels().front() || read == out);
              out = std::move(read);
            }
            for (size_t i = 0; i < G * d; ++i) {
              const double x = double{rows(l, which, token)[i]};
              const int e = f8_exponent(most[i / d]);
              if (cold == Type::f8) CHECK(double{out[i]} == std::ldexp(nearest_f8(std::ldexp(x, -e)), e));
              if (cold == Type::f16) CHECK(std::fabs(double{out[i]} - x) <= std::fabs(x) * 0x1p-11 + 0x1p-25);
              if (cold == Type::f32) CHECK(double{out[i]} == x);
              sums[which] += double{out[i]} * double{out[i]};
            }
          }
        }
      }
      CHECK(std::fabs(squares.keys - sums[0]) <= 1e-12 * sums[0]);
      CHECK(std::fabs(squares.values - sums[1]) <= 1e-12 * sums[1]);
    }
  }
}

}  // namespace continuo::test::payload_test
