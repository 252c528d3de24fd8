// How constants are read from tensors: views, columns, maps and stacks, against a plain copy of the numbers.
#include <cmath>
#include <limits>

#include "test/image.h"
#include "weights/map.h"
#include "weights/safetensors.h"
#include "weights/weights.h"

namespace continuo::test::constants_test {

namespace {

// Tensor "t" of this shape, whose element i has the value i, or what `value` says.
struct File {
  std::vector<size_t> shape;
  std::vector<std::byte> image;

  explicit File(std::vector<size_t> extents, float scale = 1) : shape(std::move(extents)) {
    size_t n = 1;
    for (const auto extent : shape) n *= extent;
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i) * scale;
    image = test::image_of({{"t", shape, values, Dtype::f32}});
  }
  Result<Packed> pack(const ConstantSpec& spec) const {
    ThreadPool pool(2);
    auto tensors = read_safetensors(image);
    CHECK(tensors);
    return pack_weights({&spec, 1}, *tensors, pool);
  }
};

ConstantSpec matrix(uint64_t outputs, uint64_t inputs) {
  ConstantSpec spec;
  spec.name = "W";
  spec.tensor = "t";
  spec.shape = {outputs, inputs};
  return spec;
}

ConstantSpec vector(uint64_t width) {
  ConstantSpec spec = matrix(width, 1);
  spec.layout = Layout::vector;
  spec.shape = {width};
  return spec;
}

float at(const Constant& constant, size_t member, size_t n, size_t k) {
  const auto m = constant.matrix(member);
  return static_cast<const float*>(m.data)[(n / tile_lanes * m.inputs + k) * tile_lanes + n % tile_lanes];
}

// The matrix has the tensor's elements place(n, k).
void holds(const Packed& packed, size_t member, size_t outputs, size_t inputs, const auto& place) {
  bool same = true;
  for (size_t n = 0; n < outputs; ++n) {
    for (size_t k = 0; k < inputs; ++k)
      same = same && at(packed.constants[0], member, n, k) == static_cast<float>(place(n, k));
  }
  CHECK(same);
}

void refused(const Result<Packed>& packed, const char* says) {
  CHECK(!packed);
  if (!packed) CHECK(packed.error().message.find(says) != std::string::npos);
}

}  // namespace

TEST("constants: a view takes rows of heads apart, with a stride, in its own order") {
  // Three heads of 10 rows: rows 1, 3, 5 of each, then rows 7 and 8.
  const File file({30, 5});
  auto spec = matrix(15, 5);
  spec.view = {0, 3, 10, 0, {{1, 3, 2}, {7, 2, 1}}};
  const auto packed = file.pack(spec);
  CHECK(packed);
  constexpr size_t rows[] = {1, 3, 5, 7, 8};
  if (packed) holds(*packed, 0, 15, 5, [&](size_t n, size_t k) { return (n / 5 * 10 + rows[n % 5]) * 5 + k; });
}

TEST("constants: a view of many rows goes over tiles, with an offset, from a tensor of three axes") {
  const File file({4, 50, 3});
  auto spec = matrix(100, 3);
  spec.view = {60, 1, 0, 0, {{0, 100, 1}}};
  const auto packed = file.pack(spec);
  CHECK(packed);
  if (packed) holds(*packed, 0, 100, 3, [](size_t n, size_t k) { return (60 + n) * 3 + k; });
}

TEST("constants: columns reorder the inputs of a matrix") {
  const File file({4, 6});
  auto spec = matrix(4, 6);
  spec.columns = {0, 3, 1, 0, {{0, 2, 3}}};  // 0 3 1 4 2 5
  const auto packed = file.pack(spec);
  CHECK(packed);
  constexpr size_t columns[] = {0, 3, 1, 4, 2, 5};
  if (packed) holds(*packed, 0, 4, 6, [&](size_t n, size_t k) { return n * 6 + columns[k]; });
}

TEST("constants: vectors with a view and a map") {
  const File file({8}, 0.25f);
  auto spec = vector(4);
  spec.view = {1, 2, 4, 0, {{0, 2, 2}}};  // 1 3 5 7
  for (const auto& [map, expected] :
       {std::pair{Map::none, +[](float w) { return w; }}, std::pair{Map::one_plus, +[](float w) { return 1 + w; }},
        std::pair{Map::neg_exp, +[](float w) { return static_cast<float>(-std::exp(double{w})); }}}) {
    spec.map = map;
    const auto packed = file.pack(spec);
    CHECK(packed);
    for (size_t i = 0; packed && i < 4; ++i)
      CHECK(packed->constants[0].vector()[i] == expected(static_cast<float>(2 * i + 1) * 0.25f));
  }
}

