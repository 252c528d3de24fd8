// The way of a list's rows from the host to the device: lists laid one after another, larger than the staging, and with
// little memory.
#include <algorithm>
#include <atomic>
#include <thread>

#include "backends/cuda/cuda.h"
#include "backends/cuda/device.h"
#include "base/threads.h"
#include "test/cuda/emulated.h"
#include "test/runtime/lists.h"

namespace continuo::test::cuda_lay_test {

namespace {

// A list in the host's memory, and where it is to lie on the device.
class Laid {
 public:
  // `padding`: bytes of each source that no row needs. `own`: every third row lies in the device's memory already.
  Laid(std::shared_ptr<Device> device, Random& random, Type type, size_t padding = 0, bool own = true)
      : list_(some_list(random, type)),
        device_(std::move(device)),
        to_(device_, list_.slots * list_.layers * keys_and_values * width() * sizeof(float)) {
    const size_t bytes = list_.layers * list_.from_layer, exponents = list_.exponents.size();
    const size_t keys_at = (exponents + 63) / 64 * 64;
    for (size_t slot = 0; slot < list_.slots; ++slot) {
      auto& row = rows_.emplace_back();
      row.from_layer = list_.from_layer, row.from_head = list_.from_head;
      row.to_layer = keys_and_values * width() * sizeof(float);
      row.type = type;
      for (size_t which = 0; which < keys_and_values; ++which)
        row.to[which] = to_.data() + (slot * list_.layers * keys_and_values + which) * width() * sizeof(float);
      const auto* keys = list_.kept.data() + list_.begin(slot, 0);
      if (type != Type::f8 && own && slot % 3 == 2) {
        auto& there = there_.emplace_back(device_, keys_and_values * bytes);
        device_->upload(there.data(), keys, there.size());
        for (size_t which = 0; which < keys_and_values; ++which) row.from[which] = there.data() + which * bytes;
        continue;
      }
      // As in a payload: one source for exponents, keys and values; or one each, as in a table.
      auto& here = here_.emplace_back(keys_at + keys_and_values * bytes + padding);
      std::memcpy(here.data(), list_.exponents.data(), exponents);
      std::memcpy(here.data() + keys_at, keys, keys_and_values * bytes);
      const bool payload = type == Type::f8;
      if (payload) row.exponents = here.data();
      for (size_t which = 0; which < keys_and_values; ++which) {
        row.from[which] = here.data() + keys_at + which * bytes;
        if (which == 0 && payload) sources_.push_back({here.data(), here.size()});
        if (!payload) sources_.push_back({row.from[which], bytes + (which == 1 ? padding : 0)});
        row.source[which] = static_cast<int32_t>(sources_.size() - 1);
      }
    }
  }

  void lay(ThreadPool& pool) {
    device_->lay({rows_, sources_, list_.layers, list_.heads, list_.channels, list_.increments}, pool);
  }
  // What the host had may change when lay() has returned.
  void spoil() {
    for (auto& here : here_) std::fill(here.begin(), here.end(), std::byte{0x55});
  }
  bool right() {
    std::vector<float> got(to_.size() / sizeof(float));
    const Piece all{to_.data(), to_.size()};
    device_->download(reinterpret_cast<std::byte*>(got.data()), {&all, 1});
    bool right = true;
    for (size_t slot = 0; slot < list_.slots; ++slot) {
      for (size_t layer = 0; layer < list_.layers; ++layer) {
        for (size_t which = 0; which < keys_and_values; ++which) {
          const auto* from = &got[((slot * list_.layers + layer) * keys_and_values + which) * width()];
          right = right && same(std::vector<float>(from, from + width()), rule_of(list_, slot, layer, which));
        }
      }
    }
    return right;
  }

 private:
  size_t width() const { return list_.heads * list_.channels; }

