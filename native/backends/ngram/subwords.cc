#include "backends/ngram/subwords.h"

#include <algorithm>

#include "compile/arrange.h"
#include "runtime/scheduler/work.h"

#define CONTINUO_INLINE inline
#include "backends/ngram/text.h"

namespace continuo::ngram {

Subwords::Subwords(const TokenBytes& vocabulary, size_t count) {
  for (size_t token = 0; token < count; ++token) {
    const auto of = vocabulary.of(static_cast<int32_t>(token));
    bytes.insert(bytes.end(), of.begin(), of.end());
    ends.push_back(static_cast<uint32_t>(bytes.size()));
    classes.push_back(static_cast<uint8_t>(token_class(bytes.data() + bytes.size() - of.size(), of.size())));
  }
}

size_t subwords_in(const std::vector<Program>& programs) {
  size_t out = 0;
  for (const auto& program : programs) {
    const auto look = [&](const Instruction& instruction, bool) {
      if (reads_subwords(*instruction.node))
        out = std::max<size_t>(out, program.values[instruction.in[1].id].bytes / sizeof(float));
    };
    for (const auto& instruction : program.code) each_instruction(instruction, look);
  }
  return out;
}

}  // namespace continuo::ngram
