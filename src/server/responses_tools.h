// The tools of a Responses body: what the model is shown in their place, and how its calls look to the client.
//
// The model knows functions only. A tool of type custom, whose input is free text, is a function with the one string
// `input`; a tool inside a namespace is a function whose name begins with that of the namespace. Calls go back under
// the client's names and in the client's shape, and so do they come in again, but for arguments of another form than
// that one string: they come back inside it. Tools of other types are left out.
// Must not know: the rest of the body, the engine. Threading: values.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/object_reader.h"
#include "text/chat.h"

namespace ps::server {

// What a client calls one of its tools.
struct ClientTool {
  std::string name;
  std::string space;  // the namespace; may be empty
  bool is_custom = false;
  bool operator==(const ClientTool&) const = default;
};

struct ResponsesTools {
  std::vector<text::ToolDefinition> shown;                 // to the model
  std::map<std::string, ClientTool, std::less<>> by_name;  // of the model; plain functions are not listed
  std::vector<std::string> left_out;                       // types
  std::string in_force = "[]";                             // JSON of those that are not left out, as sent

  // The client's view of what the model called.
  [[nodiscard]] ClientTool find(std::string_view name) const;
};

[[nodiscard]] Result<ResponsesTools> read_responses_tools(const ObjectReader& body);

// The name under which the model knows a tool.
[[nodiscard]] std::string model_tool_name(std::string_view space, std::string_view name);
// Arguments of the function that stands for a custom tool, as JSON.
[[nodiscard]] std::string custom_arguments(std::string_view input);

// The free text in such arguments, while they are still being written.
class CustomInput {
 public:
  // Takes the next of the arguments; gives what they add to the text.
  [[nodiscard]] std::string take(std::string_view json);
  // The whole text, once nothing follows. Arguments of another form are taken for the text themselves, which take() did
  // not give.
  [[nodiscard]] std::string finish();

 private:
  std::string json_;
  std::string text_;
  size_t read_ = 0;  // of json_
};

}  // namespace ps::server
