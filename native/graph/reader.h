// Reader: a graph from its JSON. It checks the form, the names and each declaration by itself; check.h checks how they
// fit together. In reader.cc are the members of the graph, in reader_declarations.cc its memory and constants, in
// reader_nodes.cc its blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "graph/graph.h"

namespace continuo {

class Reader {
 public:
  using Value = json::Value;

  explicit Reader(const Value& root) : root_(root) {}

  Result<Graph> read();

 private:
  template <class... Parts> bool fail(const Parts&... parts) {
    if (!error_) error_ = invalid("graph: ", parts...);
    return false;
  }
  // Reads a whole number from `least` to `most`; `otherwise` where the member is missing.
  bool number(const Value& object, const char* member, const std::string& user, uint64_t least, uint64_t most,
              uint64_t& out, std::optional<uint64_t> otherwise = std::nullopt);
  bool fresh_name(const std::string* name, const char* what);
  bool indices();
  // Reads an index that numbers some values of another one.
  bool part_of(const Value& item, Indexed& index);
  bool declarations();
  bool memory();
  bool perspective();
  bool shape(const Value& item, Declaration& d);
  bool type(const Value& item, Declaration& d);
  bool row_memory(const Value& item, Declaration& d, Kind kind);
  bool volatile_memory(const Value& item, Declaration& d);
  bool constant(const Value& item, Declaration& d);
  // { offset?, repeat, step, parts: [[from, count, stride?]], each? }
  bool view(const Value& item, const char* member, const Declaration& d, View& view);
  bool map(const Value& item, Declaration& d);
  bool family(const Value& item, Declaration& d);
  bool stored(const Value& item, Declaration& d);
  bool persistent(const Value& item, Declaration& d);
  bool read_axis(const Value& item, const Declaration& d, Axis& axis);
  bool operand(const std::string& user, const Value& item, Operand& out);
  bool read_term(const std::string& user, const std::string& source, Term& term);
  bool blocks();
  bool read_nodes(const std::vector<Value>& list, std::vector<Node>& out);
  bool read_loop(const Value& item, Node& node);
  bool read_branch(const Value& item, Node& node);
  bool read_return(const Value& item, Node& node);
  bool read_op(const Value& item, Node& node);

  const Value& root_;
  Graph graph_;
  std::unordered_map<std::string, Name> names_;
  std::unordered_map<std::string, Index> index_names_;
  std::optional<Error> error_;
};

}  // namespace continuo
