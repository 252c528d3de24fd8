#include "weights/safetensors.h"

#include <cmath>

#include "test/image.h"
#include "weights/mapped_file.h"

namespace continuo::test::safetensors_test {

TEST("safetensors: tensors are found with dtype, shape and bytes") {
  const auto image = image_of(
      {{"a", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"b", {2}, {0.5f, -1}, Dtype::bf16}, {"c", {1}, {0.25f}, Dtype::f16}});
  auto tensors = read_safetensors(image);
  CHECK(tensors && tensors->size() == 3);
  CHECK((*tensors)[0].name == "a" && (*tensors)[0].elements() == 6);
  CHECK(read_element((*tensors)[0].data.data(), Dtype::f32, 5) == 6);
  CHECK(read_element((*tensors)[1].data.data(), Dtype::bf16, 1) == -1);
  CHECK(read_element((*tensors)[2].data.data(), Dtype::f16, 0) == 0.25f);
}

TEST("safetensors: every kind of false header is refused with a sentence") {
  const auto refused = [](const std::string& header, size_t bytes) {
    return read_safetensors(image_of(header, bytes));
  };
  CHECK_SAYS(read_safetensors({}), "0 bytes");
  CHECK_SAYS(read_safetensors(std::vector<std::byte>(8, std::byte{0xFF})), "announces a header");
  CHECK_SAYS(refused("", 0), "broken header");
  CHECK_SAYS(refused("[]", 0), "an array");
  CHECK_SAYS(refused("{\"a\":1}", 0), "a number");
  CHECK_SAYS(refused("{\"a\":{}}", 0), "no dtype");
  CHECK_SAYS(refused("{\"a\":{\"dtype\":\"F32\"}}", 0), "no shape");
  CHECK_SAYS(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0), "no data_offsets");
  CHECK_SAYS(refused("{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4), "unknown dtype");
  CHECK_SAYS(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4), "whole numbers");
  CHECK_SAYS(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4), "whole numbers");
  CHECK_SAYS(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0),
             "too large");
  CHECK_SAYS(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 4), "claims bytes");
  CHECK_SAYS(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4), "claims bytes");
  CHECK_SAYS(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4), "expected 8");
  CHECK_SAYS(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\","
                     "\"shape\":[1],\"data_offsets\":[0,4]}}",
                     4),
             "overlap");
  CHECK_SAYS(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8), "gap");
  CHECK_SAYS(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8), "expected");
  CHECK_SAYS(refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\","
                     "\"shape\":[1],\"data_offsets\":[0,4]}}",
                     4),
             "twice");
  CHECK(refused("{}", 0));
  CHECK(refused("{\"__metadata__\":{\"format\":\"pt\"}}", 0));
}

TEST("safetensors: mutations of a good file never read outside it") {
  const auto good = image_of({{"first", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"second", {2}, {0.5f, -1}, Dtype::bf16}});
  test::Random random(2);
  for (int i = 0; i < 30000; ++i) {
    auto image = good;
    for (size_t n = 1 + random.below(4); n > 0; --n)
      image[random.below(std::min<size_t>(image.size(), 180))] = static_cast<std::byte>(random.next());
    if (random.below(4) == 0) image.resize(random.below(image.size() + 1));
    auto tensors = read_safetensors(image);
    if (!tensors) continue;
    for (const auto& tensor : *tensors) {
      volatile unsigned sum = 0;
      for (const auto byte : tensor.data) sum = sum + std::to_integer<unsigned>(byte);
    }
  }
}

TEST("safetensors: a file that is missing, a folder or empty is refused") {
  CHECK_SAYS(MappedFile::open("/nonexistent/file"), "cannot open");
  CHECK_SAYS(MappedFile::open("/"), "not a regular file");
  auto file = MappedFile::open("/dev/null");
  CHECK_SAYS(file, "not a regular file");
}

TEST("weights: f16 widens exactly, subnormals and specials too") {
  CHECK(widen_f16(0x3C00) == 1.0f);
  CHECK(widen_f16(0xC000) == -2.0f);
  CHECK(widen_f16(0x7BFF) == 65504.0f);
  CHECK(widen_f16(0x0001) == 0x1p-24f);
  CHECK(widen_f16(0x83FF) == -0x1.ff8p-15f);
  CHECK(std::bit_cast<uint32_t>(widen_f16(0x8000)) == 0x80000000u);
  CHECK(widen_f16(0x7C00) == INFINITY);
  CHECK(widen_f16(0x7E00) != widen_f16(0x7E00));
}

}  // namespace continuo::test::safetensors_test
