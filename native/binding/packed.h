// Functions of the addon over packed weights and the files that they come from.
#pragma once

#include <napi.h>

namespace continuo::binding {

Napi::Value packed_name(const Napi::CallbackInfo& info);
Napi::Value packing(const Napi::CallbackInfo& info);
Napi::Value keep_packed(const Napi::CallbackInfo& info);
Napi::Value packed_intact(const Napi::CallbackInfo& info);
Napi::Value hash_files(const Napi::CallbackInfo& info);

}  // namespace continuo::binding