  const List list_;
  std::shared_ptr<Device> device_;
  DeviceMemory to_;
  std::vector<DeviceMemory> there_;
  std::vector<std::vector<std::byte>> here_;
  std::vector<ListRow> rows_;
  std::vector<ListRows::Source> sources_;
};

}  // namespace

TEST("cuda lay: lists laid one after another without a wait have the bits of the written rule, each its own") {
  Random random(411);
  ThreadPool pool(2);
  const auto device = *open_cuda();
  for (const bool late : {true, false}) {
    const Late pace(late);
    for (int round = 0; round < 6; ++round) {
      std::vector<std::unique_ptr<Laid>> lists;
      for (size_t i = 0; i < 5; ++i)
        lists.push_back(std::make_unique<Laid>(device, random, list_types[(i + round) % 4]));
      for (auto& list : lists) {
        list->lay(pool);
        list->spoil();
      }
      for (auto& list : lists) CHECK(list->right());
    }
  }
}

TEST("cuda lay: a list that is larger than the staging goes in parts, each row at the position that its slot is") {
  Random random(412);
  ThreadPool pool(1);
  const auto device = *open_cuda();
  constexpr size_t most = cuda::ListStaging::most_part;
  for (const size_t padding : {most / 3, most / 2, most + 100}) {
    for (const Type type : {Type::f8, Type::f16}) {
      const Late pace(true);
      Laid first(device, random, type, padding), second(device, random, type, padding);
      for (auto* list : {&first, &second}) {
        list->lay(pool);
        list->spoil();
      }
      CHECK(first.right() && second.right());
    }
  }
}

TEST("cuda: threads lay lists while another one takes memory and copies, and each finds its own bits") {
  const auto device = *open_cuda();
  std::atomic<bool> right{true};
  std::vector<std::thread> threads;
  for (size_t own = 0; own < 2; ++own) {
    threads.emplace_back([&, own] {
      Random random(420 + own);
      ThreadPool pool(1);
      for (int round = 0; round < 12; ++round) {
        Laid list(device, random, list_types[(round + own) % 4], size_t{1} << (10 + round % 3 * 4));
        list.lay(pool);
        if (!list.right()) right = false;
      }
    });
  }
  threads.emplace_back([&] {
    Random random(430);
    for (int round = 0; round < 40; ++round) {
      const auto numbers = random.floats(1000, -1, 1);
      std::vector<float> back(numbers.size());
      DeviceMemory memory(device, numbers.size() * sizeof(float));
      device->upload(memory.data(), reinterpret_cast<const std::byte*>(numbers.data()), memory.size());
      const Piece all{memory.data(), memory.size()};
      device->download(reinterpret_cast<std::byte*>(back.data()), {&all, 1});
      if (back != numbers) right = false;
    }
  });
  for (auto& thread : threads) thread.join();
  CHECK(right && !device->lost());
}

#if defined(CONTINUO_EMULATE)
TEST("cuda lay: laying lists again takes no memory, and the host waits for no stream") {
  Random random(413);
  ThreadPool pool(1);
  const auto device = *open_cuda();
  std::vector<std::unique_ptr<Laid>> lists;
  for (size_t i = 0; i < 4; ++i) lists.push_back(std::make_unique<Laid>(device, random, list_types[i], 1 << 12));
  const auto all = [&] {
    for (auto& list : lists) list->lay(pool);
  };
  // Twice, so that both halves of the arena are as large as the largest list needs.
  for (int round = 0; round < 2; ++round) {
    all();
    std::rotate(lists.begin(), lists.begin() + 1, lists.end());
  }
  const auto before = emulate::calls();
  for (int round = 0; round < 5; ++round) all();
  const auto after = emulate::calls();
  CHECK(after.allocations == before.allocations && after.waits == before.waits);
  for (auto& list : lists) CHECK(list->right());
}

TEST("cuda lay: memory that a list lies in may be given back while the list is still being laid") {
  Random random(414);
  ThreadPool pool(1);
  const auto device = *open_cuda();
  const Late pace(true);
  for (int round = 0; round < 8; ++round) {
    Laid list(device, random, list_types[round % 4]);
    list.lay(pool);
  }
  Laid list(device, random, Type::f16);
  list.lay(pool);
  CHECK(list.right() && !device->lost());
}

TEST("cuda lay: where memory is short the staging is given up, and taken again when there is room") {
  Random random(415);
  ThreadPool pool(1);
  const Emulated small("CONTINUO_EMULATED_MEMORY", std::to_string(size_t{12} << 20));
  const auto opened = *open_cuda();
  const auto device = std::static_pointer_cast<cuda::CudaDevice>(opened);
  Laid list(device, random, Type::f16, size_t{1} << 16);
  list.lay(pool);
  CHECK(list.right() && device->residency().paged_out() == 0);
  std::vector<DeviceMemory> filler;
  const auto fill = [&] {
    for (const size_t piece : {size_t{1} << 20, size_t{1} << 14, size_t{256}}) {
      try {
        for (;;) filler.emplace_back(device, piece);
      } catch (const DeviceError&) {
        // Full.
      }
    }
  };
  fill();
  CHECK(device->residency().paged_out() == 1);
  bool refused = false;
  try {
    list.lay(pool);
  } catch (const DeviceError& error) {
    refused = std::string(error.what()).find("no memory left") != std::string::npos;
  }
  CHECK(refused && !device->lost());
  filler.clear();
  list.lay(pool);
  CHECK(list.right());
}
#endif

}  // namespace continuo::test::cuda_lay_test
