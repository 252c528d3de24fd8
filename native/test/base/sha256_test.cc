// SHA-256 against the examples of FIPS 180-4, and the CPU's extensions against the rounds as they are written.
#include "base/sha256.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "test/check.h"

namespace continuo::test::sha256_test {

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string hash_of(const std::string& text, bool extensions) {
  Sha256 hash(extensions);
  hash.update(bytes_of(text));
  return hash.hex();
}

}  // namespace

TEST("sha256: the published examples, with and without the CPU's extensions") {
  const std::pair<std::string, std::string> examples[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {std::string(1000000, 'a'), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const bool extensions : {false, true}) {
    for (const auto& [text, want] : examples) CHECK(hash_of(text, extensions) == want);
  }
}

TEST("sha256: pieces of any length give the hash of the whole") {
  test::Random random(5);
  for (int round = 0; round < 200; ++round) {
    std::string text(random.below(700), '\0');
    for (char& c : text) c = static_cast<char>(random.next());
    const auto want = hash_of(text, false);
    CHECK(hash_of(text, true) == want);
    Sha256 hash;
    for (auto left = bytes_of(text); !left.empty();) {
      const size_t n = 1 + random.below(left.size());
      hash.update(left.first(n));
      left = left.subspan(n);
    }
    CHECK(hash.hex() == want);
  }
}

TEST("sha256: four at a time give the hashes of each") {
  test::Random random(6);
  for (int round = 0; round < 200; ++round) {
    std::array<std::string, Sha256::lanes> texts;
    std::array<Sha256, Sha256::lanes> hashes{Sha256(round % 2 == 0), {}, {}, {}};
    const size_t length = random.below(700);
    for (auto& text : texts) {
      text.resize(length);
      for (char& c : text) c = static_cast<char>(random.next());
    }
    for (size_t at = 0; at < length;) {
      const size_t n = std::min(length - at, random.below(2) == 0 ? 64 * random.below(4) : 1 + random.below(150));
      std::array<std::span<const std::byte>, Sha256::lanes> pieces;
      for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = bytes_of(texts[i]).subspan(at, n);
      Sha256::update(hashes, pieces);
      at += n;
    }
    for (size_t i = 0; i < texts.size(); ++i) CHECK(hashes[i].hex() == hash_of(texts[i], false));
  }
}

}  // namespace continuo::test::sha256_test
