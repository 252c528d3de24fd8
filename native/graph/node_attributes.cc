// Reads the attributes of a node.
#include "graph/node_attributes.h"

#include <charconv>
#include <cmath>

namespace continuo {

namespace {

using json::Value;

class Attributes {
 public:
  explicit Attributes(const std::string& user) : user_(user) {}

  Status read(const Value& item, const OpTraits& op, bool literal, Node& node) {
    if (!attributes(item, op, literal, node)) return *error_;
    return Done{};
  }

 private:
  template <class... Parts> bool fail(const Parts&... parts) {
    if (!error_) error_ = invalid("graph: ", parts...);
    return false;
  }

  // Reads a whole number from `least` to `most`; `otherwise` where the member is missing.
  bool number(const Value& object, const char* member, uint64_t least, uint64_t most, uint64_t& out,
              std::optional<uint64_t> otherwise = std::nullopt) {
    auto n = read_number(object, member, least, most, otherwise);
    if (!n) return fail(user_, n.error().message);
    out = *n;
    return true;
  }

  bool attributes(const Value& item, const OpTraits& op, bool literal, Node& node) {
    uint64_t n = 1;
    if (op.has(attribute::groups)) {
      // A slice was one of the whole row before it could be one of each group.
      const auto otherwise = op.op == Op::slice ? std::optional<uint64_t>(1) : std::nullopt;
      if (!number(item, "groups", 1, max_extent, n, otherwise)) return false;
      node.groups = static_cast<uint32_t>(n);
    }
    if (op.has(attribute::eps) && !positive(item, "eps", node.eps)) return false;
    if (literal) {
      const auto value = whole_number(item.find("value")->text);
      if (!value) return fail(user_, " needs a whole number for its value.");
      node.number = *value;
    }
    if (op.has(attribute::part)) {
      if (!number(item, "from", 0, max_extent, node.from) || !number(item, "to", node.from + 1, max_extent, node.to))
        return false;
    }
    if (op.has(attribute::dtype)) {
      const auto* dtype = item.text_of("dtype");
      const auto found = dtype ? type_named(*dtype) : std::nullopt;
      if (!found || *found == Type::i64) return fail(user_, " needs the dtype to cast to.");
      node.type = *found;
    }
    if (op.has(attribute::attention)) {
      if (!number(item, "shared", 1, max_extent, n, 1)) return false;
      node.shared = static_cast<uint32_t>(n);
      if (!positive(item, "scale", node.scale)) return false;
    }
    if (op.has(attribute::factor) && !finite(item, "factor", node.scale)) return false;
    if (op.has(attribute::count)) {
      if (!number(item, "count", 1, max_extent, n)) return false;
      node.number = static_cast<int64_t>(n);
    }
    if (op.has(attribute::segment) && !number(item, "segment", 1, max_extent, node.segment, 0)) return false;
    if (op.has(attribute::increments) && !increments(item, node)) return false;
    if (op.has(attribute::levels) && !(floats(item, "low", node.low) && floats(item, "high", node.high))) return false;
    if (op.has(attribute::form) && !memory_form(item, node)) return false;
    if (op.has(attribute::activation) && !activation(item, node)) return false;
    if (op.has(attribute::write) && !written(item, node)) return false;
    if (op.has(attribute::learn) && !learnt(item, node)) return false;
    if (op.has(attribute::sweeps)) {
      if (!number(item, "iterations", 1, max_extent, n) || !finite(item, "inflation", node.scale)) return false;
      node.number = static_cast<int64_t>(n);
    }
    if (op.has(attribute::times)) {
      if (!number(item, "times", 1, max_extent, n)) return false;
      node.times = static_cast<uint32_t>(n);
    }
    if (op.has(attribute::modulo) || op.has(attribute::by)) {
      const bool by = op.has(attribute::by);
      if (!number(item, by ? "by" : "modulo", 1, max_extent, n, by ? 1 : 0)) return false;
      node.number = static_cast<int64_t>(n);
    }
    return true;
  }

  bool positive(const Value& item, const char* member, float& out) {
    const auto* found = item.find(member);
    const auto value = found ? found->as_double() : std::nullopt;
    out = value ? static_cast<float>(*value) : 0.0f;
    return (out > 0 && std::isfinite(out)) || fail(user_, " needs a positive ", member, " that f32 can hold.");
  }

  bool finite(const Value& item, const char* member, float& out) {
    const auto* found = item.find(member);
    const auto value = found ? found->as_double() : std::nullopt;
    out = value ? static_cast<float>(*value) : 0.0f;
    return (value && std::isfinite(out)) || fail(user_, " needs a ", member, ", a number that f32 can hold.");
  }

