// Tables that grow, against dense copies on the host: through growth, writes, lowering, forks and paging.
#include "runtime/state/blocks.h"

#include <algorithm>

#include "backends/cpu/device.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cuda/cuda.h"
#include "test/kernel_inputs.h"

namespace continuo::test::blocks_test {

namespace {

constexpr size_t bound = 1500;

StateSlice slice_of(size_t outer, size_t inner) {
  StateSlice slice{0, Type::f32};
  slice.counter = 0;
  slice.outer = outer, slice.inner = inner;
  return slice;
}

// A table, and the same numbers as [outer][positions][inner].
struct Twin {
  BlockTable table;
  std::vector<std::vector<float>> want;  // [outer][positions · inner]
  size_t positions = 0;
  bool out = false;
};

class Family {
 public:
  Family(std::shared_ptr<Device> on, size_t outer, size_t inner, double first, uint64_t seed)
      : device(std::move(on)), slice(slice_of(outer, inner)), init(first), random(seed) {
    twins.push_back({BlockTable(device, slice, init), std::vector<std::vector<float>>(outer), 0, false});
  }

  void raise(Twin& twin, size_t to) {
    twin.table.reserve(to, bound);
    for (auto& part : twin.want) part.resize(to * slice.inner, static_cast<float>(init));
    twin.positions = to;
  }
  void write(Twin& twin) {
    const size_t part = random.below(slice.outer), position = random.below(twin.positions);
    const auto numbers = random.floats(slice.inner, -1, 1);
    device->upload(twin.table.write(part, position), reinterpret_cast<const std::byte*>(numbers.data()),
                   numbers.size() * sizeof(float));
    std::copy(numbers.begin(), numbers.end(), twin.want[part].begin() + static_cast<ptrdiff_t>(position * slice.inner));
  }
  void lower(Twin& twin, size_t to) {
    twin.table.lower(to, twin.positions);
    for (auto& part : twin.want) part.resize(to * slice.inner);
    twin.positions = to;
  }
  Twin fork(Twin& twin) { return {twin.table.fork(twin.positions, bound), twin.want, twin.positions, false}; }

  std::vector<float> numbers(const Twin& twin) const {
    std::vector<Piece> pieces;
    twin.table.each_piece(0, twin.positions,
                          [&](const std::byte* data, size_t bytes) { pieces.push_back({data, bytes}); });
    std::vector<float> out(slice.outer * twin.positions * slice.inner);
    device->download(reinterpret_cast<std::byte*>(out.data()), pieces);
    return out;
  }
  bool stands(const Twin& twin) const {
    std::vector<float> want;
    for (const auto& part : twin.want) want.insert(want.end(), part.begin(), part.end());
    return same(numbers(twin), want);
  }

  std::shared_ptr<Device> device;
  const StateSlice slice;
  const double init;
  Random random;
  std::vector<Twin> twins;
};

std::vector<std::shared_ptr<Device>> devices() {
  std::vector<std::shared_ptr<Device>> out{cpu_device(*runnable_kernels().front())};
  if (auto cuda = open_cuda()) out.push_back(*cuda);
  return out;
}

}  // namespace

TEST(
    "table blocks: tables and their forks hold what was written to each, whatever grows, is lowered, paged or "
    "dropped") {
  for (const auto& device : devices()) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      Family family(device, 1 + seed % 3, 1 + seed % 5, seed % 2 ? 0.0 : 0.5, seed);
      auto& random = family.random;
      for (int turn = 0; turn < 150; ++turn) {
        auto& twin = family.twins[random.below(family.twins.size())];
        const size_t what = random.below(16);
        if (what == 15) {
          // Every hold on a block may be paged out; the block must come back for the holders that remain.
          if (twin.out)
            twin.table.page_in();
          else
            twin.table.page_out();
          twin.out = !twin.out;
          continue;
        }
        if (what == 14 && family.twins.size() > 1) {
          // The first one too, whose blocks the others share; and one that is paged out.
          std::swap(twin, family.twins.back());
          family.twins.pop_back();
          continue;
        }
        if (twin.out) continue;
        if (what < 5)
          family.raise(twin, std::min(bound, twin.positions + random.below(random.below(3) ? 40 : 400)));
        else if (what < 10 && twin.positions > 0)
          family.write(twin);
        else if (what == 10)
          family.lower(twin, random.below(twin.positions + 1));
        else if (what < 14 && family.twins.size() < 6) {
          auto child = family.fork(twin);
          family.twins.push_back(std::move(child));
        }
        for (const auto& each : family.twins) CHECK(each.out || family.stands(each));
      }
      for (auto& twin : family.twins) {
        if (twin.out) twin.table.page_in();
        CHECK(family.stands(twin));
      }
    }
  }
}

TEST("table blocks: what is full is never copied again, and a short table is small") {
  for (const auto& device : devices()) {
    Family family(device, 2, 3, 0, 31);
    auto& twin = family.twins[0];
    constexpr size_t each = 2 * 3 * sizeof(float);
    for (const auto& [positions, room] :
         {std::pair<size_t, size_t>{1, 16}, {16, 16}, {17, 32}, {200, 256}, {257, 272}}) {
      family.raise(twin, positions);
      CHECK(twin.table.room() == room && twin.table.held() == room * each);
    }
    const auto* first = twin.table.read(0, 0);
    family.raise(twin, bound);
    // The bound cuts the last block short.
    CHECK(twin.table.room() == bound && twin.table.read(0, 0) == first);
  }
}

