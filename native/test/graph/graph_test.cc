#include "graph/graph.h"

#include <algorithm>
#include <string>

#include "compile/plan.h"
#include "compile/program.h"
#include "graph/graph.h"
#include "graph/ops.h"
#include "test/image.h"
#include "test/runtime/outer_memory.h"

namespace continuo::test::graph_test {

namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  if (at == std::string::npos)
    test::fail(__FILE__, __LINE__, "the graph has no " + from);
  else
    text.replace(at, from.size(), to);
  return text;
}

const std::string& good() {
  static const std::string graph = test::small_model(1, 8, 16, 2, Dtype::f32).graph;
  return graph;
}

}  // namespace

TEST("graph: a valid graph is read, with its language model") {
  auto graph = parse_graph(good());
  CHECK(graph && graph->language);
  CHECK(graph->vocabulary() == 8 && graph->width(graph->language->hidden) == 16);
  CHECK(graph->declarations[graph->language->last].name == "last");
}

TEST("graph: an error names the node and the variable") {
  const auto change = [](const std::string& from, const std::string& to) {
    return parse_graph(replaced(good(), from, to));
  };
  CHECK_SAYS(parse_graph("nonsense"), "graph:");
  CHECK_SAYS(parse_graph("{}"), "continuo-graph/2");
  CHECK_SAYS(change("\"in\":[\"x\",\"nw\",\"nb\"]", "\"in\":[\"x\",\"nope\",\"nb\"]"),
             "node norm \"n\" uses \"nope\", which is not declared");
  CHECK_SAYS(change("\"name\":\"emb\",\"shape\":[8,16]", "\"name\":\"emb\",\"shape\":[4,16]"),
             "node embed \"x\" looks ids up in a table of 4 rows, but there are 8 logits");
  CHECK_SAYS(change("\"eps\":1e-5", "\"eps\":1e-60"), "eps that f32 can hold");
  CHECK_SAYS(change("\"op\":\"tanh\"", "\"op\":\"cosh\""), "there is no op \"cosh\"");
  CHECK_SAYS(change("\"in\":[\"x\",\"nw\",\"nb\"]", "\"in\":[\"x\",\"nw\"]"),
             "node norm \"n\" has 2 inputs, expected 3");
  CHECK_SAYS(change("\"in\":[\"x\",\"nw\",\"nb\"]", "\"in\":[\"h\",\"nw\",\"nb\"]"),
             "node norm \"n\" uses \"h\" before anything wrote it");
  CHECK_SAYS(change("\"out\":\"n\"", "\"out\":\"nw\""), "node norm \"nw\" writes constant \"nw\"");
  CHECK_SAYS(change("\"out\":\"n\"", "\"out\":\"h.in\""), "writes dynamic \"h.in\"");
  CHECK_SAYS(change("\"out\":\"n\"", "\"out\":\"p\""), "writes persistent \"p\"");
  CHECK_SAYS(change("\"in\":[\"x\",\"nw\",\"nb\"]", "\"in\":[\"p\",\"nw\",\"nb\"]"), "input \"p\" is persistent");
  CHECK_SAYS(change("\"in\":[\"m\",\"wr\"]", "\"in\":[\"m\",\"narrow\"]"), "input \"m\" has shape [16], expected [48]");
  CHECK_SAYS(change("\"in\":[\"m\",\"wr\"]", "\"in\":[\"m\",\"wide\"]"),
             "gives f32 [48], but \"r\" is declared f32 [16]");
  CHECK_SAYS(change("\"in\":[\"m\",\"wr\"]", "\"in\":[\"m\",\"nw\"]"), "input \"nw\" must be a constant matrix");
  CHECK_SAYS(change("\"state\":\"S\"", "\"state\":\"p\""), "state \"p\" has shape [16], expected [2, 8, 8]");
  CHECK_SAYS(change("\"state\":\"p\"", "\"state\":\"nw\""), "state \"nw\" is constant, expected persistent");
  CHECK_SAYS(change("\"groups\":2,\"eps\":1e-12", "\"groups\":3,\"eps\":1e-12"),
             "cannot split 16 channels into 3 groups");
  CHECK_SAYS(change("\"eps\":1e-12", "\"eps\":0"), "positive eps");
  CHECK_SAYS(change("\"dtype\":\"f32\",\"axes\":[16]", "\"dtype\":\"f32\",\"axes\":[0]"), "has an axis of 0");
  CHECK_SAYS(change("\"name\":\"p\"", "\"name\":\"nw\""), "declared twice");
  CHECK_SAYS(change("\"hidden\":\"h\"", "\"hidden\":\"x\""), "cache.shift of \"hidden\"");
  CHECK_SAYS(change("\"logits\":\"logits\"", "\"logits\":\"h\""), "before anything wrote it");
}

