#include "graph/reader.h"

#include "graph/check.h"
#include "graph/node_attributes.h"

namespace continuo {

Result<Graph> Reader::read() {
  const auto* format = root_.find("format");
  if (!format || !format->is_string() || format->text != "continuo-graph/2")
    return invalid("graph: expected the format \"continuo-graph/2\".");
  if (!indices() || !declarations() || !memory() || !perspective() || !blocks()) return *error_;
  return std::move(graph_);
}

// Reads a whole number from `least` to `most`; `otherwise` where the member is missing.
bool Reader::number(const Value& object, const char* member, const std::string& user, uint64_t least, uint64_t most,
                    uint64_t& out, std::optional<uint64_t> otherwise) {
  auto n = read_number(object, member, least, most, otherwise);
  if (!n) return fail(user, n.error().message);
  out = *n;
  return true;
}

bool Reader::fresh_name(const std::string* name, const char* what) {
  if (!name || name->empty() || name->size() > 200) return fail(what, " lacks its name.");
  if (name->find_first_of("(),+ \"") != std::string::npos)
    return fail("the name \"", *name,
                "\" has a character that the text of operands reserves: ( ) , + quotes or a space.");
  if (names_.contains(*name) || index_names_.contains(*name)) return fail("\"", *name, "\" is declared twice.");
  return true;
}

bool Reader::indices() {
  const auto* list = root_.list_of("indices");
  if (!list) return root_.find("indices") == nullptr || fail("\"indices\" is no list.");
  for (const auto& item : *list) {
    const auto* name = item.text_of("name");
    if (!fresh_name(name, "an index")) return false;
    Indexed index;
    index.name = *name;
    const bool good = item.find("of") ? part_of(item, index)
                                      : number(item, "extent", text("index \"", *name, "\""), 1, 1 << 20, index.extent);
    if (!good) return false;
    index_names_.emplace(*name, static_cast<Index>(graph_.indices.size()));
    graph_.indices.push_back(std::move(index));
  }
  return true;
}

// Reads an index that numbers some values of another one.
bool Reader::part_of(const Value& item, Indexed& index) {
  const auto* of = item.text_of("of");
  const auto* at = item.list_of("at");
  const auto found = of ? index_names_.find(*of) : index_names_.end();
  if (found == index_names_.end() || graph_.indices[found->second].of != no_name)
    return fail("index \"", index.name, "\" is a part of \"", of ? *of : "",
                "\", expected an index that is declared before it and is itself no part.");
  if (!at || at->empty()) return fail("index \"", index.name, "\" needs \"at\", the values that it numbers.");
  index.of = found->second;
  for (const auto& entry : *at) {
    const auto value = entry.as_u64();
    if (!value || *value >= graph_.indices[index.of].extent || (!index.at.empty() && *value <= index.at.back()))
      return fail("index \"", index.name, "\" needs ascending whole numbers below ", graph_.indices[index.of].extent,
                  " in \"at\".");
    index.at.push_back(*value);
  }
  index.extent = index.at.size();
  return true;
}

bool Reader::memory() {
  const auto* item = root_.find("memory");
  if (!item) return true;
  auto memory = read_external_memory(*item, graph_);
  if (!memory) {
    error_ = memory.error();
    return false;
  }
  graph_.memory = std::move(*memory);
  return true;
}

bool Reader::perspective() {
  const auto* item = root_.find("perspective");
  if (!item) return true;
  auto perspective = read_perspective(*item, graph_);
  if (!perspective) {
    error_ = perspective.error();
    return false;
  }
  graph_.perspective = std::move(*perspective);
  return true;
}

Result<Graph> parse_graph(std::string_view source) {
  auto root = json::parse(source);
  if (!root) return invalid("graph: ", root.error().message);
  auto graph = Reader(*root).read();
  if (!graph) return graph.error();
  if (auto good = check_graph(*graph); !good) return good.error();
  return graph;
}

}  // namespace continuo
