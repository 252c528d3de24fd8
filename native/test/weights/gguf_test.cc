#include "weights/gguf.h"

#include <cmath>

#include "test/check.h"
#include "test/weights/containers.h"
#include "weights/blocks.h"
#include "weights/tensor_files.h"

namespace continuo::test::gguf_test {

namespace {

enum Kind : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

template <class T> std::string entry(std::string_view key, uint32_t kind, T value) {
  return ImageBytes().text(key).number(kind).number(value).string();
}
std::string entry(std::string_view key, std::string_view value) {
  return ImageBytes().text(key).number<uint32_t>(string).text(value).string();
}

// Writes what it visits.
struct Shown {
  std::string text;
  void whole(int64_t value) { text += std::to_string(value) + " "; }
  void large(uint64_t value) { text += std::to_string(value) + " "; }
  void real(double value) { text += std::to_string(value) + " "; }
  void boolean(bool value) { text += value ? "true " : "false "; }
  void string(std::string_view value) { text += std::string(value) + " "; }
  void begin(uint64_t count) { text += std::to_string(count) + "[ "; }
  void end() { text += "] "; }
};

std::string shown(const GgufEntry& entry) {
  Shown out;
  CHECK(visit_gguf(entry.kind, entry.value.data(), out) == entry.value.size());
  return out.text;
}

const std::vector<std::string> good_entries{entry("general.architecture", "test"),
                                            entry<uint32_t>("general.alignment", u32, 64),
                                            entry<uint8_t>("b", boolean, 1),
                                            entry<uint64_t>("u", u64, 1ull << 63),
                                            entry<double>("d", f64, -0.5),
                                            ImageBytes()
                                                .text("tokens")
                                                .number<uint32_t>(array)
                                                .number<uint32_t>(string)
                                                .number<uint64_t>(2)
                                                .text("a")
                                                .text("ß")
                                                .string(),
                                            ImageBytes()
                                                .text("nested")
                                                .number<uint32_t>(array)
                                                .number<uint32_t>(array)
                                                .number<uint64_t>(1)
                                                .number<uint32_t>(i8)
                                                .number<uint64_t>(2)
                                                .number<int8_t>(1)
                                                .number<int8_t>(-2)
                                                .string()};

std::vector<std::byte> good() {
  return gguf_image(good_entries, {{"a", {2, 3}, 0, std::string(24, '\0')}, {"q", {32, 2}, 8, std::string(68, '\1')}},
                    3, 64);
}

}  // namespace

TEST("gguf: metadata of every kind and tensors with rows first") {
  const auto image = good();
  auto file = read_gguf(image, "x.gguf");
  CHECK(file && file->entries.size() == good_entries.size() && file->tensors.size() == 2);
  CHECK(shown(file->entries[2]) == "true ");
  CHECK(shown(file->entries[3]) == "9223372036854775808 ");
  CHECK(shown(file->entries[4]) == "-0.500000 ");
  CHECK(shown(file->entries[5]) == "2[ a ß ] ");
  CHECK(shown(file->entries[6]) == "1[ 2[ 1 -2 ] ] ");
  CHECK((file->tensors[0].shape == std::vector<uint64_t>{3, 2}) && file->tensors[0].dtype == "F32");
  CHECK(file->tensors[0].offset % 64 == 0 && file->tensors[1].offset == file->tensors[0].offset + 64);
  CHECK((file->tensors[1].shape == std::vector<uint64_t>{2, 32}) && file->tensors[1].data.size() == 68);
  CHECK(read_gguf(gguf_image({}, {}, 2), "x.gguf"));
}

TEST("gguf: every kind of false file is refused with a sentence") {
  const auto refused = [](const std::vector<std::string>& entries, const std::vector<GgufTensor>& tensors = {},
                          uint32_t version = 3) { return read_gguf(gguf_image(entries, tensors, version), "x.gguf"); };
  CHECK_SAYS(refused({}, {}, 1), "version 1, expected 3 or 2");
  CHECK_SAYS(refused({}, {}, 4), "version 4");
  CHECK_SAYS(refused({}, {}, 0x03000000), "byte-swapped");
  CHECK_SAYS(read_gguf(ImageBytes().raw("GGUF").number<uint32_t>(3).bytes(), "x.gguf"), "8 bytes");
  CHECK_SAYS(
      read_gguf(ImageBytes().raw("GGUF").number<uint32_t>(3).number<uint64_t>(1ull << 60).number<uint64_t>(1).bytes(),
                "x.gguf"),
      "announces");
  CHECK_SAYS(refused({entry("k", "1"), entry("k", "2")}), "key \"k\" twice");
  CHECK_SAYS(refused({entry("", "1")}), "a key of 0 bytes");
  CHECK_SAYS(refused({entry("\xFF", "1")}), "not UTF-8");
  CHECK_SAYS(refused({entry("k", "\xFF")}), "not UTF-8 under \"k\"");
  CHECK_SAYS(refused({entry<uint32_t>("k", 13, 0)}), "unknown kind 13");
  CHECK_SAYS(refused({entry<uint64_t>("k", string, 1ull << 63)}), "a string of 9223372036854775808 bytes");
  CHECK_SAYS(refused({entry<uint32_t>("general.alignment", u32, 3)}), "the alignment 3");
  CHECK_SAYS(refused({entry<uint64_t>("general.alignment", u64, 32)}), "no u32");
  const auto list = [](uint32_t kind, uint64_t count) {
    return ImageBytes().text("k").number<uint32_t>(array).number(kind).number(count).string();
  };
  CHECK_SAYS(refused({list(u8, 1ull << 40)}), "an array of 1099511627776 u8");
  CHECK_SAYS(refused({list(99, 0)}), "array of the unknown kind 99");
  std::string deep = ImageBytes().text("k").number<uint32_t>(array).string();
  for (int i = 0; i < 5; ++i) deep += ImageBytes().number<uint32_t>(array).number<uint64_t>(1).string();
  CHECK_SAYS(refused({deep + ImageBytes().number<uint32_t>(u8).number<uint64_t>(0).string()}), "deeper than 4");
  CHECK_SAYS(refused({}, {{"a", {1}, 0, "1234"}, {"a", {1}, 0, "1234"}}), "\"a\" twice");
  CHECK_SAYS(refused({}, {{"a", std::vector<uint64_t>(9, 1), 0, ""}}), "9 axes");
  CHECK_SAYS(refused({}, {{"a", {1ull << 40, 1ull << 40}, 0, ""}}), "too large");
  CHECK_SAYS(refused({}, {{"a", {16}, 8, std::string(34, 0)}}),
             "rows of 16 numbers, expected a multiple of 32 for Q8_0");
  CHECK_SAYS(refused({}, {{"a", {256}, 10, std::string(84, 0)}}), "stored as Q2_K");
  CHECK_SAYS(refused({}, {{"a", {256}, 16, ""}}), "stored as IQ2_XXS");
  CHECK_SAYS(refused({}, {{"a", {256}, 40, ""}}), "stored as NVFP4");
  CHECK_SAYS(refused({}, {{"a", {256}, 77, ""}}), "stored as the type 77");
  CHECK_SAYS(refused({}, {{"a", {8}, 0, "1234"}}), "of 32 bytes at 0 of its 4 bytes");
  CHECK_SAYS(refused({}, {{"a", {1}, 0, "1234", 4}}), "a multiple of 32");
  CHECK_SAYS(refused({}, {{"a", {1}, 0, "1234", 1ll << 40}}), "at 1099511627776");
  CHECK_SAYS(refused({}, {{"a", {1}, 0, "1234"}, {"b", {1}, 0, "1234", 0}}), "where another one lies");
}

TEST("gguf: mutations of a good file never read outside it") {
  const auto image = good();
  test::Random random(3);
  for (int i = 0; i < 30000; ++i) {
    auto hurt = image;
    for (size_t n = 1 + random.below(4); n > 0; --n)
      hurt[random.below(hurt.size())] = static_cast<std::byte>(random.next());
    if (random.below(4) == 0) hurt.resize(random.below(hurt.size() + 1));
    auto file = read_tensor_file(hurt, "x");
    if (!file) continue;
    Shown all;
    for (const auto& found : file->metadata) visit_gguf(found.kind, found.value.data(), all);
    for (const auto& tensor : file->tensors) {
      volatile unsigned sum = 0;
      for (const auto byte : tensor.data) sum = sum + std::to_integer<unsigned>(byte);
    }
  }
}

TEST("blocks: values of each format by hand") {
  const auto widened = [](const char* name, const std::string& block) {
    const auto* format = block_format(std::string_view(name));
    CHECK(format && format->bytes == block.size());
    std::vector<float> out(max_block_values);
    format->widen(reinterpret_cast<const std::byte*>(block.data()), out.data());
    out.resize(format->values);
    return out;
  };
  const std::string half_one("\x00\x3C", 2), half_two("\x00\x40", 2);
  auto q = widened("Q4_0", half_two + std::string(16, '\x1F'));
  CHECK(q[0] == 14 && q[15] == 14 && q[16] == -14 && q[31] == -14);
  q = widened("Q4_1", half_two + half_one + std::string(16, '\x1F'));
  CHECK(q[0] == 31 && q[16] == 3);
  q = widened("Q5_0", half_one + std::string("\x01\x00\x00\x80", 4) + std::string(16, '\x20'));
  CHECK(q[0] == 0 && q[1] == -16 && q[16] == -14 && q[31] == 2);
  q = widened("Q5_1", half_one + half_two + std::string("\x01\x00\x00\x80", 4) + std::string(16, '\x20'));
  CHECK(q[0] == 18 && q[1] == 2 && q[16] == 4 && q[31] == 20);
  q = widened("Q8_0", half_two + std::string("\x80", 1) + std::string(31, '\x7F'));
  CHECK(q[0] == -256 && q[31] == 254);
  // Groups 0 and 4: scale 63 and minimum 1; the others 0. Group 4 takes its upper bits from the bytes of group 0.
  const std::string scales("\xFF\0\0\0\x41\0\0\0\x1F\0\0\0", 12);
  q = widened("Q4_K", half_one + half_two + scales + std::string(128, '\x21'));
  CHECK(q[0] == 63 - 2 && q[32] == 0 && q[128] == 63 - 2 * 17 && q[160] == 0);
  q = widened("Q5_K", half_one + half_two + scales + std::string(32, '\x11') + std::string(128, '\x21'));
  CHECK(q[0] == 63 * 17 - 2 && q[128] == 63 * 17 - 2 * 17 && q[32] == 0);
  q = widened("Q6_K", std::string(128, '\x21') + std::string(64, '\xE4') + std::string(16, '\x02') + half_one);
  CHECK(q[0] == 2 * (1 - 32) && q[32] == 2 * (17 - 32) && q[64] == 2 * (34 - 32) && q[96] == 2 * (50 - 32));
  CHECK(q[128] == q[0] && q[255] == q[127]);
  q = widened("TQ1_0", std::string(48, '\xFF') + std::string(4, '\x00') + half_two);
  CHECK(q[0] == 2 && q[159] == 2 && q[239] == 2 && q[240] == -2 && q[255] == -2);
  q = widened("TQ2_0", std::string(64, '\x24') + half_two);
  CHECK(q[0] == -2 && q[32] == 0 && q[64] == 2 && q[96] == -2 && q[128] == -2);
  q = widened("MXFP4", std::string("\x80", 1) + std::string(16, '\xF3'));
  CHECK(q[0] == 3 && q[16] == -12);
  q = widened("MXFP4", std::string("\x00", 1) + std::string(16, '\x21'));
  CHECK(q[0] == 0x1p-128f && q[16] == 0x1p-127f);
}

}  // namespace continuo::test::gguf_test