TEST("constants: a stack from one tensor of three axes, from one of two, and by a view of a fused one") {
  for (const auto& shape : {std::vector<size_t>{3, 70, 4}, std::vector<size_t>{210, 4}}) {
    auto spec = matrix(0, 0);
    spec.layout = Layout::stack;
    spec.shape = {3, 70, 4};
    const auto packed = File(shape).pack(spec);
    CHECK(packed && packed->constants[0].members == 3 && packed->constants[0].outputs == 70);
    for (size_t e = 0; packed && e < 3; ++e)
      holds(*packed, e, 70, 4, [&](size_t n, size_t k) { return (e * 70 + n) * 4 + k; });
  }
  // [E, gate and up, inputs]: the up rows of each.
  auto spec = matrix(0, 0);
  spec.layout = Layout::stack;
  spec.shape = {3, 5, 4};
  spec.view = {5, 1, 0, 10, {{0, 5, 1}}};
  const auto packed = File({3, 10, 4}).pack(spec);
  CHECK(packed);
  for (size_t e = 0; packed && e < 3; ++e)
    holds(*packed, e, 5, 4, [&](size_t n, size_t k) { return (e * 10 + 5 + n) * 4 + k; });
}

TEST("constants: a stack of tensors that {e} numbers has one dtype") {
  const auto tensor = [](const char* name, float first, Dtype dtype) {
    return test::Weight{name, {2, 2}, {first, first + 1, first + 2, first + 3}, dtype};
  };
  ConstantSpec spec;
  spec.name = "W";
  spec.layout = Layout::stack;
  spec.tensor = "w.{e}.weight";
  spec.shape = {2, 2, 2};
  ThreadPool pool(1);
  const auto pack = [&](Dtype second) {
    const auto image = test::image_of({tensor("w.0.weight", 0, Dtype::f32), tensor("w.1.weight", 4, second)});
    const auto tensors = read_safetensors(image);
    return pack_weights({&spec, 1}, *tensors, pool);
  };
  const auto packed = pack(Dtype::f32);
  CHECK(packed);
  for (size_t e = 0; packed && e < 2; ++e)
    holds(*packed, e, 2, 2, [&](size_t n, size_t k) { return e * 4 + n * 2 + k; });
  refused(pack(Dtype::bf16), "all matrices of \"W\" have one");
}

TEST("constants: views that leave the tensor, and tensors without rows of the width, are refused") {
  const File file({6, 4});
  auto spec = matrix(4, 4);
  spec.view = {3, 1, 0, 0, {{0, 4, 1}}};
  refused(file.pack(spec), "lacks rows");
  spec.view.offset = std::numeric_limits<uint64_t>::max();
  refused(file.pack(spec), "lacks rows");
  spec.view = {0, 1, 0, 0, {{0, 4, std::numeric_limits<uint64_t>::max()}}};
  refused(file.pack(spec), "lacks rows");
  spec = matrix(6, 3);
  spec.view = {0, 1, 0, 0, {{0, 6, 1}}};
  refused(file.pack(spec), "lacks rows");
  spec = matrix(6, 4);
  spec.columns = {1, 1, 0, 0, {{0, 4, 1}}};
  refused(file.pack(spec), "lacks rows or columns");
}

TEST("constants: a number that is not finite is refused where a view picks it, and where a map makes it") {
  File file({3}, 100);
  auto spec = vector(3);
  spec.map = Map::neg_exp;
  refused(file.pack(spec), "an infinity at element 1");
  const auto nan = test::image_of({{"t", {2, 1}, {1, std::numeric_limits<float>::quiet_NaN()}, Dtype::f32}});
  file.image = nan;
  auto picked = matrix(1, 1);
  picked.view = {0, 1, 0, 0, {{0, 1, 1}}};
  CHECK(file.pack(picked));
  picked.view.offset = 1;
  refused(file.pack(picked), "NaN at element 1");
}

TEST("constants: the exponential of maps is within 4 ulp of the library's") {
  test::Random random(51);
  bool near = true;
  for (int i = 0; i < 20000; ++i) {
    const double x = random.uniform(-1, 1) * (i % 3 == 0 ? 700 : i % 3 == 1 ? 20 : 1);
    const double expected = std::exp(x);
    near = near && std::abs(exp_of(x) - expected) <= 4 * 0x1p-52 * expected;
  }
  CHECK(near);
  CHECK(exp_of(0) == 1 && exp_of(-1000) == 0 && std::isinf(exp_of(1000)) && std::isnan(exp_of(std::nan(""))));
}

}  // namespace continuo::test::constants_test
