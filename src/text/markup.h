// The control strings of DeepSeek-V4.1's prompt and output, byte for byte (encoding.md 1.3, 2.0). The bars are U+FF5C
// and the low blocks U+2581; ASCII look-alikes are other tokens. Constants only; any thread.
#pragma once

#include <string_view>

namespace ps::text::markup {

inline constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystem = "<｜System｜>";
inline constexpr std::string_view kUser = "<｜User｜>";
inline constexpr std::string_view kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kLatestReminder = "<｜latest_reminder｜>";
inline constexpr std::string_view kThinkBegin = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";

// One token with two spellings: the recipe's tokenizer has the first, the released file the second.
inline constexpr std::string_view kRecipeImage = "<｜image｜>";
inline constexpr std::string_view kModelImage = "<｜deepseek_image｜>";

// Every tag of a block of calls is one of these and a name after a space. V4 wrote no space.
inline constexpr std::string_view kDsml = "｜DSML｜";
inline constexpr std::string_view kTagBegin = "<｜DSML｜";
inline constexpr std::string_view kTagEnd = "</｜DSML｜";
// What the prompt ends with where a call is required.
inline constexpr std::string_view kCallsOpening = "\n\n<｜DSML｜ calls>\n";

}  // namespace ps::text::markup
