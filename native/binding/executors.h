// Functions of the addon over executors, which run a graph step by step.
#pragma once

#include <napi.h>

namespace continuo::binding {

Napi::Value create_executor(const Napi::CallbackInfo& info);
Napi::Value step(const Napi::CallbackInfo& info);
Napi::Value fetch(const Napi::CallbackInfo& info);
Napi::Value fetch_constant(const Napi::CallbackInfo& info);
Napi::Value trace(const Napi::CallbackInfo& info);

}  // namespace continuo::binding
