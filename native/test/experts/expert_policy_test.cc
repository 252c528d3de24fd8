// What the cache evicts, against a slow model of it on random traces; and the table of frequencies.
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "experts/frequencies.h"
#include "test/experts/expert_stores.h"

namespace continuo::test::expert_policy_test {

using namespace continuo::experts;

namespace {

using Key = std::pair<uint32_t, uint32_t>;  // layer, expert

// docs/experts.md, "Tiers", word by word.
struct Model {
  const Store& store;
  size_t bound;  // records
  Policy policy;
  bool deltas;

  struct Known {
    float f = 0;
    uint64_t last = 0, uses = 0, touched = 0;
    std::set<unsigned> expected;
  };
  std::map<uint32_t, uint64_t> c;
  std::map<Key, Known> known;
  std::set<Key> resident;
  uint64_t clock = 0;
  // Predictions that are not judged yet, by distance: whom, and whether he was there. What they were worth so far.
  std::map<unsigned, std::vector<std::pair<Key, bool>>> predicted;
  std::map<unsigned, double> trust{{1, 0.6}, {2, 0.6}};

  void use(Key key, uint64_t row) {
    Known& k = known[key];
    const uint64_t now = c[key.first] + row + 1;
    k.f = static_cast<float>(k.f * std::pow(0.999, static_cast<double>(now - k.last)) + 0.001);
    k.last = now;
    ++k.uses;
    k.touched = ++clock;
  }
  void predict(Key key, unsigned k) {
    known[key].expected.insert(k);
    predicted[k].emplace_back(key, resident.contains(key));
  }
  void judge(uint32_t layer, const Experts& chosen) {
    for (auto& [k, all] : predicted) {
      for (const auto& [key, was_resident] : all) {
        const bool right = std::find(chosen.begin(), chosen.end(), key.second) != chosen.end();
        if (key.first == layer && !was_resident) trust[k] += ((right ? 1.0 : 0.0) - trust[k]) / 64;
      }
      std::erase_if(all, [&](const auto& each) { return each.first.first == layer; });
    }
  }
  size_t place(uint32_t layer) const {
    return static_cast<size_t>(std::find(store.numbers.begin(), store.numbers.end(), layer) - store.numbers.begin());
  }
  // The padded bytes of the smallest delta with a resident neighbour, and that neighbour.
  std::optional<std::pair<uint64_t, Key>> nearest(Key key) const {
    std::optional<std::pair<uint64_t, Key>> out;
    if (!deltas) return out;
    for (const auto& delta : store.layers[place(key.first)].index.deltas) {
      if (delta.a != key.second && delta.b != key.second) continue;
      const Key other{key.first, delta.a == key.second ? delta.b : delta.a};
      const std::pair found(padded(delta.bytes), other);
      if (resident.contains(other) && (!out || found < *out)) out = found;
    }
    return out;
  }
  double score(Key key) {
    const Known& k = known[key];
    const bool expected = !k.expected.empty();
    if (policy == Policy::lfu) return static_cast<double>(k.uses) + (expected ? 1 : 0);
    if (policy == Policy::lru) return expected ? 1e300 : static_cast<double>(k.touched);
    const auto near = nearest(key);
    const double cost = near ? static_cast<double>(near->first) / static_cast<double>(store.record) : 1;
    const auto age = static_cast<double>(c[key.first] - k.last);
    if (expected) return (k.f * std::pow(0.999, age + 1) + 0.001) * cost;
    return k.f * std::pow(0.999, age) / (1 + age) * cost;
  }
  std::optional<Key> lowest(std::optional<Key> pinned) {
    std::optional<Key> out;
    for (const Key& key : resident)
      if (key != pinned && (!out || score(key) < score(*out))) out = key;
    return out;
  }
  // Whether it is read.
  bool ask(Key key, bool ahead) {
    if (resident.contains(key)) return true;
    // Look-ahead that was wrong more often than right reads nothing.
    if (ahead && trust[1] < 0.5) return false;
    const auto near = nearest(key);
    std::optional<Key> goes;
    if (resident.size() == bound) {
      const auto may = [&](std::optional<Key> each) { return each && (!ahead || score(*each) < score(key)); };
      goes = near ? lowest(near->second) : std::nullopt;
      if (!may(goes)) goes = lowest(std::nullopt);
      if (!may(goes)) return false;
      resident.erase(*goes);
    }
    resident.insert(key);
    known[key].touched = ++clock;
    return true;
  }
};

void ask_ahead(const std::shared_ptr<ExpertCache>& cache, Key key) {
  std::atomic<bool> ended{false};
  cache->want(key.first, Experts{key.second}, Reason::ahead1);
  cache->on_arrival(key.first, key.second, [&] { ended = true, ended.notify_all(); });
  ended.wait(false);
}

std::vector<char> content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST("expert cache: it evicts what a slow model of it evicts, for every policy, on random traces") {
  const Store store(3);
  for (const Policy policy : {Policy::score, Policy::lfu, Policy::lru}) {
    for (const bool deltas : {true, false}) {
      for (const size_t bound : {2, 3, 7, 20}) {
        CacheOptions options;
        options.policy = policy;
        options.deltas = deltas;
        const auto cache = store.cache(bound, options);
        Model model{store, bound, policy, deltas, {}, {}, {}, 0};
        Random random(bound * 10 + static_cast<size_t>(policy));
        for (size_t step = 0; step < rounds(150); ++step) {
          const uint32_t layer = store.numbers[step % 3], next = store.numbers[(step + 1) % 3];
          // Rows choose experts, some of them the same.
          Experts chosen, rows;
          const size_t count = 1 + random.below(4);
          for (uint32_t row = 0; row < count; ++row) {
            for (const uint32_t expert : some_experts(random, 2, 6 + random.below(11))) {
              chosen.push_back(expert);
              rows.push_back(row);
              model.use({layer, expert}, row);
            }
          }
          model.c[layer] += count;
          model.judge(layer, chosen);
          for (auto& [key, known] : model.known)
            if (key.first == layer) known.expected.clear();
          cache->routed(layer, chosen, rows);
          for (const uint32_t expert : chosen) {
            model.ask({layer, expert}, false);
            take_all(store, cache, step % 3, {expert});
          }
          for (const unsigned k : {1u, 2u}) {
            const auto guess = some_experts(random, 2, 16);
            for (const uint32_t expert : guess) model.predict({next, expert}, k);
            cache->predicted(next, k, guess);
            model.ask({next, guess[0]}, true);
            ask_ahead(cache, {next, guess[0]});
          }
          const Key blind{next, static_cast<uint32_t>(random.below(16))};
          model.ask(blind, true);
          ask_ahead(cache, blind);
          std::set<Key> found;
          for (const uint32_t number : store.numbers)
            for (uint32_t e = 0; e < 16; ++e)
              if (cache->ready(number, e)) found.emplace(number, e);
          CHECK(found == model.resident);
          if (found != model.resident) break;
        }
      }
    }
  }
}

TEST(
    "expert cache: frequencies stand in a file, and the warm-up reads the most frequent first, as far as there is "
    "room") {
  const Store store;
  {
    const auto cache = store.cache(4);
    CHECK(cache->take_notes().empty());  // there is none yet
    for (uint32_t e = 0; e < 10; ++e)
      for (uint32_t i = 0; i <= e; ++i) cache->routed(1, Experts{e}, Experts{0});
    CHECK(cache->save_frequencies());
  }
  const std::string path = store.folder.path + "/frequencies.bin";
  const auto saved = content(path);
  CHECK(saved.size() == 56 + 32 * 4 + 8);
  const auto script = std::make_shared<Script>();
  auto options = scripted(script);
  options.deltas = false;
  options.frequencies = true;
  const auto cache = store.cache(6, options);
  CHECK(cache->take_notes().empty());
  cache->warm();
  const auto started = script->wait_for(6);
  // The later of two is the more frequent, and was used last.
  for (size_t i = 0; i < 6; ++i) CHECK(started[i] == store.offset(0, 9 - i));
  take_all(store, cache, 0, {4});
  take_all(store, cache, 0, {0});
  const auto told = cache->statistics();
  CHECK(told.warm_bytes == 6 * store.record && told.demand_bytes == store.record && told.evictions == 1);
  // What was read is written as it was; no temporary file is left.
  CHECK(cache->save_frequencies() && content(path) == saved);
  size_t files = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(store.folder.path)) ++files;
  CHECK(files == 3);
}

TEST(
    "expert cache: a table of frequencies that is damaged or another store's is begun anew, with one note; one that is "
    "missing without") {
  const Store store, other(2, 16, 99);
  const std::string path = store.folder.path + "/frequencies.bin";
  const auto says = [&](const std::string& part) {
    const auto cache = store.cache(2);
    cache->warm();
    CHECK(cache->statistics().reads == 0);
    const auto notes = cache->take_notes();
    CHECK(notes.size() == 1 && notes[0].find(part) != std::string::npos);
    CHECK(notes.size() == 1 && notes[0].find("is begun anew") != std::string::npos);
  };
  // The first start of a store is no fault.
  CHECK(store.cache(2)->take_notes().empty());
  for (const Store* each : {&other, &store}) {
    const auto cache = each->cache(2);
    cache->routed(1, Experts{3}, Experts{0});
    CHECK(cache->save_frequencies());
  }
  CHECK(store.cache(2)->take_notes().empty());
  for (const uint64_t at : {1, 9, 20, 70, 186}) {
    flip_bit(path, at);
    says(at == 1 || at == 9 ? "is no table of frequencies" : at == 20 ? "bytes, expected" : "is damaged (checksum ");
    flip_bit(path, at);
  }
  std::filesystem::copy_file(other.folder.path + "/frequencies.bin", path,
                             std::filesystem::copy_options::overwrite_existing);
  says("is of another store");
  std::filesystem::resize_file(path, 30);
  says("has 30 bytes");
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  says("is no file");
  CHECK_SAYS(store.cache(2)->save_frequencies(), "could not be written: Is a directory");
  CacheOptions options;
  options.frequencies = false;
  CHECK(store.cache(2, options)->take_notes().empty() && store.cache(2, options)->save_frequencies());
}

TEST("expert cache: a frequency is the share of the last tokens, newer ones more") {
  const std::array<size_t, 1> counts{3};
  Frequencies table(counts);
  std::vector<double> expected(3, 0);
  Random random(4);
  for (uint64_t c = 1; c < 6000; ++c) {
    for (auto& each : expected) each *= 0.999;
    for (size_t e = 0; e < 3; ++e) {
      if (random.below(e == 2 && c > 500 ? 1000 : e + 1) != 0) continue;
      expected[e] += 0.001;
      table.use(0, e, c);
    }
    table.route(0, 1);
    for (size_t e = 0; e < 3; ++e) CHECK(std::abs(table.frequency(0, e) - expected[e]) < 1e-5);
  }
}

}  // namespace continuo::test::expert_policy_test
