// What the tokens of a vocabulary are to a memory of subwords (graph/ngram.h), on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/ngram.h"

namespace continuo {

struct Program;
struct TokenBytes;

namespace ngram {

struct Subwords {
  std::vector<uint8_t> bytes;
  std::vector<uint32_t> ends;
  std::vector<uint8_t> classes;

  Subwords() = default;
  // Of so many tokens; those that the vocabulary does not have stand for nothing.
  Subwords(const TokenBytes& vocabulary, size_t count);
  TokenTexts texts() const { return {bytes.data(), ends.data(), classes.data(), ends.size()}; }
};

// The most tokens that a memory of subwords in these programs tells apart; 0 without one.
size_t subwords_in(const std::vector<Program>& programs);

}  // namespace ngram
}  // namespace continuo
