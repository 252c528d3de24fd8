#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "base/checksum.h"
#include "experts/delta.h"
#include "experts/pack.h"
#include "test/experts/expert_sources.h"

namespace continuo::test::experts_test {

using namespace continuo::experts;

namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "continuo-experts-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
  fs::path path;
};

std::vector<char> content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::string& path, const std::vector<char>& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// A store of eight experts on a torus of 2 by 4, of which neighbours in a column have most rows in common.
LayerReport packed_to(const std::string& path, const ExpertShape& shape, Random& random) {
  std::vector<Expert> made;
  for (size_t e = 0; e < 8; ++e) {
    made.push_back(e % 4 == 0 ? some_expert(shape, random) : made.back());
    made.back().codes[0][e] = code(shape.coding, random);
  }
  std::vector<ExpertSource> sources;
  for (const auto& expert : made) sources.push_back(expert.source());
  ThreadPool pool(2);
  auto report = pack_layer(path, 3, shape, {2, 4}, sources, pool);
  CHECK(report);
  return *report;
}

}  // namespace

TEST("experts: a record turns back into the matrices it was made from, in every coding, for any sizes") {
  Random random(11);
  for (const Coding coding : all_codings) {
    for (size_t i = 0; i < 12; ++i) {
      const auto shape =
          shape_of(coding, static_cast<uint32_t>(1 + random.below(200)), static_cast<uint32_t>(1 + random.below(200)));
      const Expert expert = some_expert(shape, random);
      std::vector<std::byte> record(payload_bytes(shape));
      CHECK(pack_record(shape, expert.source(), record));
      CHECK(record.size() % lanes == 0);
      for (size_t which = 0; which < matrices; ++which) {
        std::vector<std::byte> codes(expert.codes[which].size()), scales(expert.scales[which].size());
        unpack_matrix(shape, which, record, codes, scales);
        CHECK(codes == expert.codes[which] && scales == expert.scales[which]);
      }
    }
  }
}

TEST("experts: in a record, unit u of row 64 · tile + lane stands at (tile, u, lane), and zeros behind the last row") {
  const auto shape = shape_of(Coding::ternary3, 70, 11);
  Random random(12);
  const Expert expert = some_expert(shape, random);
  std::vector<std::byte> record(payload_bytes(shape));
  CHECK(pack_record(shape, expert.source(), record));
  // The codes of gate: 11 rows of 14 bytes. Those of down, behind gate and up: 70 rows of 3.
  for (size_t u = 0; u < 14; ++u)
    for (size_t lane = 0; lane < 64; ++lane)
      CHECK(record[u * 64 + lane] == (lane < 11 ? expert.codes[0][lane * 14 + u] : std::byte{121}));
  const size_t gate = 14 * 64 + 3 * 64 * 2;
  for (size_t row = 0; row < 128; ++row)
    for (size_t u = 0; u < 3; ++u)
      CHECK(record[2 * gate + (row / 64 * 3 + u) * 64 + row % 64] ==
            (row < 70 ? expert.codes[2][row * 3 + u] : std::byte{121}));
}

TEST("experts: a byte that is no code, and a scale that is not finite, is refused with its place") {
  Random random(13);
  const auto shape = shape_of(Coding::ternary3, 20, 30);
  std::vector<std::byte> record(payload_bytes(shape));
  Expert expert = some_expert(shape, random);
  expert.codes[1][17] = std::byte{243};
  CHECK_SAYS(pack_record(shape, expert.source(), record), "up holds the byte 243 at element 17");
  expert = some_expert(shape, random);
  expert.scales[2][7] = std::byte{0x7C};
  CHECK_SAYS(pack_record(shape, expert.source(), record),
             "the scales of down hold a number that is not finite at element 3");
  const auto pairs = shape_of(Coding::ternary2, 20, 30);
  Expert other = some_expert(pairs, random);
  other.codes[0][2] = std::byte{0x0C};
  std::vector<std::byte> smaller(payload_bytes(pairs));
  CHECK_SAYS(pack_record(pairs, other.source(), smaller), "gate holds the byte 12 at element 2");
}

TEST("experts: a delta serves both directions, also of equal and of wholly different payloads") {
  Random random(14);
  for (const size_t lines : {1, 5, 64, 65, 200}) {
    for (const size_t changes : {size_t{0}, size_t{1}, size_t{30}, lines * 64}) {
      std::vector<std::byte> a(lines * 64), b;
      for (auto& byte : a) byte = static_cast<std::byte>(random.next());
      b = a;
      for (size_t i = 0; i < changes; ++i)
        b[changes == b.size() ? i : random.below(b.size())] ^= static_cast<std::byte>(1 + random.below(255));
      const auto delta = make_delta(a, b);
      CHECK(delta.size() == delta_bytes(a, b) && delta == make_delta(b, a));
      auto to = a, back = b;
      CHECK(apply_delta(delta, to) && to == b);
      CHECK(apply_delta(delta, back) && back == a);
    }
  }
}

