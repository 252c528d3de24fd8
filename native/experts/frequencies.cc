#include "experts/frequencies.h"

#include <array>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/checksum.h"

namespace continuo::experts {

namespace {

constexpr double keep = 0.999, gain = 0.001;

// 0.999^age. For each eviction the cache scores every resident expert, so the powers of small ages stand in a table.
double decay(uint64_t age) {
  static const auto table = [] {
    std::array<double, 4096> out{};
    for (size_t i = 0; i < out.size(); ++i) out[i] = std::pow(keep, static_cast<double>(i));
    return out;
  }();
  return age < table.size() ? table[age] : std::pow(keep, static_cast<double>(age));
}

constexpr std::string_view frequencies_magic = "CNTNFRQ1";
constexpr uint32_t frequencies_version = 1;
constexpr size_t head_bytes = 56, digest_at = 24, digest_bytes = 32;

struct Head {
  std::array<char, 8> magic;
  uint32_t version, layers;
  uint64_t numbers;
  std::array<uint8_t, digest_bytes> digest;
};
static_assert(sizeof(Head) == head_bytes && offsetof(Head, digest) == digest_at);

std::array<uint8_t, digest_bytes> bytes_of(const std::string& hex) {
  std::array<uint8_t, digest_bytes> out{};
  const auto value = [](char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; };
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(value(hex[2 * i]) * 16 + value(hex[2 * i + 1]));
  return out;
}

}  // namespace

Frequencies::Frequencies(std::span<const size_t> experts) {
  size_t first = 0;
  for (const size_t count : experts) {
    layers_.push_back({first, count});
    first += count;
  }
  experts_.resize(first);
}

void Frequencies::use(size_t layer, size_t expert, uint64_t c) {
  Expert& used = experts_[layers_[layer].first + expert];
  const uint64_t age = c > used.last ? c - used.last : 0;
  used.f = static_cast<float>(used.f * decay(age) + gain);
  used.last = used.last + age;
}

double Frequencies::frequency(size_t layer, size_t expert) const {
  const Expert& found = experts_[layers_[layer].first + expert];
  return found.f * decay(layers_[layer].tokens - found.last);
}

double Frequencies::worth(size_t layer, size_t expert) const {
  const Expert& found = experts_[layers_[layer].first + expert];
  const uint64_t age = layers_[layer].tokens - found.last;
  return found.f * decay(age) / (1 + static_cast<double>(age));
}

double Frequencies::worth_if_used(size_t layer, size_t expert) const {
  const Expert& found = experts_[layers_[layer].first + expert];
  return found.f * decay(layers_[layer].tokens + 1 - found.last) + gain;
}

std::vector<std::byte> Frequencies::encode(const std::string& digest) const {
  Head head{{}, frequencies_version, static_cast<uint32_t>(layers_.size()), experts_.size(), bytes_of(digest)};
  std::memcpy(head.magic.data(), frequencies_magic.data(), frequencies_magic.size());
  std::vector<std::byte> out(head_bytes + experts_.size() * sizeof(float));
  std::memcpy(out.data(), &head, head_bytes);
  std::byte* to = out.data() + head_bytes;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    for (size_t expert = 0; expert < layers_[layer].count; ++expert, to += sizeof(float)) {
      const auto f = static_cast<float>(frequency(layer, expert));
      std::memcpy(to, &f, sizeof f);
    }
  }
  const uint64_t sum = checksum(out);
  const auto* end = reinterpret_cast<const std::byte*>(&sum);
  out.insert(out.end(), end, end + sizeof sum);
  return out;
}

Status Frequencies::decode(std::span<const std::byte> bytes, const std::string& digest) {
  Head head{};
  if (bytes.size() < head_bytes) return invalid("has ", bytes.size(), " bytes");
  std::memcpy(&head, bytes.data(), head_bytes);
  if (std::string_view(head.magic.data(), head.magic.size()) != frequencies_magic ||
      head.version != frequencies_version)
    return invalid("is no table of frequencies");
  if (head.digest != bytes_of(digest)) return invalid("is of another store");
  const size_t all = head_bytes + experts_.size() * sizeof(float);
  if (head.layers != layers_.size() || head.numbers != experts_.size() || bytes.size() != all + sizeof(uint64_t))
    return invalid("has ", bytes.size(), " bytes, expected ", all + sizeof(uint64_t));
  uint64_t told = 0;
  std::memcpy(&told, bytes.data() + all, sizeof told);
  if (const uint64_t found = checksum(bytes.first(all)); found != told)
    return invalid("is damaged (checksum ", found, ", expected ", told, ")");
  // A frequency is a share: at most 1, up to rounding.
  constexpr float most = 1.01f;
  std::vector<Expert> read(experts_.size());
  for (size_t i = 0; i < read.size(); ++i) {
    std::memcpy(&read[i].f, bytes.data() + head_bytes + i * sizeof(float), sizeof(float));
    if (!(read[i].f >= 0 && read[i].f <= most)) return invalid("has a frequency of ", read[i].f);
  }
  experts_ = std::move(read);
  for (Layer& layer : layers_) layer.tokens = 0;
  return Done{};
}

}  // namespace continuo::experts
