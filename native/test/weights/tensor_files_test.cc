#include "weights/tensor_files.h"

#include <cmath>
#include <fstream>

#include "test/check.h"
#include "test/image.h"
#include "test/matrices.h"
#include "test/weights/containers.h"

namespace continuo::test::tensor_files_test {

namespace {

class Files {
 public:
  std::string write(const std::vector<std::byte>& bytes) {
    const std::string path =
        "/tmp/continuo-tensors-" + std::to_string(::getpid()) + "-" + std::to_string(paths_.size());
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return paths_.emplace_back(path);
  }
  ~Files() {
    for (const auto& path : paths_) std::remove(path.c_str());
  }

 private:
  std::vector<std::string> paths_;
};

}  // namespace

TEST("tensor files: the reader of a file follows from its content; a tensor knows its file") {
  Files files;
  const std::vector<std::string> paths{
      files.write(test::image_of({{"s", {2}, {1, 2}}})),
      files.write(test::gguf_image({}, {{"g", {1}, 0, std::string(4, 'x')}})),
      files.write(test::zip_image(
          {{"m/data.pkl", test::pickle_of({{"t", "HalfStorage", "0", 2, 0, {2}, {1}}})}, {"m/data/0", "1234"}}))};
  auto opened = TensorFiles::open(paths);
  CHECK(opened && opened->tensors().size() == 3 && opened->files().size() == 3);
  CHECK(opened->files()[0].format == FileFormat::safetensors && opened->files()[1].format == FileFormat::gguf &&
        opened->files()[2].format == FileFormat::torch);
  for (uint32_t i = 0; i < 3; ++i) {
    CHECK(opened->tensors()[i].file == i);
    CHECK(opened->tensors()[i].name == std::string(1, "sgt"[i]));
  }
  CHECK(read_element(opened->tensors()[0].data.data(), Dtype::f32, 1) == 2);
  const std::vector<std::string> twice{paths[0], paths[0]};
  CHECK_SAYS(TensorFiles::open(twice), "tensor \"s\" stands in");
  const std::vector<std::string> missing{paths[0], "/nonexistent/file"};
  CHECK_SAYS(TensorFiles::open(missing), "cannot open");
}

TEST("weights: F64 is rounded to f32 once; blocks are widened exactly, by rows and transposed") {
  const std::vector<double> numbers{0.1, -1e-50, 1.0 + 0x1p-24, 1.0 + 0x1p-24 + 0x1p-40};
  ImageBytes wide;
  for (const double number : numbers) wide.number(number);
  ConstantSpec spec;
  spec.name = spec.tensor = "v";
  spec.layout = Layout::vector;
  spec.shape = {4};
  const auto wide_bytes = wide.bytes();
  auto packed = test::pack_one(spec, {{"v", "F64", {4}, 0, wide_bytes, 0}});
  CHECK(packed && packed->dtype == Dtype::f32);
  for (size_t i = 0; i < 4; ++i) CHECK(packed->vector()[i] == static_cast<float>(numbers[i]));
  const auto huge = ImageBytes().number<double>(1e300).bytes();
  spec.shape = {1};
  CHECK_SAYS(test::pack_one(spec, {{"v", "F64", {1}, 0, huge, 0}}), "holds an infinity at element 0");

  // Two rows of Q8_0 with the scales 1 and 2.
  ImageBytes blocks;
  for (const uint16_t scale : {0x3C00, 0x4000}) {
    blocks.number(scale);
    for (int i = 0; i < 32; ++i) blocks.number(static_cast<int8_t>(i - 16));
  }
  const auto block_bytes = blocks.bytes();
  spec.name = spec.tensor = "m";
  spec.layout = Layout::rows;
  spec.shape = {2, 32};
  auto rows = test::pack_one(spec, {{"m", "Q8_0", {2, 32}, 0, block_bytes, 0}});
  CHECK(rows && rows->dtype == Dtype::f32);
  const auto* values = reinterpret_cast<const float*>(rows->bytes.data());
  for (size_t n = 0; n < 2; ++n) {
    for (size_t k = 0; k < 32; ++k)
      CHECK(values[n * 32 + k] == (static_cast<float>(k) - 16) * static_cast<float>(n + 1));
  }
  spec.layout = Layout::packed;
  spec.shape = {32, 2};
  spec.transposed = true;
  auto turned = test::pack_one(spec, {{"m", "Q8_0", {2, 32}, 0, block_bytes, 0}});
  CHECK(turned && turned->outputs == 32);
  const auto* lanes = reinterpret_cast<const float*>(turned->bytes.data());
  for (size_t k = 0; k < 32; ++k) CHECK(lanes[k] == static_cast<float>(k) - 16 && lanes[64 + k] == 2 * lanes[k]);
}

}  // namespace continuo::test::tensor_files_test
