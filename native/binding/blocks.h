// Functions of the addon for blocks that may sleep (runtime/model/block_cache.h). The owner of the memory knows them by
// their numbers.
#pragma once

#include <napi.h>

namespace continuo::binding {

Napi::Value bring(const Napi::CallbackInfo& info);
Napi::Value hold_blocks(const Napi::CallbackInfo& info);
Napi::Value drop_blocks(const Napi::CallbackInfo& info);
Napi::Value block_numbers(const Napi::CallbackInfo& info);
Napi::Value block_news(const Napi::CallbackInfo& info);
Napi::Value stop_block_news(const Napi::CallbackInfo& info);
Napi::Value sleep_block(const Napi::CallbackInfo& info);
Napi::Value wake_block(const Napi::CallbackInfo& info);
Napi::Value refuse_block(const Napi::CallbackInfo& info);
Napi::Value copy_block(const Napi::CallbackInfo& info);

}  // namespace continuo::binding
