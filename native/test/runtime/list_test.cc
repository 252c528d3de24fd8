// Rows of the list of an external memory, on every instruction set.
#include "test/runtime/lists.h"

namespace continuo::test::list_test {

TEST("list: every table reads and turns rows by the written rule, for every type, size and kind of number") {
  Random random(311);
  for (int round = 0; round < 60; ++round) {
    const auto list = some_list(random, list_types[round % 4]);
    for (size_t slot = 0; slot < list.slots; ++slot) {
      const size_t layer = random.below(list.layers), which = random.below(keys_and_values);
      const auto want = rule_of(list, slot, layer, which);
      for (const auto* table : runnable_kernels()) {
        Slice to(std::vector<float>(want.size()), random.below(17));
        table->rerotate_kv(
            {list.kept.data() + list.begin(slot, which) + layer * list.from_layer, to.data(),
             list.type == Type::f8 ? &list.exponents[(layer * keys_and_values + which) * list.heads] : nullptr,
             list.from_head, list.heads, list.channels, list.pairs, which == 0 ? list.increments.data() : nullptr,
             static_cast<uint32_t>(slot), list.type});
        CHECK(to.fences_stand());
        CHECK(same(to.values(), want));
      }
    }
  }
}

}  // namespace continuo::test::list_test
