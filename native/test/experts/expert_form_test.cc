// An expert as it lies in memory against the tensors that it was packed from: its numbers, and its products by the
// kernels, by experts::product and experts::straight.
#include "experts/form.h"
#include "experts/straight.h"
#include "test/experts/expert_sources.h"
#include "test/image.h"
#include "test/kernel_inputs.h"
#include "test/matrices.h"

namespace continuo::test::expert_form_test {

using namespace continuo::experts;

namespace {

constexpr uint32_t groups_of_whole[] = {32, 64};

// Trits and nibbles behind the last input are zeros, as those that write packages have them.
void end_with_zeros(const ExpertShape& shape, Expert& expert) {
  for (size_t which = 0; which < matrices; ++which) {
    const MatrixForm form = form_of(shape, which);
    const size_t per_unit = shape.coding == Coding::ternary3   ? 5
                            : shape.coding == Coding::ternary2 ? 4
                            : shape.coding == Coding::i4       ? 2
                                                               : 1;
    const size_t held = form.inputs - (form.units - 1) * per_unit;
    for (size_t row = 0; row < form.outputs && held < per_unit; ++row) {
      auto& last = expert.codes[which][(row + 1) * form.units - 1];
      unsigned byte = static_cast<unsigned>(last), out = 0;
      const unsigned base = shape.coding == Coding::ternary3 ? 3 : shape.coding == Coding::ternary2 ? 4 : 16;
      const unsigned zero = base == 16 ? 8 : 1;
      for (size_t i = 0, power = 1; i < per_unit; ++i, power *= base, byte /= base)
        out += static_cast<unsigned>(power) * (i < held ? byte % base : zero);
      last = static_cast<std::byte>(out);
    }
  }
}

// Ordinary scales: products of random ones would be infinite half the time.
void tame(Expert& expert, Random& random) {
  for (auto& scales : expert.scales) {
    for (size_t i = 0; i < scales.size(); i += 2) {
      const auto half = static_cast<uint16_t>(0x1800 + random.below(0x2000));
      std::memcpy(scales.data() + i, &half, 2);
    }
  }
}

// One element of a weight matrix, at an output (row) and an input (column): its code as a number, and the scale of its
// group (1 for floats), as docs/experts.md defines each coding.
struct Number {
  float number, scale;
};
Number number_of(const ExpertShape& shape, size_t which, const Expert& expert, size_t row, size_t k) {
  const MatrixForm form = form_of(shape, which);
  const std::byte* codes = expert.codes[which].data();
  if (is_float(shape.coding)) {
    const std::byte* at = codes + (row * form.inputs + k) * form.unit_bytes;
    uint32_t bits = 0;
    std::memcpy(&bits, at, form.unit_bytes);
    if (shape.coding == Coding::f32) return {std::bit_cast<float>(bits), 1};
    return {
        shape.coding == Coding::f16 ? widen_f16(static_cast<uint16_t>(bits)) : widen_bf16(static_cast<uint16_t>(bits)),
        1};
  }
  uint16_t half;
  std::memcpy(&half, expert.scales[which].data() + 2 * (row * form.groups + k / shape.group), 2);
  const auto byte_of = [&](size_t per_unit) { return static_cast<unsigned>(codes[row * form.units + k / per_unit]); };
  float number = 0;
  switch (shape.coding) {
    case Coding::q8: number = static_cast<float>(static_cast<int8_t>(byte_of(1))); break;
    case Coding::i4: number = static_cast<float>(byte_of(2) >> (4 * (k % 2)) & 15) - 8; break;
    case Coding::ternary2: number = static_cast<float>(byte_of(4) >> (2 * (k % 4)) & 3) - 1; break;
    default: {
      unsigned byte = byte_of(5);
      for (size_t i = 0; i < k % 5; ++i) byte /= 3;
      number = static_cast<float>(byte % 3) - 1;
    }
  }
  return {number, widen_f16(half)};
}

// One output by the rule of the kernels.
float by_the_rule(const ExpertShape& shape, size_t which, const Expert& expert, size_t row, const float* x, size_t n) {
  float total = 0;
  for (size_t block = 0; block < n; block += 256) {
    const size_t end = std::min(n, block + 256);
    float sum = 0;
    if (is_float(shape.coding)) {
      for (size_t k = block; k < end; ++k) sum = std::fma(number_of(shape, which, expert, row, k).number, x[k], sum);
    } else {
      for (size_t first = block; first < end; first += shape.group) {
        const size_t count = std::min<size_t>(shape.group, end - first);
        std::vector<int> q(count);
        const float s = quantise_by_the_rule(x + first, count, q.data());
        int dot = 0;
        for (size_t i = 0; i < count; ++i)
          dot += q[i] * static_cast<int>(number_of(shape, which, expert, row, first + i).number);
        sum = std::fma(static_cast<float>(dot), number_of(shape, which, expert, row, first).scale * s, sum);
      }
    }
    total += sum;
  }
  return total;
}

struct Made {
  ExpertShape shape;
  Expert expert;
  std::vector<std::byte> payload, form;
  PackedMatrix matrix(size_t which) const { return matrix_of(shape, which, form.data()); }
};

Made made(Coding coding, uint32_t channels, uint32_t inner, uint32_t group, Random& random) {
  Made out{{coding, channels, inner, is_float(coding) ? 0 : group}, {}, {}, {}};
  out.expert = some_expert(out.shape, random);
  if (is_float(coding)) {
    // Numbers of ordinary size: some_expert's bits are any.
    const size_t size = form_of(out.shape, 0).unit_bytes;
    for (auto& codes : out.expert.codes) {
      for (size_t i = 0; i < codes.size(); i += size)
        put(codes.data() + i,
            coding == Coding::f32   ? Dtype::f32
            : coding == Coding::f16 ? Dtype::f16
                                    : Dtype::bf16,
            random.uniform(-2, 2));
    }
  } else {
    end_with_zeros(out.shape, out.expert);
    tame(out.expert, random);
  }
  out.payload.resize(payload_bytes(out.shape));
  CHECK(pack_record(out.shape, out.expert.source(), out.payload));
  out.form.resize(form_bytes(out.shape));
  to_form(out.shape, out.payload, out.form.data());
  return out;
}

// Sizes around units, groups, tiles and blocks.
uint32_t some_size(Random& random) {
  constexpr uint32_t sizes[] = {1,  2,  4,   5,   6,   31,  32,  33,  63,  64,  65,
                                71, 96, 127, 128, 191, 255, 256, 257, 300, 320, 517};
  return sizes[random.below(std::size(sizes))];
}

std::vector<float> some_row(Random& random, size_t n, size_t kind) {
  auto x = random.floats(n, -3, 3);
  // Groups that are all zero, groups of large and of small numbers, ties.
  for (size_t first = 0; first < n; first += 32) {
    const float factor = kind == 0              ? 1.0f
                         : random.below(5) == 0 ? 0.0f
                                                : std::ldexp(1.0f, static_cast<int>(random.below(30)) - 15);
    for (size_t i = first; i < std::min(n, first + 32); ++i) x[i] *= factor;
  }
  return x;
}

}  // namespace

TEST("expert form: turns back into the record that it was made of, in every coding, for any sizes") {
  Random random(501);
  for (const Coding coding : all_codings) {
    for (const uint32_t group : groups_of_whole) {
      for (int round = 0; round < 12; ++round) {
        const auto own = made(coding, some_size(random), some_size(random), group, random);
        std::vector<std::byte> back(own.payload.size(), std::byte{7});
        from_form(own.shape, own.form.data(), back);
        CHECK(back == own.payload);
      }
    }
  }
}

TEST("expert form: what lies behind the last input of a row multiplies nothing") {
  Random random(502);
  ThreadPool pool(1);
  for (const Coding coding : {Coding::ternary3, Coding::ternary2, Coding::i4}) {
    const ExpertShape shape{coding, 33, 41, 32};
    Expert dirty = some_expert(shape, random);
    tame(dirty, random);
    Expert clean = dirty;
    end_with_zeros(shape, clean);
    std::vector<std::vector<float>> products;
    for (const Expert* expert : {&dirty, &clean}) {
      std::vector<std::byte> payload(payload_bytes(shape)), form(form_bytes(shape));
      CHECK(pack_record(shape, expert->source(), payload));
      to_form(shape, payload, form.data());
      Random same_row(503);
      products.push_back(
          product(*runnable_kernels().front(), pool, matrix_of(shape, 0, form.data()), same_row.floats(33, -2, 2), 1));
    }
    CHECK(same_numbers(products[0], products[1]));
  }
}

TEST("expert form: every table's products have the bits of the rule over the source's numbers, in every coding") {
  Random random(504);
  ThreadPool pool(2);
  for (const Coding coding : all_codings) {
    for (const uint32_t group : groups_of_whole) {
      for (int round = 0; round < 5; ++round) {
        const auto own = made(coding, some_size(random), some_size(random), group, random);
        for (size_t which = 0; which < matrices; ++which) {
          const auto m = own.matrix(which);
          const size_t rows = 1 + random.below(3);
          std::vector<float> x, want;
          for (size_t r = 0; r < rows; ++r) {
            const auto row = some_row(random, m.inputs, static_cast<size_t>(round));
            x.insert(x.end(), row.begin(), row.end());
            for (size_t n = 0; n < m.outputs; ++n)
              want.push_back(by_the_rule(own.shape, which, own.expert, n, row.data(), m.inputs));
          }
          for (const auto* table : tables()) CHECK(same_numbers(product(*table, pool, m, x, rows), want));
        }
      }
    }
  }
}

TEST("expert product: has the kernels' bits, also where a row holds what is not finite") {
  Random random(505);
  ThreadPool pool(1);
  for (const Coding coding : {Coding::q8, Coding::i4, Coding::ternary3, Coding::ternary2}) {
    for (const uint32_t group : groups_of_whole) {
      for (int round = 0; round < 8; ++round) {
        const auto own = made(coding, some_size(random), some_size(random), group, random);
        for (size_t which = 0; which < matrices; ++which) {
          const auto m = own.matrix(which);
          const auto x = round % 4 == 3 ? every_kind(random, m.inputs) : some_row(random, m.inputs, round % 2);
          std::vector<float> y(m.outputs);
          experts::product(m, x.data(), y.data());
          CHECK(same_numbers(y, test::product(*runnable_kernels().front(), pool, m, x, 1)));
        }
      }
    }
  }
}

TEST("expert straight: within the derived error of the exact product with the row as it is") {
  Random random(506);
  for (const Coding coding : {Coding::q8, Coding::i4, Coding::ternary3, Coding::ternary2}) {
    for (const uint32_t group : groups_of_whole) {
      for (int round = 0; round < 6; ++round) {
        const auto own = made(coding, some_size(random), some_size(random), group, random);
        for (size_t which = 0; which < matrices; ++which) {
          const auto m = own.matrix(which);
          const auto x = some_row(random, m.inputs, round % 2);
          std::vector<float> y(m.outputs);
          straight(m, x.data(), y.data());
          for (size_t row = 0; row < m.outputs; ++row) {
            double exact = 0, size = 0;
            for (size_t k = 0; k < m.inputs; ++k) {
              const auto [number, scale] = number_of(own.shape, which, own.expert, row, k);
              exact += double{number} * scale * x[k];
              size += std::abs(double{number} * scale * x[k]);
            }
            // A term, its place in its group's sum, the scale, and the group's place in the whole.
            const double roundings = static_cast<double>(1 + group + 1 + m.groups());
            CHECK(std::abs(y[row] - exact) <= roundings * unit * size + 1e-40);
          }
        }
      }
    }
  }
}

}  // namespace continuo::test::expert_form_test
