// Functions of the addon over contexts: made, forked, looked at, saved and restored.
#pragma once

#include <napi.h>

namespace continuo::binding {

Napi::Value create_context(const Napi::CallbackInfo& info);
Napi::Value fork_context(const Napi::CallbackInfo& info);
Napi::Value close_context(const Napi::CallbackInfo& info);
Napi::Value head(const Napi::CallbackInfo& info);
Napi::Value state_bytes(const Napi::CallbackInfo& info);
Napi::Value gates(const Napi::CallbackInfo& info);
Napi::Value stop_adapting(const Napi::CallbackInfo& info);
Napi::Value reset(const Napi::CallbackInfo& info);
Napi::Value serialize(const Napi::CallbackInfo& info);
Napi::Value counters(const Napi::CallbackInfo& info);
Napi::Value part_bytes(const Napi::CallbackInfo& info);
Napi::Value capture(const Napi::CallbackInfo& info);
Napi::Value restore(const Napi::CallbackInfo& info);
Napi::Value load(const Napi::CallbackInfo& info);
Napi::Value restart(const Napi::CallbackInfo& info);

}  // namespace continuo::binding
