// Functions of the addon over models and their engines.
#pragma once

#include <napi.h>

#include "binding/values.h"

namespace continuo::binding {

// The members memoryReuse, trace, watch and moments of an object.
ExecutorOptions options_of(const Napi::Value& value);

// The promise of a call; rejected at once where the engine refused the call.
Napi::Value promised(Napi::Env env, const EngineHandle::Call& call, const Status& accepted);

Napi::Value open(const Napi::CallbackInfo& info);
Napi::Value positions(const Napi::CallbackInfo& info);
Napi::Value unavailable_reason(const Napi::CallbackInfo& info);
Napi::Value token_bytes(const Napi::CallbackInfo& info);
Napi::Value submit(const Napi::CallbackInfo& info);
Napi::Value speculate(const Napi::CallbackInfo& info);
Napi::Value draft(const Napi::CallbackInfo& info);
Napi::Value stats(const Napi::CallbackInfo& info);
Napi::Value logits(const Napi::CallbackInfo& info);
Napi::Value moments(const Napi::CallbackInfo& info);
Napi::Value close_engine(const Napi::CallbackInfo& info);

}  // namespace continuo::binding
