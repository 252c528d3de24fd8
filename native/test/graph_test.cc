#include "../graph.h"

#include <string>

#include "../plan.h"
#include "image.h"

using namespace continuo;

namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  if (at == std::string::npos) test::fail(__FILE__, __LINE__, "the graph has no " + from);
  else text.replace(at, from.size(), to);
  return text;
}

const std::string& good() {
  static const std::string graph = test::small_model(1, 8, 16, 2, Dtype::f32).graph;
  return graph;
}

}  // namespace

TEST("graph: a good one is read; its ends are found") {
  auto graph = parse_graph(good());
  CHECK(graph);
  CHECK(graph->vocabulary() == 8 && graph->width(graph->hidden) == 16);
  CHECK(graph->declarations[graph->last].name == "last");
}

TEST("graph: what is wrong is said with node and variable") {
  const auto change = [](const std::string& from, const std::string& to) { return parse_graph(replaced(good(), from, to)); };
  CHECK_SAYS(parse_graph("nonsense"), "graph:");
  CHECK_SAYS(parse_graph("{}"), "continuo-graph/1");
  CHECK_SAYS(change("\"in\":[\"x\",\"nw\",\"nb\"]", "\"in\":[\"x\",\"nope\",\"nb\"]"), "node \"n\" uses \"nope\", which is not declared");
  CHECK_SAYS(change("\"name\":\"emb\",\"shape\":[8,16]", "\"name\":\"emb\",\"shape\":[4,16]"), "node \"x\" looks ids up in a table of 4 rows, but there are 8 logits");
  CHECK_SAYS(change("\"eps\":1e-5", "\"eps\":1e-60"), "eps that f32 can hold");
  CHECK_SAYS(change("\"op\":\"tanh\"", "\"op\":\"cosh\""), "node \"f.t\" has the unknown op \"cosh\"");
  CHECK_SAYS(change("\"in\":[\"x\",\"nw\",\"nb\"]", "\"in\":[\"x\",\"nw\"]"), "node \"n\" (norm) has 2 inputs, expected 3");
  CHECK_SAYS(change("\"in\":[\"x\",\"nw\",\"nb\"]", "\"in\":[\"h\",\"nw\",\"nb\"]"), "node \"n\" uses \"h\" before anything wrote it");
  CHECK_SAYS(change("\"out\":\"n\"", "\"out\":\"nw\""), "node \"n\" writes constant \"nw\"");
  CHECK_SAYS(change("\"out\":\"n\"", "\"out\":\"h.in\""), "node \"n\" writes dynamic \"h.in\"");
  CHECK_SAYS(change("\"out\":\"n\"", "\"out\":\"p\""), "node \"n\" writes persistent \"p\"");
  CHECK_SAYS(change("\"out\":\"n\"", "\"out\":\"x\""), "writes \"x\" a second time");
  CHECK_SAYS(change("\"in\":[\"x\",\"nw\",\"nb\"]", "\"in\":[\"p\",\"nw\",\"nb\"]"), "reads persistent \"p\"");
  CHECK_SAYS(change("\"in\":[\"m\",\"wr\"]", "\"in\":[\"m\",\"narrow\"]"), "input \"m\" has shape [16], expected [48]");
  CHECK_SAYS(change("\"in\":[\"m\",\"wr\"]", "\"in\":[\"m\",\"wide\"]"), "gives shape [48], but \"r\" is declared [16]");
  CHECK_SAYS(change("\"in\":[\"m\",\"wr\"]", "\"in\":[\"m\",\"nw\"]"), "input \"nw\" must be a constant matrix");
  CHECK_SAYS(change("\"state\":\"S\"", "\"state\":\"p\""), "state \"p\" has shape [16], expected [2, 8, 8]");
  CHECK_SAYS(change("\"state\":\"p\"", "\"state\":\"nw\""), "state \"nw\" is constant, expected persistent");
  CHECK_SAYS(change("\"state\":\"last\"", "\"state\":\"p\""), "which another node already owns");
  CHECK_SAYS(change("\"groups\":2,\"eps\":1e-12", "\"groups\":3,\"eps\":1e-12"), "cannot split 16 channels into 3 groups");
  CHECK_SAYS(change("\"eps\":1e-12", "\"eps\":0"), "positive eps");
  CHECK_SAYS(change("\"name\":\"p\",\"shape\":[16]", "\"name\":\"p\",\"shape\":[0]"), "sensible whole numbers");
  CHECK_SAYS(change("\"name\":\"p\",\"shape\":[16]", "\"name\":\"S\",\"shape\":[16]"), "declared twice");
  CHECK_SAYS(change("\"hidden\":\"h\"", "\"hidden\":\"x\""), "cache.shift of \"hidden\"");
  CHECK_SAYS(change("\"logits\":\"logits\"", "\"logits\":\"h\""), "no node of block \"predict\"");
}

TEST("graph: random damage is refused or harmless") {
  test::Random random(21);
  for (int i = 0; i < 3000; ++i) {
    std::string text = good();
    for (size_t n = 1 + random.below(3); n > 0; --n) text[random.below(text.size())] = static_cast<char>(32 + random.below(95));
    (void)parse_graph(text);
  }
}

TEST("plan: values alive at the same time never share a slot, and slots are fewer than values") {
  auto graph = parse_graph(good());
  const auto& nodes = graph->step.nodes;
  const Plan plan = Plan::make(*graph, graph->step, {graph->hidden, graph->previous});
  std::vector<Name> owner(plan.widths.size(), 0);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const Name input : nodes[i].in) {
      if (plan.slot_of[input] != Plan::none) CHECK(owner[plan.slot_of[input]] == input);
    }
    CHECK(plan.widths[plan.slot_of[nodes[i].out]] >= graph->width(nodes[i].out));
    owner[plan.slot_of[nodes[i].out]] = nodes[i].out;
  }
  CHECK(owner[plan.slot_of[graph->hidden]] == graph->hidden && owner[plan.slot_of[graph->previous]] == graph->previous);
  CHECK(plan.widths.size() < nodes.size() / 2);
  CHECK(Plan::make(*graph, graph->step, {}, false).widths.size() == nodes.size());
}
