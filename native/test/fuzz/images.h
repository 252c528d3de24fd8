// Good files that the fuzzer damages: small, and with everything that a header can hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "test/image.h"
#include "test/weights/containers.h"

namespace continuo::test {

// Words that a format knows, put at random places.
struct Subject {
  std::string name;
  std::vector<std::vector<std::byte>> good;
  std::vector<std::string> words;
};

inline std::vector<std::byte> bytes_of(const std::string& text) { return ImageBytes().raw(text).bytes(); }

template <class T> std::string gguf_entry(std::string_view key, uint32_t kind, T value) {
  return ImageBytes().text(key).number(kind).number(value).string();
}
inline std::string gguf_entry(std::string_view key, std::string_view value) {
  return ImageBytes().text(key).number<uint32_t>(8).text(value).string();
}
// A list whose elements are written already.
inline std::string gguf_list(std::string_view key, uint32_t kind, uint64_t count, const std::string& elements) {
  return ImageBytes().text(key).number<uint32_t>(9).number(kind).number(count).raw(elements).string();
}

inline Subject gguf_subject() {
  const std::vector<std::string> entries{
      gguf_entry("general.architecture", "test"),
      gguf_entry<uint8_t>("u8", 0, 3),
      gguf_entry<int16_t>("i16", 3, -3),
      gguf_entry<uint32_t>("test.block_count", 4, 2),
      gguf_entry<float>("f32", 6, 1e-5f),
      gguf_entry<uint8_t>("bool", 7, 1),
      gguf_entry<uint64_t>("u64", 10, uint64_t{1} << 63),
      gguf_entry<double>("f64", 12, -0.5),
      gguf_list("tokenizer.ggml.tokens", 8, 3, ImageBytes().text("a").text("ß").text("<0x00>").string()),
      gguf_list("scores", 6, 2, ImageBytes().number(1.0f).number(-2.0f).string()),
      gguf_list("nested", 9, 1, ImageBytes().number<uint32_t>(1).number<uint64_t>(2).number<uint16_t>(257).string())};
  const std::vector<GgufTensor> tensors{{"f32", {2, 3}, 0, std::string(24, '\0')},
                                        {"f16", {4}, 1, std::string(8, '\1')},
                                        {"q8", {32, 2}, 8, std::string(68, '\2')},
                                        {"q4_k", {256, 1, 2}, 12, std::string(288, '\3')},
                                        {"empty", {0, 5}, 30, ""},
                                        {"scalar", {}, 0, std::string(4, '\4')}};
  auto aligned = entries;
  aligned.push_back(gguf_entry<uint32_t>("general.alignment", 4, 64));
  return {"gguf",
          {gguf_image(entries, tensors), gguf_image(aligned, tensors, 2, 64), gguf_image({}, {})},
          {"GGUF", gguf_entry("k", "v"),
           gguf_list("l", 9, 1, ImageBytes().number<uint32_t>(9).number<uint64_t>(1).string()),
           gguf_list("e", 0, 0, ""), gguf_entry<uint32_t>("general.alignment", 4, 1 << 20)}};
}

inline std::string good_pickle() {
  return pickle_of({{"w", "FloatStorage", "0", 8, 2, {2, 3}, {3, 1}},
                    {"tied", "FloatStorage", "0", 8, 0, {8}, {1}},
                    {"b", "BFloat16Storage", "1", 3, 0, {1, 3}, {7, 1}},
                    {"empty", "HalfStorage", "2", 0, 0, {0, 5}, {5, 1}},
                    {"scalar", "DoubleStorage", "3", 1, 0, {}, {}}});
}

inline std::vector<std::string> pickle_words() {
  std::vector<std::string> out{"h\1",
                               "q\1",
                               std::string("j\0\0\0\0", 5),
                               "\x8A\x01\xFF",
                               "\x80\x02",
                               "ctorch\nFloatStorage\n",
                               "ccollections\nOrderedDict\n)R",
                               "ctorch._utils\n_rebuild_parameter\n",
                               pickle_text("x"),
                               pickle_whole(-1),
                               pickle_whole(0x7FFFFFFF),
                               pickle_extents({2, 3})};
  for (const char op : std::string("}])N(tsuaeQRb.\x88\x89\x85\x86\x87")) out.emplace_back(1, op);
  return out;
}

inline std::vector<std::byte> torch_image(const std::string& pickle, bool wide) {
  return zip_image({{"m/data.pkl", pickle, 3},
                    {"m/byteorder", "little", 5},
                    {"m/data/0", std::string(32, '\1'), 40},
                    {"m/data/1", std::string(6, '\x3F'), 1},
                    {"m/data/2", "", 0},
                    {"m/data/3", std::string(8, '\0'), 0},
                    {"m/version", "3\n", 0}},
                   wide);
}

inline Subject torch_subject() {
  return {"torch",
          {torch_image(good_pickle(), false), torch_image(good_pickle(), true)},
          {"PK\x03\x04", "PK\x01\x02", "PK\x05\x06", "PK\x06\x06", "PK\x06\x07", "/data.pkl", "m/data/0",
           std::string("\1\0\x18\0", 4)}};
}

inline Subject pickle_subject() { return {"pickle", {bytes_of(good_pickle())}, pickle_words()}; }

inline Subject safetensors_subject() {
  const auto odd = image_of(
      R"({"__metadata__":{"format":"pt","a\u00e9\ud83d\ude00":"\\"},"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("e":{"dtype":"BF16","shape":[0,4],"data_offsets":[8,8]}})",
      8);
  return {"safetensors",
          {image_of({{"a", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"b.weight", {4}, {1, 2, 3, 4}, Dtype::bf16}}), odd},
          {"{", "}", "[", "]", ",", ":", "\"", "\\u", "\\", "null", "-1", "1e9", "18446744073709551615",
           "\"shape\":[4294967296,4294967296]", "\"data_offsets\":[0,1]", std::string(40, '[')}};
}

}  // namespace continuo::test