  // Reads a number of at least 0; `otherwise` where the member is missing. A positive number that f32 rounds to 0 is
  // refused, because 0 has a meaning of its own (no cap, no floor).
  bool real(const Value& item, const char* member, float otherwise, float& out) {
    const auto* found = item.find(member);
    const auto value = found ? found->as_double() : std::optional<double>(otherwise);
    out = value ? static_cast<float>(*value) : -1.0f;
    const bool lost = value && *value > 0 && out == 0;
    return (out >= 0 && std::isfinite(out) && !lost) ||
           fail(user_, " needs ", member, " to be a number of at least 0 that f32 can hold.");
  }

  bool floats(const Value& item, const char* member, std::vector<float>& out) {
    const auto* list = item.list_of(member);
    if (!list || list->empty()) return fail(user_, " needs \"", member, "\", a list of numbers.");
    for (const auto& entry : *list) {
      const auto value = entry.as_double();
      if (!value || !std::isfinite(static_cast<float>(*value)))
        return fail(user_, " has a value in \"", member, "\" that is no number within the range of f32.");
      out.push_back(static_cast<float>(*value));
    }
    return true;
  }

  bool activation(const Value& item, Node& node) {
    const auto* found = item.find("activation");
    if (!found) return true;
    return read_word(found->text, {{"silu", true}, {"none", false}}, node.silu) ||
           fail(user_, " has the unknown activation \"", found->text, "\", expected silu or none.");
  }

  bool written(const Value& item, Node& node) {
    const auto* found = item.find("write");
    return (found && read_word(found->text, {{"convex", true}, {"plain", false}}, node.convex)) ||
           fail(user_, " needs \"write\", which is convex or plain.");
  }

  bool learnt(const Value& item, Node& node) {
    const auto* found = item.find("learn");
    if (!found) return true;
    return read_word(found->text, {{"read", false}, {"all", true}}, node.learns_drawn) ||
           fail(user_, " has the unknown \"learn\" \"", found->text, "\", expected read or all.");
  }

  bool increments(const Value& item, Node& node) {
    const auto* list = item.list_of("increments");
    if (!list || list->empty()) return fail(user_, " needs \"increments\", a list of whole numbers.");
    for (const auto& entry : *list) {
      const auto n = entry.as_u64();
      if (!n || *n > UINT32_MAX) return fail(user_, " has an increment that is no whole number below 2³².");
      node.increments.push_back(static_cast<uint32_t>(*n));
    }
    return true;
  }

  bool memory_form(const Value& item, Node& node) {
    auto& form = node.memory;
    const auto* rule = item.text_of("rule");
    if (!rule) return fail(user_, " needs its rule.");
    if (!read_word(*rule, {{"titans", Rule::titans}, {"delta", Rule::delta}, {"hebbian", Rule::hebbian}}, form.rule))
      return fail(user_, " has the unknown rule \"", *rule, "\", expected titans, delta or hebbian.");
    const auto* retention = item.text_of("retention");
    if (!retention) return fail(user_, " needs its retention.");
    if (!read_word(*retention,
                   {{"none", Retention::none},
                    {"l2", Retention::l2},
                    {"elastic", Retention::elastic},
                    {"kl", Retention::kl},
                    {"sphere", Retention::sphere}},
                   form.retention))
      return fail(user_, " has the unknown retention \"", *retention, "\", expected none, l2, elastic, kl or sphere.");
    const auto* periods = item.list_of("periods");
    if (!periods || periods->empty()) return fail(user_, " needs \"periods\", one for each level.");
    for (const auto& period : *periods) {
      const auto n = period.as_u64();
      if (!n || *n == 0 || *n > max_extent)
        return fail(user_, " has a period that is no whole number from 1 to ", max_extent, ".");
      node.periods.push_back(*n);
    }
    return real(item, "norm_max", 0, form.norm_max) && real(item, "elastic_l1", 0, form.elastic_l1) &&
           real(item, "elastic_l2", 1, form.elastic_l2) && real(item, "radius", 1, form.radius) &&
           real(item, "floor", 0, form.floor);
  }

  const std::string& user_;
  std::optional<Error> error_;
};

}  // namespace

Status read_attributes(const Value& item, const OpTraits& op, const std::string& user, bool literal, Node& node) {
  return Attributes(user).read(item, op, literal, node);
}

std::optional<int64_t> whole_number(std::string_view digits) {
  int64_t n = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (problem != std::errc() || end != digits.data() + digits.size() || n > static_cast<int64_t>(max_extent) ||
      n < -static_cast<int64_t>(max_extent))
    return std::nullopt;
  return n;
}

Result<uint64_t> read_number(const Value& object, const char* member, uint64_t least, uint64_t most,
                             std::optional<uint64_t> otherwise) {
  const auto* value = object.find(member);
  if (!value && otherwise) return *otherwise;
  const auto n = value ? value->as_u64() : std::nullopt;
  if (!n || *n < least || *n > most)
    return invalid(" needs \"", member, "\", a whole number from ", least, " to ", most, ".");
  return *n;
}

}  // namespace continuo
