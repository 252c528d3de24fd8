// What a graph declares: memory of every kind, and constants.
#include <bit>
#include <cmath>
#include <unordered_set>

#include "graph/node_attributes.h"
#include "graph/ops.h"
#include "graph/reader.h"
#include "weights/safetensors.h"

namespace continuo {

namespace {

// The most elements of a tensor. Like max_extent: more than any model needs, and no size in bytes overflows 64 bits.
constexpr uint64_t max_elements = uint64_t{1} << 40;
// Bytes of a table that grows along one counter, at its bound: it takes memory for the positions that it has.
constexpr uint64_t max_grown_bytes = uint64_t{1} << 52;
constexpr size_t max_view_parts = 1024;
// Room along each of them is up to twice what is entered.
constexpr size_t max_growing_axes = 4;

}  // namespace

bool Reader::declarations() {
  const auto* list = root_.list_of("declarations");
  if (!list) return fail("declarations are missing.");
  for (const auto& item : *list) {
    Declaration d;
    const auto* name = item.text_of("name");
    const auto* kind = item.text_of("kind");
    if (!fresh_name(name, "a declaration")) return false;
    if (!kind) return fail("\"", *name, "\" has no kind.");
    d.name = *name;
    const bool good = *kind == "constant"     ? constant(item, d)
                      : *kind == "dynamic"    ? row_memory(item, d, Kind::dynamic)
                      : *kind == "volatile"   ? volatile_memory(item, d)
                      : *kind == "persistent" ? persistent(item, d)
                                              : fail("\"", d.name, "\" has the unknown kind \"", *kind, "\".");
    if (!good) return false;
    names_.emplace(d.name, static_cast<Name>(graph_.declarations.size()));
    graph_.declarations.push_back(std::move(d));
  }
  return true;
}

bool Reader::shape(const Value& item, Declaration& d) {
  const auto* list = item.list_of("shape");
  if (!list) return fail("\"", d.name, "\" has no shape.");
  uint64_t elements = 1;
  for (const auto& extent : *list) {
    const auto n = extent.as_u64();
    if (!n || *n == 0 || *n > max_extent || elements > max_elements / *n)
      return fail("\"", d.name, "\" needs a shape of whole numbers from 1 to ", max_extent, ", with at most ",
                  max_elements, " elements.");
    elements *= *n;
    d.shape.push_back(*n);
  }
  return true;
}

bool Reader::type(const Value& item, Declaration& d) {
  const auto* dtype = item.text_of("dtype");
  const auto found = type_named(dtype ? *dtype : "f32");
  if (!found || *found == Type::i64)
    return fail("\"", d.name, "\" has the unknown dtype \"", dtype ? *dtype : "",
                "\", expected f32, f16, bf16, f8, i8, u8, i32 or bool.");
  d.type = *found;
  return true;
}

bool Reader::row_memory(const Value& item, Declaration& d, Kind kind) {
  d.kind = kind;
  return shape(item, d) && type(item, d);
}

bool Reader::volatile_memory(const Value& item, Declaration& d) {
  if (!row_memory(item, d, Kind::volatile_)) return false;
  const auto* ref = item.text_of("ref");
  const auto* pattern = item.text_of("pattern");
  if (!ref && !pattern) return true;
  const std::string user = text("volatile \"", d.name, "\", which is bound to tensors,");
  if (ref && pattern) return fail(user, " has both ref (one tensor) and pattern (a family), expected one of them.");
  d.tensor = ref ? *ref : *pattern;
  if (d.tensor.empty()) return fail(user, " names no tensor.");
  if (d.type != Type::f32)
    return fail(user, " is ", name_of(d.type), ", expected f32: what the file holds is widened.");
  if (d.shape.empty()) return fail(user, " has no axis, expected at least one.");
  for (const char* member : {"layout", "transposed", "row", "view", "columns", "map", "storage", "scales", "group"}) {
    if (item.find(member))
      return fail(user, " has \"", member, "\", which only constants have: it takes its tensors as they are.");
  }
  d.layout = Layout::vector;
  if (pattern && !family(item, d)) return false;
  if (pattern) d.axes.push_back({Axis::Kind::index, graph_.indices[d.over].extent, no_name});
  for (const auto extent : d.shape) d.axes.push_back({Axis::Kind::fixed, extent, no_name});
  return true;
}

bool Reader::constant(const Value& item, Declaration& d) {
  d.kind = Kind::constant;
  if (!shape(item, d)) return false;
  const auto* ref = item.text_of("ref");
  const auto* pattern = item.text_of("pattern");
  const auto* layout = item.text_of("layout");
  if ((ref == nullptr) == (pattern == nullptr) || !layout)
    return fail("constant \"", d.name, "\" needs a layout, and either ref (one tensor) or pattern (a family).");
  d.tensor = ref ? *ref : *pattern;
  if (d.tensor.empty()) return fail("constant \"", d.name, "\" names no tensor.");
  if (!read_word(*layout,
                 {{"packed", Layout::packed},
                  {"rows", Layout::rows},
                  {"vector", Layout::vector},
                  {"stack", Layout::stack},
                  {"experts", Layout::experts}},
                 d.layout))
    return fail("constant \"", d.name, "\" has the unknown layout \"", *layout, "\".");
  const bool cube = d.layout == Layout::stack || d.layout == Layout::experts;
  if (d.shape.size() != (d.layout == Layout::vector ? 1u : cube ? 3u : 2u))
    return fail("constant \"", d.name, "\" has shape ", shape_text(d.shape), ", which its layout cannot hold.");
  if (d.layout == Layout::experts)
    return pattern ? family(item, d)
                   : fail("constant \"", d.name, "\" is no family: a store of experts has a file for each layer.");
  if (const auto* transposed = item.find("transposed")) d.transposed = transposed->boolean;
  if (d.transposed && d.layout != Layout::packed)
    return fail("constant \"", d.name, "\" is transposed, which only the layout packed supports.");
  if (item.find("row")) {
    uint64_t row = 0;
    if (d.layout != Layout::vector || !number(item, "row", text("constant \"", d.name, "\""), 0, max_extent, row))
      return fail("constant \"", d.name,
                  "\" has a \"row\": it needs the layout vector, and a whole number for the row.");
    d.row = static_cast<int64_t>(row);
  }
  if (!view(item, "view", d, d.view) || !view(item, "columns", d, d.columns) || !map(item, d)) return false;
  return (!pattern || family(item, d)) && stored(item, d);
}

// { offset?, repeat, step, parts: [[from, count, stride?]], each? }
bool Reader::view(const Value& item, const char* member, const Declaration& d, View& view) {
  const auto* found = item.find(member);
  if (!found) return true;
  const std::string user = text("constant \"", d.name, "\", its ", member);
  if (!number(*found, "offset", user, 0, max_extent, view.offset, 0) ||
      !number(*found, "repeat", user, 1, max_extent, view.repeat) ||
      !number(*found, "step", user, 0, max_extent, view.step) ||
      !number(*found, "each", user, 0, max_extent, view.each, 0))
    return false;
  const auto* parts = found->list_of("parts");
  if (!parts || parts->empty() || parts->size() > max_view_parts)
    return fail(user, " needs 1 to ", max_view_parts, " parts, each a list of from, count and perhaps stride.");
  for (const auto& part : *parts) {
    View::Part read;
    uint64_t* const numbers[] = {&read.from, &read.count, &read.stride};
    if (!part.is_array() || part.items.size() < 2 || part.items.size() > 3)
      return fail(user, " has a part that is no list of from, count and perhaps stride.");
    for (size_t i = 0; i < part.items.size(); ++i) {
      const auto n = part.items[i].as_u64();
      if (!n || *n > max_extent)
        return fail(user, " has a part with a number that is not whole, from 0 to ", max_extent, ".");
      *numbers[i] = *n;
    }
    view.parts.push_back(read);
  }
  const bool inputs = std::string_view(member) == "columns";
  const uint64_t wanted = d.shape[d.layout == Layout::stack ? 1 + inputs : inputs ? d.shape.size() - 1 : 0];
  if (const auto rows = view.count(); rows != wanted)
    return fail(user, " gives ", rows.value_or(0), " rows, expected ", wanted, ".");
  if (d.transposed || d.row >= 0 || (inputs && d.layout != Layout::packed && d.layout != Layout::stack))
    return fail(user, ": a transposed constant and one with a row have no views, and only matrices have columns.");
  return true;
}

bool Reader::map(const Value& item, Declaration& d) {
  const auto* word = item.text_of("map");
  if (!word) return true;
  if (d.layout != Layout::vector || !read_word(*word, {{"one_plus", Map::one_plus}, {"neg_exp", Map::neg_exp}}, d.map))
    return fail("constant \"", d.name, "\" has the map \"", *word, "\", expected a vector with one_plus or neg_exp.");
  return true;
}

bool Reader::family(const Value& item, Declaration& d) {
  const std::string user = text(name_of(d.kind), " \"", d.name, "\"");
  const auto* over = item.text_of("over");
  const auto found = over ? index_names_.find(*over) : index_names_.end();
  if (found == index_names_.end()) return fail(user, " has a pattern but no index it runs over.");
  d.over = found->second;
  if (d.tensor.find(text("{", *over, "}")) == std::string::npos && d.view.each == 0)
    return fail(user, ": its pattern \"", d.tensor, "\" lacks {", *over, "}.");
  return number(item, "from", user, 0, graph_.indices[d.over].extent - 1, d.from, 0);
}

bool Reader::stored(const Value& item, Declaration& d) {
  const auto* storage = item.text_of("storage");
  if (!storage) return true;
  if (!read_word(
          *storage,
          {{"q8", Storage::q8}, {"i4", Storage::i4}, {"ternary2", Storage::ternary2}, {"ternary3", Storage::ternary3}},
          d.storage))
    return fail("constant \"", d.name, "\" has the unknown storage \"", *storage,
                "\", expected q8, i4, ternary2 or ternary3.");
  const auto* scales = item.text_of("scales");
  uint64_t group = 0;
  if (!number(item, "group", text("constant \"", d.name, "\""), 32, 64, group)) return false;
  if (!scales || (group != 32 && group != 64))
    return fail("constant \"", d.name, "\" needs the tensor of its scales and a group of 32 or 64.");
  if ((d.layout != Layout::packed && d.layout != Layout::stack) || d.transposed || d.columns)
    return fail("constant \"", d.name, "\" is stored as ", *storage,
                ", which only a packed matrix that is not transposed can be.");
  d.scales = *scales;
  d.group = static_cast<uint32_t>(group);
  return true;
}

bool Reader::persistent(const Value& item, Declaration& d) {
  d.kind = Kind::persistent;
  const auto* counter = item.find("counter");
  const auto* clock = item.find("clock");
  if (const auto* derived = item.find("derived")) d.derived = derived->boolean;
  if (clock && clock->boolean) {
    if (graph_.clock != no_name) return fail("\"", d.name, "\" is a second clock; a context has one.");
    graph_.clock = static_cast<Name>(graph_.declarations.size());
    d.counter = d.clock = true;
    d.type = Type::i64;
    d.bound = unbounded;
    return true;
  }
  if (counter && counter->boolean) {
    d.counter = true;
    d.type = Type::i64;
    return number(item, "max", text("counter \"", d.name, "\""), 1, unbounded, d.bound, unbounded);
  }
  const auto* init = item.find("init");
  const auto value = init ? init->as_double() : std::optional<double>(0);
  if (!value || !std::isfinite(static_cast<float>(*value)))
    return fail("persistent \"", d.name, "\" needs a finite init.");
  d.init = *value;
  if (!type(item, d)) return false;
  const auto* axes = item.list_of("axes");
  if (!axes) return fail("persistent \"", d.name, "\" has no axes.");
  uint64_t bytes = size_of(d.type);
  bool fits = true;
  for (const auto& axis : *axes) {
    Axis a;
    if (!read_axis(axis, d, a)) return false;
    fits = fits && bytes <= max_grown_bytes / a.extent;
    bytes *= a.extent;
    d.shape.push_back(a.kind == Axis::Kind::grows ? 0 : a.extent);
    d.axes.push_back(a);
  }
  if (!fits || bytes > (d.growing() == 1 ? max_grown_bytes : max_elements))
    return fail("persistent \"", d.name, "\" is too large.");
  const std::string user = text("persistent \"", d.name, "\"");
  if (item.find("block") == nullptr) return true;
  if (!number(item, "block", user, 1, Declaration::most_block, d.block)) return false;
  if (d.growing() != 1 || !std::has_single_bit(d.block))
    return fail(user, " has blocks of ", d.block, " positions, expected a power of two and one axis that grows.");
  return true;
}

bool Reader::read_axis(const Value& item, const Declaration& d, Axis& axis) {
  const std::string user = text("persistent \"", d.name, "\"");
  if (const auto n = item.as_u64()) {
    axis.extent = *n;
    return (*n > 0 && *n <= max_extent) || fail(user, " has an axis of ", *n, ".");
  }
  if (const auto* over = item.text_of("index")) {
    const auto found = index_names_.find(*over);
    if (found == index_names_.end()) return fail(user, " has an axis over \"", *over, "\", which is no index.");
    axis.kind = Axis::Kind::index;
    axis.extent = graph_.indices[found->second].extent;
    return true;
  }
  const bool ring = item.find("ring") != nullptr;
  const auto* counter = item.text_of(ring ? "counter" : "grows");
  if (!counter) return fail(user, " has an axis that is neither a number, an index, a ring nor growing.");
  const auto found = names_.find(*counter);
  if (found == names_.end() || !graph_.declarations[found->second].counter)
    return fail(user, " has an axis over \"", *counter, "\", expected a counter declared before it.");
  axis.counter = found->second;
  for (const auto& other : d.axes) {
    if (other.counter != no_name && (ring || other.kind == Axis::Kind::ring))
      return fail(user,
                  " has a ring beside another axis that follows a counter, expected a ring alone, or only axes "
                  "that grow.");
  }
  if (d.growing() == max_growing_axes) return fail(user, " grows along more than ", max_growing_axes, " axes.");
  if (ring) {
    axis.kind = Axis::Kind::ring;
    return number(item, "ring", user, 1, max_extent, axis.extent);
  }
  axis.kind = Axis::Kind::grows;
  axis.extent = graph_.declarations[found->second].bound;
  return axis.extent <= max_extent || fail(user, " grows with \"", *counter, "\", whose bound is ", axis.extent,
                                           ", expected at most ", max_extent, ": give the counter a max.");
}

}  // namespace continuo
