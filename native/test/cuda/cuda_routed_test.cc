// Products with matrices of a stack that each row picks: by the device alone, with the CPU's bits.
#include "backends/cpu/device.h"
#include "backends/cpu/linear.h"
#include "backends/cuda/cuda.h"
#include "backends/cuda/executor.h"
#include "backends/cuda/kernels/kernels.h"
#include "test/cuda/weights.h"
#include "test/image.h"
#include "test/kernel_inputs.h"

namespace continuo::test::cuda_routed_test {

namespace {

constexpr float untouched = 12345.678f;
constexpr Dtype dtypes[] = {Dtype::f32,     Dtype::f16, Dtype::bf16, Dtype::q8,
                            Dtype::ternary, Dtype::q4,  Dtype::q4_k, Dtype::q6_k};

struct Sizes {
  uint32_t matrices, chosen, first, rows;
  size_t outputs, inputs;
  bool one_input;
};

// Routes rows [first, first + rows) once and multiplies them with two stacks. Compares all rows of y, also those that
// the calls must not change, with a product for each place on the CPU.
void compare(Random& random, Dtype dtype, const Sizes& sizes) {
  const auto [matrices, chosen, first, rows, outputs, inputs, one_input] = sizes;
  const size_t group = dtype > Dtype::q4 || random.below(2) ? 32 : 64, all = first + rows + 1;
  std::vector<int32_t> ids(all * chosen);
  const bool few = random.below(2) == 0;  // matrices that most rows go to
  for (auto& id : ids) {
    id = static_cast<int32_t>(random.below(few ? 1 + matrices / 3 : matrices));
    if (random.below(20) == 0) id = random.below(2) ? -1 : static_cast<int32_t>(matrices);
  }
  const OnDevice<int32_t> ids_there(ids);
  cuda::Routed routed;
  routed.ids = ids_there.data(), routed.chosen = chosen, routed.one_input = one_input, routed.matrices = matrices;
  const OnDevice<uint8_t> routes(std::vector<uint8_t>(cuda::route_bytes(routed, rows), 0xFF));
  cuda::route(routed, first, rows, routes.data(), nullptr);
  ThreadPool pool(1);
  for (int stack = 0; stack < 2; ++stack) {
    PackedMatrix m{dtype, outputs, inputs, group, nullptr};
    std::vector<uint8_t> packed;
    for (uint32_t i = 0; i < matrices; ++i) {
      const auto one = some_weights(random, m);
      packed.insert(packed.end(), one.begin(), one.end());
    }
    const auto x = random.floats(all * (one_input ? 1 : chosen) * inputs, -2, 2);
    std::vector<float> want(all * chosen * outputs, untouched);
    const OnDevice<uint8_t> weights(packed);
    const OnDevice<float> x_there(x), y(want);
    auto& product = routed.product;
    product.dtype = dtype, product.group = static_cast<uint32_t>(group), product.data = weights.data();
    product.outputs = static_cast<uint32_t>(outputs), product.inputs = static_cast<uint32_t>(inputs);
    product.x = x_there.data(), product.y = y.data();
    routed.matrix_bytes = packed.size() / matrices;
    const OnDevice<uint8_t> scratch(std::vector<uint8_t>(cuda::scratch_bytes(routed, rows), 0xFF));
    cuda::multiply_routed(routed, first, rows, routes.data(), scratch.data(), nullptr);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);

    Memory memory(scratch_bytes(m, 1));
    for (size_t place = first * chosen; place < (first + rows) * chosen; ++place) {
      float* to = want.data() + place * outputs;
      if (ids[place] < 0 || ids[place] >= static_cast<int32_t>(matrices)) {
        std::fill_n(to, outputs, NAN);
        continue;
      }
      m.data = packed.data() + static_cast<size_t>(ids[place]) * routed.matrix_bytes;
      const Product one{m, x.data() + (one_input ? place / chosen : place) * inputs, to};
      multiply(pool, *runnable_kernels().back(), {&one, 1}, 1, memory);
    }
    CHECK(same(y.values(), want));
  }
}

// A model with a mixture of E experts, of which each token goes to K.
SmallModel mixture(Random& random, size_t V, size_t C, size_t F, size_t E, size_t K) {
  const auto weight = [&](const char* name, std::vector<size_t> shape) {
    size_t n = 1;
    for (const size_t extent : shape) n *= extent;
    return Weight{name, std::move(shape), random.floats(n, -0.5f, 0.5f), Dtype::bf16};
  };
  const std::vector<Weight> weights{weight("emb", {V, C}),   weight("router", {E, C}),  weight("gate", {E, F, C}),
                                    weight("up", {E, F, C}), weight("down", {E, C, F}), weight("head", {V, C})};
  const auto declare = [](const std::string& kind, const std::string& name, std::vector<size_t> shape,
                          const std::string& more) {
    std::string out = "{\"kind\":\"" + kind + "\",\"name\":\"" + name + "\",\"shape\":[";
    for (size_t i = 0; i < shape.size(); ++i) out += (i ? "," : "") + std::to_string(shape[i]);
    return out + "]," + more + "}";
  };
  std::string declarations =
      declare("dynamic", "token", {}, R"("dtype":"i32")") + "," + declare("dynamic", "h.in", {C}, R"("dtype":"f32")") +
      R"(,{"kind":"persistent","name":"last","dtype":"f32","axes":[)" + std::to_string(C) + R"(],"init":0})";
  for (const auto& w : weights) {
    const std::string layout = w.shape.size() == 3 ? "stack" : w.name == "emb" ? "rows" : "packed";
    declarations +=
        "," + declare("constant", w.name, w.shape, R"("layout":")" + layout + R"(","ref":")" + w.name + R"(")");
  }
  std::string nodes;
  const auto node = [&](const std::string& op, const std::string& out, const std::string& in, std::vector<size_t> shape,
                        const std::string& more = "") {
    declarations += "," + declare("volatile", out, std::move(shape),
                                  R"("dtype":")" + std::string(op == "topk" ? "i32" : "f32") + R"(")");
    nodes +=
        (nodes.empty() ? "" : ",") + (R"({"op":")" + op + R"(","out":")" + out + R"(","in":[)" + in + "]") + more + "}";
  };
  node("embed", "x", R"("token","emb")", {C});
  node("matmul", "z", R"("x","router")", {E});
  node("softmax", "p", R"("z")", {E});
  node("topk", "ids", R"("p")", {K}, R"(,"count":)" + std::to_string(K));
  node("gather", "w", R"("p","ids")", {K});
  node("routed", "g", R"("x","ids","gate")", {K, F});
  node("routed", "u", R"("x","ids","up")", {K, F});
  node("silu", "a", R"("g")", {K, F});
  node("mul", "b", R"("a","u")", {K, F});
  node("routed", "d", R"("b","ids","down")", {K, C});
  node("combine", "y", R"("d","w")", {C});
  node("add", "h", R"("x","y")", {C});
  node("cache.shift", "h.before", R"("h")", {C}, R"(,"state":"last")");
  const std::string step = nodes;
  nodes.clear();
  node("matmul", "logits", R"("h.in","head")", {V});
  return {R"({"format":"continuo-graph/2","declarations":[)" + declarations +
              R"(],"blocks":[{"name":"step","inputs":["token"],"nodes":[)" + step +
              R"(,{"return":{"hidden":"h","previous":"h.before"}}]},{"name":"predict","inputs":["h.in"],"nodes":[)" +
              nodes + R"(,{"return":{"logits":"logits"}}]}]})",
          image_of(weights)};
}

}  // namespace

