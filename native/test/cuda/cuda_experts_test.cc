// The experts of a store in a device's memory: what a product finds there is what the store lends, whatever the bound,
// the order of copies and products, and the streams of the executors that share it.
#include <atomic>
#include <thread>

#include "backends/cpu/linear.h"
#include "backends/cuda/cuda.h"
#include "backends/cuda/device.h"
#include "backends/cuda/expert_buffers.h"
#include "test/cuda/emulated.h"
#include "test/cuda/steps.h"
#include "test/cuda/weights.h"
#include "test/experts/expert_stores.h"

namespace continuo::test::cuda_experts_test {

namespace {

std::shared_ptr<cuda::CudaDevice> device() {
  auto opened = open_cuda();
  if (!opened) fail(__FILE__, __LINE__, opened.error().message);
  return std::static_pointer_cast<cuda::CudaDevice>(*opened);
}

std::shared_ptr<experts::ExpertCache> cache_for(const Store& store, size_t on_device) {
  experts::CacheOptions options;
  options.device_bytes = on_device * experts::form_bytes(store.layers[0].index.shape);
  return store.cache(64, options);
}

// An executor's stream, and pinned memory for what it finds.
struct Reader {
  std::shared_ptr<cuda::CudaDevice> device;
  cudaStream_t stream = nullptr;
  size_t bytes;
  std::byte* found;
  explicit Reader(std::shared_ptr<cuda::CudaDevice> on, size_t form)
      : device(std::move(on)), bytes(form), found(device->allocate_host(form)) {
    cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
  }
  ~Reader() {
    (void)cudaStreamSynchronize(stream);
    (void)cudaStreamDestroy(stream);
    device->release_host(found);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Whether the buffers have the expert, and its bytes are the store's.
  bool reads(cuda::ExpertBuffers& buffers, const Store& store, size_t layer, uint32_t expert,
             std::span<const std::byte> form) {
    const auto read = [&](const std::byte* data) {
      cuda::check(cudaMemcpyAsync(found, data, bytes, cudaMemcpyDeviceToHost, stream), "copy from the device");
    };
    if (!buffers.use(store.numbers[layer], expert, form, stream, read)) return false;
    cuda::check(cudaStreamSynchronize(stream), "finish");
    const auto& shape = store.layers[layer].index.shape;
    Bytes payload(experts::payload_bytes(shape));
    experts::from_form(shape, found, payload);
    CHECK(payload == store.payload(layer, expert));
    return true;
  }
};

struct Weights {
  PackedMatrix form;
  std::vector<uint8_t> bytes;
  Weights(Random& random, Dtype dtype, size_t outputs, size_t inputs) : form{dtype, outputs, inputs, 32, nullptr} {
    bytes = some_weights(random, form);
  }
  PackedMatrix matrix() const { return {form.dtype, form.outputs, form.inputs, form.group, bytes.data()}; }
};

}  // namespace

TEST("cuda experts: two threads find what the store lends, from two buffers, from some, and from as many as experts") {
  const Store store(2, 16);
  for (const size_t bound : {0, 5, 40}) {
    const auto cache = cache_for(store, bound);
    const auto on = device();
    const auto buffers = on->expert_buffers(cache);
    CHECK(on->expert_buffers(cache) == buffers);
    const size_t form = experts::form_bytes(store.layers[0].index.shape);
    std::atomic<size_t> there{0};
    const auto work = [&](uint64_t seed) {
      Random random(seed);
      Reader reader(on, form);
      for (int round = 0; round < 150; ++round) {
        const size_t layer = random.below(2);
        const auto expert = static_cast<uint32_t>(random.below(random.below(3) ? 4 : 16));
        if (reader.reads(*buffers, store, layer, expert, {})) {
          ++there;
          continue;
        }
        auto loan = cache->take(store.numbers[layer], {&expert, 1});
        CHECK(loan && reader.reads(*buffers, store, layer, expert, loan->bytes()));
      }
    };
    std::thread other(work, 7);
    work(8);
    other.join();
    const size_t most = std::max<size_t>(2, std::min<size_t>(bound, 32));
    CHECK(buffers->count() <= most);
    CHECK(buffers->device_bytes() <= (most - 2) * form);
    // Of as many as there are, each comes once.
    if (bound == 40) CHECK(there >= 2 * 150 - 2 * 32);
  }
}

TEST("cuda experts: memory beyond two buffers is given up where the device needs it, and what was forgotten is gone") {
  const Store store(1, 16);
  const auto cache = cache_for(store, 16);
  const auto on = device();
  const auto buffers = on->expert_buffers(cache);
  Reader reader(on, experts::form_bytes(store.layers[0].index.shape));
  const auto bring = [&](uint32_t expert) {
    if (reader.reads(*buffers, store, 0, expert, {})) return;
    auto loan = cache->take(store.numbers[0], {&expert, 1});
    CHECK(loan && reader.reads(*buffers, store, 0, expert, loan->bytes()));
  };
  for (uint32_t expert = 0; expert < 16; ++expert) bring(expert);
  CHECK(buffers->count() == 16 && buffers->device_bytes() == 14 * experts::form_bytes(store.layers[0].index.shape));
  buffers->page_out();
  CHECK(buffers->count() == 2 && buffers->device_bytes() == 0);
  for (uint32_t expert = 16; expert-- > 0;) bring(expert);
  CHECK(buffers->count() == 16);
  cache->forget();
  CHECK(buffers->count() == 0 && !buffers->holds(store.numbers[0], 3));
  bring(3);
  CHECK(buffers->holds(store.numbers[0], 3));
}

TEST("cuda experts: the last of several uses is what keeps an expert") {
  const Store store(1, 16);
  const auto cache = cache_for(store, 3);
  const auto on = device();
  const auto buffers = on->expert_buffers(cache);
  Reader reader(on, experts::form_bytes(store.layers[0].index.shape));
  for (const uint32_t expert : {0u, 1u, 2u, 0u, 3u}) {
    if (reader.reads(*buffers, store, 0, expert, {})) continue;
    auto loan = cache->take(store.numbers[0], {&expert, 1});
    CHECK(loan && reader.reads(*buffers, store, 0, expert, loan->bytes()));
  }
  for (const auto& [expert, there] : {std::pair(0u, true), {1u, false}, {2u, true}, {3u, true}})
    CHECK(buffers->holds(store.numbers[0], expert) == there);
}

TEST(
    "cuda experts: rows go to an expert and back by their places, with the CPU's bits; places without one become NaN") {
  Random random(511);
  for (int round = 0; round < 30; ++round) {
    const auto dtype = std::array{Dtype::f32, Dtype::q8, Dtype::ternary}[random.below(3)];
    const size_t channels = 1 + random.below(150), inner = 1 + random.below(150), chosen = 1 + random.below(4),
                 rows = 1 + random.below(40), all = rows * chosen;
    const Weights gate(random, dtype, inner, channels), up(random, dtype, inner, channels),
        down(random, dtype, channels, inner);
    std::vector<uint32_t> places, lost;
    for (uint32_t place = 0; place < all; ++place) {
      if (round % 5 > 0 && random.below(3) == 0) places.push_back(place);
      if (random.below(9) == 0 && (places.empty() || places.back() != place)) lost.push_back(place);
    }
    if (places.empty()) places.push_back(static_cast<uint32_t>(random.below(all)));
    std::erase_if(lost, [&](uint32_t place) { return place == places.back(); });
    const auto x = some_numbers(random, rows * channels, round % 4 == 0);
    auto got = random.floats(all * channels, -1, 1);
    auto want = got;
    ThreadPool pool(1);
    Memory room(1 << 20);
    for (const uint32_t place : places) {
      const float* in = &x[place / chosen * channels];
      std::vector<float> a(inner), b(inner);
      const Product inward[] = {{gate.matrix(), in, a.data()}, {up.matrix(), in, b.data()}};
      multiply(pool, cpu, inward, 1, room);
      cpu.silu(a.data(), a.data(), inner);
      cpu.mul(a.data(), b.data(), a.data(), inner);
      const Product outward[] = {{down.matrix(), a.data(), &want[place * channels]}};
      multiply(pool, cpu, outward, 1, room);
    }
    for (const uint32_t place : lost) std::fill_n(&want[place * channels], channels, NAN);
    {
      Staged staged;
      const auto product = [&](const Weights& w) {
        const auto m = w.matrix();
        cuda::Product p;
        p.dtype = m.dtype, p.outputs = static_cast<uint32_t>(m.outputs), p.inputs = static_cast<uint32_t>(m.inputs);
        p.group = static_cast<uint32_t>(m.group);
        p.data = staged.in_line(static_cast<const std::byte*>(m.data), m.tiles() * m.tile_bytes());
        return p;
      };
      cuda::ExpertProducts expert{product(gate), product(up), product(down)};
      expert.x = staged.in(x.data(), x.size());
      expert.y = staged.both(got.data(), got.size());
      expert.chosen = static_cast<uint32_t>(chosen);
      const auto n = static_cast<uint32_t>(places.size());
      auto* own = staged.scratch<float>(cuda::row_floats(expert, n));
      auto* room_there = staged.scratch<std::byte>(cuda::scratch_bytes(expert, n) + 256);
      if (n == 1 && round % 2)
        cuda::multiply_expert(expert, places[0], own, room_there, nullptr);
      else
        cuda::multiply_expert(expert, staged.in(places.data(), n), n, own, room_there, nullptr);
      cuda::lose_places(staged.in(lost.data(), lost.size()), static_cast<uint32_t>(lost.size()), channels, expert.y,
                        nullptr);
    }
    CHECK(same(got, want));
  }
}

}  // namespace continuo::test::cuda_experts_test
