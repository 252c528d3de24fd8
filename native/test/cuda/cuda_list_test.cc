// Rows of the list of an external memory, on the device.
#include "backends/cuda/kernels/kernels.h"
#include "test/cuda/staged.h"
#include "test/runtime/lists.h"

namespace continuo::test::cuda_list_test {

TEST("cuda list: rows have the bits of the written rule, for every type, size and kind of number") {
  Random random(312);
  for (int round = 0; round < 40; ++round) {
    const auto list = some_list(random, list_types[round % 4]);
    const size_t C = list.heads * list.channels;
    std::vector<float> got(list.slots * list.layers * keys_and_values * C, 7.0f);
    {
      Staged staged;
      const auto* kept = staged.in(list.kept.data(), list.kept.size());
      const auto* exponents =
          reinterpret_cast<const std::byte*>(staged.in(list.exponents.data(), list.exponents.size()));
      auto* to = reinterpret_cast<std::byte*>(staged.both(got.data(), got.size()));
      std::vector<ListRow> rows(list.slots);
      for (size_t slot = 0; slot < list.slots; ++slot) {
        auto& row = rows[slot];
        for (size_t which = 0; which < keys_and_values; ++which) {
          row.from[which] = kept + list.begin(slot, which);
          row.to[which] = to + (slot * list.layers * keys_and_values + which) * C * sizeof(float);
        }
        row.exponents = exponents;
        row.from_layer = list.from_layer, row.from_head = list.from_head;
        row.to_layer = keys_and_values * C * sizeof(float);
        row.type = list.type;
      }
      const auto narrow = [](size_t n) { return static_cast<uint32_t>(n); };
      cuda::lay({staged.in(rows.data(), rows.size()), narrow(list.slots), narrow(list.layers), narrow(list.heads),
                 narrow(list.channels), narrow(list.pairs), staged.in(list.increments.data(), list.increments.size())},
                nullptr);
    }
    for (size_t slot = 0; slot < list.slots; ++slot) {
      for (size_t layer = 0; layer < list.layers; ++layer) {
        for (size_t which = 0; which < keys_and_values; ++which) {
          const auto* from = &got[((slot * list.layers + layer) * keys_and_values + which) * C];
          CHECK(same(std::vector<float>(from, from + C), rule_of(list, slot, layer, which)));
        }
      }
    }
  }
}

}  // namespace continuo::test::cuda_list_test
