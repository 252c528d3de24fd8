// Items of work and their results as values of JavaScript (src/engine/items.ts, src/engine/work.ts).
#pragma once

#include "binding/values.h"

namespace continuo::binding {

// Throws where the item's context belongs to another engine.
Item item_of(const EngineRef& engine, const Napi::Object& object);

Napi::Value result_value(Napi::Env env, const ItemResult& result);

}  // namespace continuo::binding