TEST("graph: random damage is refused or harmless") {
  test::Random random(21);
  for (int i = 0; i < 3000; ++i) {
    std::string text = good();
    for (size_t n = 1 + random.below(3); n > 0; --n)
      text[random.below(text.size())] = static_cast<char>(32 + random.below(95));
    (void)parse_graph(text);
  }
}

TEST("plan: values alive at the same time never overlap, and nested lifetimes get the smallest possible peak") {
  test::Random random(22);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> values;
    for (size_t n = 1 + random.below(60); n > 0; --n) {
      const size_t first = random.below(100);
      values.push_back({64 * (1 + random.below(20)), first, first + random.below(30)});
    }
    const Plan plan = Plan::make(values);
    size_t most = 0, total = 0;
    for (size_t moment = 0; moment < 130; ++moment) {
      size_t alive = 0;
      for (const auto& v : values) alive += v.first <= moment && moment <= v.last ? v.bytes : 0;
      most = std::max(most, alive);
    }
    for (size_t i = 0; i < values.size(); ++i) {
      total += values[i].bytes;
      CHECK(plan.offsets[i] + values[i].bytes <= plan.bytes);
      for (size_t j = 0; j < i; ++j) {
        const bool together = values[i].first <= values[j].last && values[j].first <= values[i].last;
        const bool apart = plan.offsets[i] + values[i].bytes <= plan.offsets[j] ||
                           plan.offsets[j] + values[j].bytes <= plan.offsets[i];
        CHECK(!together || apart);
      }
    }
    CHECK(plan.bytes >= most && plan.bytes <= total);
    CHECK(Plan::make(values, false).bytes == total);
  }
}

TEST("program: neighbouring ops without state form one stage, and a recurrence is a stage of its own") {
  auto graph = parse_graph(good());
  const ConstantIndex constants(*graph);
  auto program = Program::make(*graph, graph->blocks[0], constants);
  CHECK(program);
  size_t line = 0;
  for (const auto& stage : program->stages) {
    CHECK(stage.first == line && stage.order != Stage::Order::row_serial);
    line = stage.last + 1;
  }
  CHECK(line == program->code.size() && program->stages.size() < program->code.size());
}

TEST(
    "program: with an external memory a step's rows go together, but for a ring that is read or shorter than a block") {
  const auto serial = [](const std::string& text) {
    const auto graph = parse_graph(text);
    CHECK(graph);
    const auto program = Program::make(*graph, graph->blocks[0], ConstantIndex(*graph));
    CHECK(program);
    return std::count_if(program->stages.begin(), program->stages.end(),
                         [](const Stage& stage) { return stage.order == Stage::Order::row_serial; });
  };
  const auto plain = test::outer_memory(1, 30).graph;
  CHECK(serial(plain) == 0);
  const auto with = [&](size_t places, const std::string& nodes) {
    const std::string query = R"({"kind":"persistent","init":0,"name":"query")", rope = R"({"op":"rope")";
    const auto ring = R"({"kind":"volatile","name":"seen","dtype":"f32","shape":[8]},)"
                      R"({"kind":"persistent","name":"ring","dtype":"f32","init":0,"axes":[{"ring":)" +
                      std::to_string(places) + R"(,"counter":"count"},8]},)";
    return replaced(replaced(plain, query, ring + query), rope, nodes + rope);
  };
  const std::string write = R"json({"op":"cache.write","in":["x"],"state":"ring(count-1)"},)json",
                    read = R"json({"op":"cache.read","out":"seen","state":"ring(count-1)"},)json";
  CHECK(serial(with(8, write)) == 0);
  CHECK(serial(with(8, write + read)) == 1);
  CHECK(serial(with(7, write)) == 1);
}

TEST("op table: every op but the three of control flow is found by its name, and only by that") {
  size_t found = 0;
  for (const auto& traits : op_table()) {
    const bool control = traits.rows == Rows::control;
    CHECK((find_op(traits.name) == &traits) == !control);
    CHECK(&traits_of(traits.op) == &traits);
    // An op with local rows has no state, and an op that needs "state" has an effect on it.
    CHECK(traits.rows != Rows::local || traits.state == State::none);
    CHECK(!traits.named_state || traits.state != State::none);
    CHECK(traits.inputs() <= traits.in.size());
    found += !control;
  }
  CHECK(found + 3 == op_table().size());
  CHECK(find_op("Tanh") == nullptr);
  CHECK(find_op("") == nullptr);
}

}  // namespace continuo::test::graph_test
