// The engine's ngram memory of bytes for training (memory.py): the same code as inference runs, without its graph.
#define CONTINUO_ISA training
#include <cstdlib>
#include <cstring>

#include "backends/cpu/kernels/ngram.h"

namespace {

using namespace continuo;

template <class T> T* allocate(size_t count) {
  return static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) + 63) / 64 * 64));
}

struct Memory {
  size_t slots;
  const float* learned;
  int32_t *table, *text;
  float* mixture;
};

}  // namespace

extern "C" {

void memory_clear(Memory* memory) {
  std::memset(memory->table, 0, memory->slots * sizeof(ngram::Slot));
  std::memset(memory->text, 0, ngram::words_of(memory->slots) * sizeof(int32_t));
  std::memset(memory->mixture, 0, ngram::mixture::numbers * sizeof(float));
  training::ngram_first(memory->mixture, memory->learned, false);
}

// `learned`: [12,800], null for none; kept, not copied.
Memory* memory_open(size_t slots, const float* learned) {
  auto* memory = new Memory{slots, learned, allocate<int32_t>(2 * slots), allocate<int32_t>(ngram::words_of(slots)),
                            allocate<float>(ngram::mixture::numbers)};
  memory_clear(memory);
  return memory;
}

void memory_close(Memory* memory) {
  std::free(memory->table), std::free(memory->text), std::free(memory->mixture);
  delete memory;
}

float memory_base_weight(const Memory* memory) { return memory->mixture[ngram::mixture::base_weight]; }

// base, y: [rows][256]; base null for none.
void memory_read(Memory* memory, const int32_t* tokens, size_t rows, const float* base, float* y) {
  training::ngram_read_bytes({memory->table, memory->text, memory->mixture, tokens, base, y, memory->slots, rows, true});
}

}
