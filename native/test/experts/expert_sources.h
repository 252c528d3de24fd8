// Shared by the tests of experts: the tensors of an expert, random in any coding.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "experts/record.h"
#include "test/check.h"

namespace continuo::test {

inline constexpr std::array all_codings{experts::Coding::q8,       experts::Coding::i4,  experts::Coding::ternary3,
                                        experts::Coding::ternary2, experts::Coding::f32, experts::Coding::f16,
                                        experts::Coding::bf16};

// A byte that the coding has, and, at random, any other one.
inline std::byte code(experts::Coding coding, Random& random) {
  if (coding == experts::Coding::ternary3) return static_cast<std::byte>(random.below(243));
  if (coding == experts::Coding::q8) return static_cast<std::byte>(static_cast<int8_t>(random.below(255)) - 127);
  if (coding != experts::Coding::ternary2) return static_cast<std::byte>(random.below(256));
  unsigned byte = 0;
  for (size_t i = 0; i < 4; ++i) byte |= static_cast<unsigned>(random.below(3)) << (2 * i);
  return static_cast<std::byte>(byte);
}

// The tensors of an expert, and the memory that they lie in.
struct Expert {
  std::array<std::vector<std::byte>, experts::matrices> codes, scales;
  experts::ExpertSource source() const {
    experts::ExpertSource out;
    for (size_t which = 0; which < experts::matrices; ++which) out[which] = {codes[which], scales[which]};
    return out;
  }
};

inline Expert some_expert(const experts::ExpertShape& shape, Random& random) {
  Expert out;
  for (size_t which = 0; which < experts::matrices; ++which) {
    const experts::MatrixForm form = experts::form_of(shape, which);
    for (size_t i = 0; i < form.source_codes(); ++i) out.codes[which].push_back(code(shape.coding, random));
    out.scales[which].resize(form.source_scales());
    for (size_t i = 0; i < form.source_scales(); i += 2) {
      const auto scale = static_cast<uint16_t>(random.below(0x7C00));
      std::memcpy(out.scales[which].data() + i, &scale, 2);
    }
  }
  return out;
}

inline experts::ExpertShape shape_of(experts::Coding coding, uint32_t channels, uint32_t inner) {
  return {coding, channels, inner, experts::is_float(coding) ? 0u : 32u};
}

}  // namespace continuo::test
