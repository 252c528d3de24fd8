// The smallest decoder with an external memory: one layer with one head of 8 channels, whose keys and values are the
// embedded token.
#pragma once

#include <algorithm>
#include <cstdint>

#include "test/image.h"

namespace continuo::test {

// `V` tokens. Blocks of 8 tokens, a window of 16, a list of at most 38 slots; a retrieval every 16 tokens.
inline SmallModel outer_memory(uint64_t seed, size_t V) {
  std::string declarations;
  const auto declare = [&](const std::string& body) {
    declarations += (declarations.empty() ? "{" : ",{") + body + "}";
  };
  const auto counter = [&](const std::string& name, size_t most, const std::string& more = "") {
    declare("'kind':'persistent','counter':true,'name':'" + name + "','max':" + std::to_string(most) + more);
  };
  const auto table = [&](const std::string& name, const std::string& axes, const std::string& type = "f32",
                         const std::string& more = "") {
    declare("'kind':'persistent','init':0,'name':'" + name + "','dtype':'" + type + "','axes':[" + axes + "]" + more);
  };
  const auto value = [&](const std::string& kind, const std::string& name, const std::string& shape,
                         const std::string& type = "f32") {
    declare("'kind':'" + kind + "','name':'" + name + "','dtype':'" + type + "','shape':[" + shape + "]");
  };
  constexpr size_t much = 1 << 20;
  const std::string derived = ",'derived':true", vocabulary = std::to_string(V);
  value("dynamic", "token", "", "i32");
  value("dynamic", "h.in", "8");
  declare("'kind':'constant','layout':'rows','name':'emb','ref':'emb','shape':[" + vocabulary + ",8]");
  declare("'kind':'constant','layout':'packed','name':'head','ref':'head','shape':[" + vocabulary + ",8]");
  for (const char* name : {"x", "k", "a", "h", "before"}) value("volatile", name, "8");
  value("volatile", "w", "3");
  value("volatile", "logits", vocabulary);
  counter("count", much);
  for (const char* name : {"window.k", "window.v"}) table(name, "1,{'ring':16,'counter':'count'},8");
  for (const char* name : {"archived", "closed", "topic.blocks", "topic.seen", "lastRetrieval", "indexVersion"})
    counter(name, much);
  table("cold", "{'grows':'archived'},192", "u8", ",'block':4");
  table("index", "{'grows':'closed'},1,1,8");
  for (const char* name : {"sinks.k", "sinks.v"}) table(name, "1,1,8");
  for (const char* name : {"anchors.entries", "injections", "pendings"}) counter(name, 2);
  table("anchors.block", "2", "i32");
  table("anchors.offsets", "2,1", "i32");
  for (const char* name : {"anchors.k", "anchors.v"}) table(name, "2,1,1,8");
  counter("tombstones", 3);
  table("tombstones.span", "3,2", "i32");
  table("tombstones.e", "3");
  for (const char* name : {"tombstones.k", "tombstones.v"}) table(name, "3,1,8");
  for (const char* name : {"injected", "pending"}) table(name, "2", "i32");
  table("query", "1,1,8");
  for (const char* name : {"topic.sum", "topic.mean", "last"}) table(name, "8");
  table("topic.spread", "2");
  counter("slots", 38, derived);
  for (const char* name : {"list.k", "list.v"}) table(name, "1,{'grows':'slots'},8", "f32", derived);
  table("asked", "1,{'ring':8,'counter':'count'},8", "f32", derived);
  counter("tombstones.slot", much, derived);
  table("watched", "1,{'ring':8,'counter':'count'},3", "f32", derived);
  const std::string increments = "'increments':[400000000,30000000,2000000,100000]";
  std::string graph = "{'format':'continuo-graph/2','declarations':[" + declarations + R"(],
    'blocks':[{'name':'step','inputs':['token'],'nodes':[
      {'op':'cache.increment','state':'count'},{'op':'cache.increment','state':'slots'},
      {'op':'embed','out':'x','in':['token','emb']},
      {'op':'cache.write','in':['x'],'state':'window.k(0,count-1)'},
      {'op':'cache.write','in':['x'],'state':'window.v(0,count-1)'},
      {'op':'rope','out':'k','in':['x'],'state':'slots','groups':1,)" +
                      increments + R"(},
      {'op':'cache.write','in':['k'],'state':'list.k(0,slots-1)'},
      {'op':'cache.write','in':['x'],'state':'list.v(0,slots-1)'},
      {'op':'cache.write','in':['x'],'state':'asked(0,count-1)'},
      {'op':'attend.weights','out':'w','in':['k','list.k(0)'],'state':'tombstones.slot','groups':1,'scale':0.4,'count':3},
      {'op':'cache.write','in':['w'],'state':'watched(0,count-1)'},
      {'op':'attend','out':'a','in':['k','list.k(0)','list.v(0)'],'groups':1,'scale':0.4},
      {'op':'add','out':'h','in':['x','a']},
      {'op':'cache.shift','out':'before','in':['h'],'state':'last'},
      {'return':{'hidden':'h','previous':'before'}}]},
    {'name':'predict','inputs':['h.in'],'nodes':[
      {'op':'matmul','out':'logits','in':['h.in','head']},{'return':{'logits':'logits'}}]}],
    'memory':{'block_size':8,'window':16,'sinks':1,'kv_dtype':'f32','cold_dtype':'f8',
      'anchors':{'tokens':1,'entries':2,'policy':'segment'},
      'segmentation':{'gamma':0.1,'rate':0.1,'warmup':1,'min_blocks':1},
      'tombstones':{'count':3,'threshold':0.3,'rate':0.1,'cooldown':8,'layers':[0]},
      'retrieval':{'every':16,'blocks':2,'policy':'similar','similarity':'dot','layers':[0],'rate':0.1,'inject_after':0},
      'summarize_keep':1,'tokens':{},'heads':1,'key_heads':1,)" +
                      increments + "}}";
  std::replace(graph.begin(), graph.end(), '\'', '"');
  Random random(seed);
  std::vector<Weight> weights;
  for (const char* name : {"emb", "head"}) weights.push_back({name, {V, 8}, random.floats(V * 8, -1, 1), Dtype::f32});
  return {graph, image_of(weights)};
}

}  // namespace continuo::test