TEST("table blocks: forks take memory for what they change, and a shared block is counted once") {
  for (const auto& device : devices()) {
    Family family(device, 1, 8, 0, 32);
    constexpr size_t each = 8 * sizeof(float), block = 256 * each;
    // Of one holder alone: its last block, and its directory.
    constexpr size_t own = 32 * each + 8 * sizeof(BlockAt);
    family.raise(family.twins[0], 3 * 256 + 20);
    CHECK(family.twins[0].table.bytes() == 3 * block + own);
    for (int i = 0; i < 20; ++i) family.twins.push_back(family.fork(family.twins[0]));
    const auto total = [&] {
      size_t sum = 0;
      for (auto& twin : family.twins) sum += twin.table.bytes();
      return sum;
    };
    CHECK(total() == 3 * block + 21 * own);
    const auto* shared = family.twins[0].table.read(0, 300);
    for (auto& twin : family.twins) CHECK(twin.table.read(0, 300) == shared);
    // A write, and a counter that goes back into a shared block, copy that block alone.
    (void)family.twins[1].table.write(0, 300);
    CHECK(family.twins[1].table.read(0, 300) != shared && family.twins[2].table.read(0, 300) == shared);
    CHECK(family.twins[1].table.read(0, 10) == family.twins[2].table.read(0, 10));
    CHECK(total() == 4 * block + 21 * own);
    family.lower(family.twins[2], 300);
    CHECK(family.twins[2].table.read(0, 299) != shared + (299 - 300) * static_cast<ptrdiff_t>(each));
    CHECK(family.stands(family.twins[2]) && family.stands(family.twins[0]));
    // Whoever made the blocks may go first: another holder counts them then.
    family.twins.erase(family.twins.begin());
    CHECK(total() == 4 * block + 20 * own + block - 32 * each);
  }
}

TEST("table blocks: forks of a ring share its blocks, and a step's blocks are copied before it, whatever the lap") {
  for (const auto& device : devices()) {
    constexpr size_t places = 4 * 256;
    Family family(device, 2, 3, 0.5, 34);
    family.raise(family.twins[0], places);
    for (int i = 0; i < 40; ++i) family.write(family.twins[0]);
    const auto shared = [&](const Twin& twin) {
      std::string out;
      for (size_t at = 0; at < places; at += 256)
        out += twin.table.read(0, at) == family.twins[0].table.read(0, at) ? 's' : 'o';
      return out;
    };
    struct Case {
      size_t first, last;
      std::string after;
    };
    for (const auto& [first, last, after] : {Case{0, 0, "ssss"}, Case{255, 256, "osss"}, Case{255, 257, "ooss"},
                                             Case{7 * places + 1020, 7 * places + 1025, "osso"},
                                             Case{3 * places + 300, 5 * places, "oooo"}, Case{512, 768, "ssos"}}) {
      auto child = family.fork(family.twins[0]);
      CHECK(shared(child) == "ssss");
      child.table.prepare(first, last);
      CHECK(shared(child) == after && child.table.count() == 4);
      // A step writes into what is its own now.
      const auto* there = child.table.read(0, first % places);
      if (first < last) CHECK(child.table.write(0, first % places) == there);
      CHECK(family.stands(child) && family.stands(family.twins[0]));
      child.table.clear(0, 2, 0, places);
      for (auto& part : child.want) std::fill(part.begin(), part.end(), 0.5f);
      CHECK(family.stands(child) && family.stands(family.twins[0]));
    }
  }
}

TEST(
    "table blocks: a shared block leaves the device when the last of its holders does, and a directory follows the "
    "blocks") {
  auto opened = open_cuda();
  if (!opened) {
    CHECK_SAYS(opened, "CUDA");
    return;
  }
  const auto& device = *opened;
  Family family(device, 1, 4, 0, 33);
  family.raise(family.twins[0], 512);
  for (int i = 0; i < 40; ++i) family.write(family.twins[0]);
  family.twins.push_back(family.fork(family.twins[0]));
  auto &parent = family.twins[0], &child = family.twins[1];
  const auto* there = parent.table.read(0, 0);
  const auto listed = [&](Twin& twin) {
    auto& table = twin.table;
    std::vector<BlockAt> list(2);
    const Piece piece{reinterpret_cast<const std::byte*>(table.directory()), 2 * sizeof(BlockAt)};
    device->download(reinterpret_cast<std::byte*>(list.data()), {&piece, 1});
    return list[0].data == table.read(0, 0) && list[1].data == table.read(0, 256) && list[1].room == 256;
  };
  CHECK(listed(parent) && listed(child));
  parent.table.page_out();
  CHECK(child.table.read(0, 0) == there && family.stands(child));
  child.table.page_out();
  CHECK(child.table.read(0, 0) == nullptr);
  child.table.page_in();
  CHECK(family.stands(child) && listed(child));
  // The holder that is paged in goes: the block waits on the host for the other one.
  family.twins.pop_back();
  CHECK(parent.table.read(0, 0) == nullptr);
  parent.table.page_in();
  CHECK(family.stands(parent) && listed(parent));
}

}  // namespace continuo::test::blocks_test