TEST("experts: bytes that are no delta of a payload are refused, and nothing outside of it is touched") {
  Random random(15);
  std::vector<std::byte> a(130 * 64), b = a;
  for (size_t i = 0; i < 300; ++i) b[random.below(b.size())] ^= std::byte{9};
  const auto delta = make_delta(a, b);
  for (size_t i = 0; i < 4000; ++i) {
    auto damaged = delta;
    if (random.below(2) == 0) damaged.resize(random.below(damaged.size() + 1));
    for (size_t k = random.below(4); k > 0 && !damaged.empty(); --k)
      damaged[random.below(std::min<size_t>(damaged.size(), 40))] = static_cast<std::byte>(random.next());
    auto payload = a;
    if (auto applied = apply_delta(damaged, payload); !applied) CHECK_SAYS(applied, "does not fit its expert");
  }
  auto behind = delta;
  behind[23] = std::byte{0x80};  // line 191 of 130
  auto payload = a;
  CHECK_SAYS(apply_delta(behind, payload), "does not fit");
}

TEST("experts: neighbours on a torus are one step apart, each pair once") {
  using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;
  CHECK((neighbours(0, 0) == Pairs{}));
  CHECK((neighbours(1, 1) == Pairs{}));
  CHECK((neighbours(1, 2) == Pairs{{0, 1}}));
  CHECK((neighbours(2, 2) == Pairs{{0, 1}, {0, 2}, {1, 3}, {2, 3}}));
  CHECK(neighbours(4, 4).size() == 32 && neighbours(3, 5).size() == 30);
  CHECK((neighbours(1, 3) == Pairs{{0, 1}, {0, 2}, {1, 2}}));
}

TEST("experts: a packed layer passes its check, in every coding; packed again it has the same bytes") {
  const Folder folder;
  for (const Coding coding : all_codings) {
    const auto shape = shape_of(coding, 96, 72);
    Random first(16), second(16);
    const auto path = folder / name_of(coding), other = path + ".again";
    const LayerReport report = packed_to(path, shape, first);
    packed_to(other, shape, second);
    CHECK(content(path) == content(other) && content(path).size() == report.file_bytes);
    CHECK(report.deltas > 0 && report.pairs == 12);
    ThreadPool pool(2);
    const auto checked = check_layer(path, pool);
    CHECK(checked && checked->digest == report.digest && checked->deltas == report.deltas && checked->layer == 3);
    CHECK(checked && checked->shape == shape);
  }
}

TEST("experts: a bit that is wrong anywhere in a file is found, and so is every other length") {
  const Folder folder;
  Random random(17);
  const auto path = folder / "whole", damaged = folder / "damaged";
  packed_to(path, shape_of(Coding::ternary3, 40, 72), random);
  const auto whole = content(path);
  ThreadPool pool(1);
  const auto faulty = [&](const std::vector<char>& bytes) {
    write(damaged, bytes);
    return !check_layer(damaged, pool);
  };
  for (size_t at = 0; at < whole.size(); at += at < 600 ? 1 : 97) {
    auto bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
    CHECK(faulty(bytes));
  }
  for (const size_t length :
       {size_t{0}, size_t{1}, size_t{127}, size_t{128}, whole.size() - 1, whole.size() + 1, whole.size() + page}) {
    auto bytes = whole;
    bytes.resize(length);
    CHECK(faulty(bytes));
  }
}

TEST("experts: an index that lies, and has the checksum for it, is refused before anything is read by it") {
  const Folder folder;
  Random random(18);
  const auto path = folder / "whole", damaged = folder / "damaged";
  packed_to(path, shape_of(Coding::q8, 40, 72), random);
  const auto whole = content(path);
  uint32_t head = 0;
  std::memcpy(&head, whole.data() + 12, 4);
  ThreadPool pool(1);
  size_t refused = 0;
  for (size_t i = 0; i < 3000; ++i) {
    auto bytes = whole;
    const size_t at = random.below(5) == 0 ? random.below(head) : 8 + random.below(400);
    const auto old = bytes[at];
    bytes[at] = static_cast<char>(random.next());
    if (bytes[at] == old || (at >= 120 && at < 128)) continue;
    std::memset(bytes.data() + 120, 0, 8);
    const uint64_t sum = checksum(std::as_bytes(std::span(bytes.data(), head)));
    std::memcpy(bytes.data() + 120, &sum, 8);
    write(damaged, bytes);
    const int fd = ::open(damaged.c_str(), O_RDONLY);
    const auto index = read_index(fd, damaged);
    ::close(fd);
    // What the index cannot know is found in what it leads to: a digest, a checksum, the number of the layer.
    if (!index) ++refused;
    if (index && index->layer == 3) CHECK(!check_layer(damaged, pool));
  }
  CHECK(refused > 1500);
}

}  // namespace continuo::test::experts_test
