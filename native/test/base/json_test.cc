#include "base/json.h"

#include "test/check.h"

namespace continuo::test::json_test {

TEST("JSON: values keep their kind, order and 64-bit numbers") {
  auto value =
      json::parse(R"( {"a": [1, -2.5e3, true, null], "b": "é\u00e9\ud83d\ude00\n", "c": 18446744073709551615} )");
  CHECK(value);
  CHECK(value->find("a")->items.size() == 4);
  CHECK(value->find("a")->items[1].as_double() == -2500.0);
  CHECK(!value->find("a")->items[1].as_u64());
  CHECK(value->find("b")->text == "éé😀\n");
  CHECK(value->find("c")->as_u64() == UINT64_MAX);
  CHECK(!json::parse("18446744073709551616")->as_u64());
  CHECK(value->find("d") == nullptr);
}

TEST("JSON: what RFC 8259 forbids is refused, and names given twice") {
  for (const char* bad : {"",
                          " ",
                          "{",
                          "[1,]",
                          "{\"a\":1,}",
                          "{\"a\" 1}",
                          "{a:1}",
                          "01",
                          "1.",
                          ".5",
                          "+1",
                          "1e",
                          "-",
                          "nul",
                          "tru",
                          "'a'",
                          "\"a",
                          "\"\\x\"",
                          "\"\\u12g4\"",
                          "\"\\ud800\"",
                          "\"\\udc00\"",
                          "\"\\ud800\\u0041\"",
                          "\"\x01\"",
                          "\"\xff\"",
                          "\"\xc0\x80\"",
                          "\"\xed\xa0\x80\"",
                          "\"\xf5\x80\x80\x80\"",
                          "\"\xe2\x82\"",
                          "1 2",
                          "{} x",
                          "{\"a\":1,\"a\":2}",
                          "NaN",
                          "Infinity",
                          "[1 2]"}) {
    CHECK(!json::parse(bad));
  }
}

TEST("JSON: depth is bounded") {
  CHECK(json::parse(std::string(32, '[') + std::string(32, ']')));
  CHECK(!json::parse(std::string(34, '[') + std::string(34, ']')));
  CHECK(!json::parse(std::string(1000000, '[')));
}

TEST("JSON: random bytes never do more than fail") {
  test::Random random(1);
  const std::string alphabet = "{}[]\":,0123456789.eE+-\\utrfalsn \x80\xff";
  for (int i = 0; i < 20000; ++i) {
    std::string source;
    for (size_t n = random.below(24); n > 0; --n) source += alphabet[random.below(alphabet.size())];
    (void)json::parse(source);
  }
}

}  // namespace continuo::test::json_test
