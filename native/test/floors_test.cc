// The floors of native/: a folder includes only headers of itself and of lower floors.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "test/check.h"

namespace continuo::test::floors_test {

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> floors{"base", "weights", "experts", "graph", "compile", "runtime", "backends"};

// The floor of a path; one past the last for the folders on top (binding, bench, test).
size_t floor_of(const std::string& path) {
  const std::string room = path.substr(0, path.find('/'));
  return static_cast<size_t>(std::find(floors.begin(), floors.end(), room) - floors.begin());
}

// "file: include" for every include in a source text that names a header of a higher floor, or no header of native/.
std::vector<std::string> breaches(const std::string& file, std::istream& source, const fs::path& root) {
  std::vector<std::string> out;
  constexpr std::string_view directive = "#include \"";
  for (std::string line; std::getline(source, line);) {
    if (!line.starts_with(directive)) continue;
    const std::string path = line.substr(directive.size(), line.rfind('"') - directive.size());
    if (floor_of(path) > floor_of(file) || !fs::exists(root / path)) out.push_back(file + ": " + path);
  }
  return out;
}

// From CMake: what __FILE__ says depends on how the compiler was called.
const fs::path native = CONTINUO_NATIVE;

}  // namespace

TEST("floors: every file of native/ includes only its own floor and those below") {
  size_t files = 0;
  for (const auto& floor : floors) {
    for (const auto& entry : fs::recursive_directory_iterator(native / floor)) {
      if (!entry.is_regular_file()) continue;
      ++files;
      std::ifstream source(entry.path());
      for (const auto& breach : breaches(fs::relative(entry.path(), native).generic_string(), source, native)) {
        continuo::test::fail(__FILE__, __LINE__, breach);
      }
    }
  }
  CHECK(files > 80);
}

TEST("floors: an include that leads upwards is found, and one that leads nowhere") {
  std::istringstream source(
      "#include \"base/result.h\"\n#include \"runtime/model.h\"\n#include <vector>\n#include \"ops.h\"\n");
  const auto found = breaches("graph/ops.cc", source, native);
  CHECK((found == std::vector<std::string>{"graph/ops.cc: runtime/model.h", "graph/ops.cc: ops.h"}));
}

TEST("floors: every folder of native/ is a floor, or stands on top") {
  std::vector<std::string> rooms;
  for (const auto& entry : fs::directory_iterator(native)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && !name.starts_with("build")) rooms.push_back(name);
  }
  std::sort(rooms.begin(), rooms.end());
  auto known = floors;
  known.insert(known.end(), {"bench", "binding", "test"});
  std::sort(known.begin(), known.end());
  CHECK(rooms == known);
}

}  // namespace continuo::test::floors_test
