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
// The folders of runtime/, in the same way. Those of one line do not include each other either.
const std::vector<std::vector<std::string>> rooms{
    {"model"}, {"state"}, {"executor"}, {"memory", "sampling"}, {"adapt", "drafts"}, {"scheduler"},
};

// The floor of a path; one past the last for the folders on top (binding, bench, test).
size_t floor_of(const std::string& path) {
  const std::string floor = path.substr(0, path.find('/'));
  return static_cast<size_t>(std::find(floors.begin(), floors.end(), floor) - floors.begin());
}

// "state" of "runtime/state/blocks.h"; empty for what is not in a folder of runtime/.
std::string room_of(const std::string& path) {
  constexpr std::string_view runtime = "runtime/";
  if (!path.starts_with(runtime)) return "";
  const std::string rest = path.substr(runtime.size());
  return rest.substr(0, rest.find('/'));
}

size_t line_of(const std::string& room) {
  const auto at = std::find_if(rooms.begin(), rooms.end(), [&](const std::vector<std::string>& line) {
    return std::find(line.begin(), line.end(), room) != line.end();
  });
  return static_cast<size_t>(at - rooms.begin());
}

bool may_include(const std::string& file, const std::string& path) {
  if (floor_of(path) != floor_of(file)) return floor_of(path) < floor_of(file);
  const std::string from = room_of(file), to = room_of(path);
  return from == to || line_of(to) < line_of(from);
}

// "file: include" for every include in a source text that names a header of a higher floor, or no header of native/.
std::vector<std::string> breaches(const std::string& file, std::istream& source, const fs::path& root) {
  std::vector<std::string> out;
  constexpr std::string_view directive = "#include \"";
  for (std::string line; std::getline(source, line);) {
    if (!line.starts_with(directive)) continue;
    const std::string path = line.substr(directive.size(), line.rfind('"') - directive.size());
    if (!may_include(file, path) || !fs::exists(root / path)) out.push_back(file + ": " + path);
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
      "#include \"base/result.h\"\n#include \"runtime/model/model.h\"\n#include <vector>\n#include \"ops.h\"\n");
  const auto found = breaches("graph/ops.cc", source, native);
  CHECK((found == std::vector<std::string>{"graph/ops.cc: runtime/model/model.h", "graph/ops.cc: ops.h"}));
}

TEST("floors: an include that leads upwards within runtime/ is found, and one to a neighbour") {
  std::istringstream source(
      "#include \"runtime/state/context.h\"\n#include \"runtime/scheduler/work.h\"\n"
      "#include \"runtime/sampling/sampler.h\"\n#include \"runtime/memory/payload.h\"\n");
  const auto found = breaches("runtime/memory/payload.cc", source, native);
  CHECK((found == std::vector<std::string>{"runtime/memory/payload.cc: runtime/scheduler/work.h",
                                           "runtime/memory/payload.cc: runtime/sampling/sampler.h"}));
}

TEST("floors: every folder of native/ is a floor, or stands on top") {
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(native)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && !name.starts_with("build")) folders.push_back(name);
  }
  std::sort(folders.begin(), folders.end());
  auto known = floors;
  known.insert(known.end(), {"bench", "binding", "test"});
  std::sort(known.begin(), known.end());
  CHECK(folders == known);
}

TEST("floors: every folder of native/runtime/ has its line, and no file stands beside them") {
  for (const auto& entry : fs::directory_iterator(native / "runtime")) {
    CHECK(entry.is_directory());
    CHECK(line_of(entry.path().filename().string()) < rooms.size());
  }
}

}  // namespace continuo::test::floors_test
