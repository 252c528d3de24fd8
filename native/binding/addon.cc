// The Node addon: plain functions over handles. src/engine/ validates arguments, fills in defaults and writes messages;
// the checks here only keep a wrong call from corrupting memory.
#include "binding/blocks.h"
#include "binding/bulk.h"
#include "binding/contexts.h"
#include "binding/engines.h"
#include "binding/executors.h"
#include "binding/experts.h"
#include "binding/filling.h"
#include "binding/inspect.h"
#include "binding/packed.h"
#include "binding/values.h"
#include "runtime/model/device.h"

namespace continuo::binding {

namespace {

using Napi::CallbackInfo;
using Napi::Value;

// Any function may throw where it takes memory. The exception becomes a JavaScript error like one that is returned.
template <Value (*body)(const CallbackInfo&)> Value guarded(const CallbackInfo& info) {
  try {
    return body(info);
  } catch (const DeviceError& error) {
    throw error_value(info.Env(), {Code::unavailable, error.what()});
  } catch (const std::bad_alloc&) {
    throw error_value(info.Env(), {Code::unavailable, "The engine ran out of memory. Free some and try again."});
  }
}

Napi::Object init(Napi::Env env, Napi::Object exports) {
  exports.Set("inspect", Napi::Function::New(env, guarded<inspect>));
  exports.Set("plan", Napi::Function::New(env, guarded<plan>));
  exports.Set("features", Napi::Function::New(env, guarded<features>));
  exports.Set("operations", Napi::Function::New(env, guarded<operations>));
  exports.Set("ngram", Napi::Function::New(env, guarded<ngram>));
  exports.Set("cuda", Napi::Function::New(env, guarded<cuda>));
  exports.Set("open", Napi::Function::New(env, guarded<open>));
  exports.Set("packedName", Napi::Function::New(env, guarded<packed_name>));
  exports.Set("packing", Napi::Function::New(env, guarded<packing>));
  exports.Set("keepPacked", Napi::Function::New(env, guarded<keep_packed>));
  exports.Set("packedIntact", Napi::Function::New(env, guarded<packed_intact>));
  exports.Set("hashFiles", Napi::Function::New(env, guarded<hash_files>));
  exports.Set("positions", Napi::Function::New(env, guarded<positions>));
  exports.Set("unavailableReason", Napi::Function::New(env, guarded<unavailable_reason>));
  exports.Set("createContext", Napi::Function::New(env, guarded<create_context>));
  exports.Set("forkContext", Napi::Function::New(env, guarded<fork_context>));
  exports.Set("closeContext", Napi::Function::New(env, guarded<close_context>));
  exports.Set("head", Napi::Function::New(env, guarded<head>));
  exports.Set("reset", Napi::Function::New(env, guarded<reset>));
  exports.Set("serialize", Napi::Function::New(env, guarded<serialize>));
  exports.Set("counters", Napi::Function::New(env, guarded<counters>));
  exports.Set("partBytes", Napi::Function::New(env, guarded<part_bytes>));
  exports.Set("capture", Napi::Function::New(env, guarded<capture>));
  exports.Set("restore", Napi::Function::New(env, guarded<restore>));
  exports.Set("load", Napi::Function::New(env, guarded<load>));
  exports.Set("fill", Napi::Function::New(env, guarded<fill>));
  exports.Set("placeBlocks", Napi::Function::New(env, guarded<place_blocks>));
  exports.Set("placeFiles", Napi::Function::New(env, guarded<place_files>));
  exports.Set("filled", Napi::Function::New(env, guarded<filled>));
  exports.Set("dropFilling", Napi::Function::New(env, guarded<drop_filling>));
  exports.Set("restBlocks", Napi::Function::New(env, guarded<rest_blocks>));
  exports.Set("bring", Napi::Function::New(env, guarded<bring>));
  exports.Set("holdBlocks", Napi::Function::New(env, guarded<hold_blocks>));
  exports.Set("dropBlocks", Napi::Function::New(env, guarded<drop_blocks>));
  exports.Set("blockNumbers", Napi::Function::New(env, guarded<block_numbers>));
  exports.Set("blockNews", Napi::Function::New(env, guarded<block_news>));
  exports.Set("stopBlockNews", Napi::Function::New(env, guarded<stop_block_news>));
  exports.Set("sleepBlock", Napi::Function::New(env, guarded<sleep_block>));
  exports.Set("wakeBlock", Napi::Function::New(env, guarded<wake_block>));
  exports.Set("refuseBlock", Napi::Function::New(env, guarded<refuse_block>));
  exports.Set("copyBlock", Napi::Function::New(env, guarded<copy_block>));
  exports.Set("restart", Napi::Function::New(env, guarded<restart>));
  exports.Set("digest", Napi::Function::New(env, guarded<digest>));
  exports.Set("join", Napi::Function::New(env, guarded<join>));
  exports.Set("scatter", Napi::Function::New(env, guarded<scatter>));
  exports.Set("norms", Napi::Function::New(env, guarded<norms>));
  exports.Set("packExperts", Napi::Function::New(env, guarded<pack_experts>));
  exports.Set("expertStatistics", Napi::Function::New(env, guarded<expert_statistics>));
  exports.Set("warmExperts", Napi::Function::New(env, guarded<warm_experts>));
  exports.Set("forgetExperts", Napi::Function::New(env, guarded<forget_experts>));
  exports.Set("saveFrequencies", Napi::Function::New(env, guarded<save_frequencies>));
  exports.Set("measureReads", Napi::Function::New(env, guarded<measure_reads>));
  exports.Set("dropPages", Napi::Function::New(env, guarded<drop_pages>));
  exports.Set("expertNotes", Napi::Function::New(env, guarded<expert_notes>));
  exports.Set("checkExperts", Napi::Function::New(env, guarded<check_experts>));
  exports.Set("exchange", Napi::Function::New(env, guarded<exchange>));
  exports.Set("tokenBytes", Napi::Function::New(env, guarded<token_bytes>));
  exports.Set("speculate", Napi::Function::New(env, guarded<speculate>));
  exports.Set("draft", Napi::Function::New(env, guarded<draft>));
  exports.Set("stats", Napi::Function::New(env, guarded<stats>));
  exports.Set("submit", Napi::Function::New(env, guarded<submit>));
  exports.Set("logits", Napi::Function::New(env, guarded<logits>));
  exports.Set("stopAdapting", Napi::Function::New(env, guarded<stop_adapting>));
  exports.Set("gates", Napi::Function::New(env, guarded<gates>));
  exports.Set("stateBytes", Napi::Function::New(env, guarded<state_bytes>));
  exports.Set("createExecutor", Napi::Function::New(env, guarded<create_executor>));
  exports.Set("step", Napi::Function::New(env, guarded<step>));
  exports.Set("fetch", Napi::Function::New(env, guarded<fetch>));
  exports.Set("fetchConstant", Napi::Function::New(env, guarded<fetch_constant>));
  exports.Set("moments", Napi::Function::New(env, guarded<moments>));
  exports.Set("trace", Napi::Function::New(env, guarded<trace>));
  exports.Set("closeEngine", Napi::Function::New(env, guarded<close_engine>));
  return exports;
}

}  // namespace

NODE_API_MODULE(continuo, init)

}  // namespace continuo::binding