TEST(
    "cuda routed: every place has the CPU's bits, for any format, rows, places of a row and matrices; an id that names "
    "no matrix gives NaN") {
  Random random(240);
  for (const Dtype dtype : dtypes) {
    const bool blocks = dtype == Dtype::q4_k || dtype == Dtype::q6_k;
    const size_t unit = blocks ? 256 : 1, most = blocks ? 3 : 600;
    for (const uint32_t rows : {1u, 1u, 2u, 5u, 17u, 40u}) {
      const auto matrices = static_cast<uint32_t>(1 + random.below(rows > 5 ? 7 : 20)),
                 chosen = static_cast<uint32_t>(1 + random.below(5)), first = static_cast<uint32_t>(random.below(3));
      compare(
          random, dtype,
          {matrices, chosen, first, rows, 1 + random.below(90), (1 + random.below(most)) * unit, random.below(2) == 0});
    }
  }
}

TEST("cuda routed: more matrices than threads of a block, and more places than either") {
  Random random(241);
  compare(random, Dtype::f32, {1500, 3, 0, 4, 3, 5, true});
  compare(random, Dtype::f16, {3, 64, 0, 60, 2, 7, false});
}

TEST(
    "cuda routed: a step with routed products is captured as a graph, and products by the same ids share their "
    "routes") {
  Random random(242);
  ThreadPool pool(1);
  const auto small = mixture(random, 30, 24, 20, 6, 2);
  const auto device = open_cuda();
  auto on_device = Model::make(small.graph, small.image, pool, *device),
       on_host = Model::make(small.graph, small.image, pool, cpu_device(*runnable_kernels().front()));
  CHECK(on_device && on_host);
  cuda::CudaExecutor there(std::static_pointer_cast<cuda::CudaDevice>(*device), *on_device, pool, {}),
      naive(std::static_pointer_cast<cuda::CudaDevice>(*device), *on_device, pool, {.trace = true});
  const auto here = (*on_host)->device->executor(*on_host, pool, {});
  Context a(*on_device), b(*on_host), c(*on_device);
  for (const size_t rows : {1, 9, 1, 9, 1, 9, 33}) {
    std::vector<int32_t> tokens(rows);
    for (auto& token : tokens) token = static_cast<int32_t>(random.below(30));
    const auto want = hidden_vectors(*here, b, tokens);
    CHECK(same(hidden_vectors(there, a, tokens), want));
    CHECK(same(hidden_vectors(naive, c, tokens), want));
    for (auto* context : {&a, &b, &c}) context->head.pulse += rows;
  }
  CHECK(there.graphs() == 2);
  // embed | router | softmax, topk, gather | routes, gate, up | silu, mul | down | combine, add, shift
  CHECK(there.launches((*on_device)->graph.language->step) == 9);
}

}  // namespace continuo::test::cuda_routed_test
