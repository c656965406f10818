// How a handler answers: either one complete reply, or a stream of server-sent events.
//
// Threading: every method is called on the I/O thread, and the functions of on_gone and on_stop are called there; get
// there with Executor::post(). A responder outlives its connection: after the client is gone the calls do nothing.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "server/http_message.h"

namespace ps::server {

class Responder {
 public:
  virtual ~Responder() = default;

  // The whole answer. Once, and only where no stream was started.
  virtual void reply(HttpReply reply) = 0;

  // Sends the head of an SSE answer. While the stream is silent for a while, `comment` gives the text of a comment that
  // keeps it alive; it may be empty.
  virtual void start_stream(std::function<std::string()> comment) = 0;
  // Queues whole events, "data: ...\n\n". A client that reads too slowly for the cap on queued bytes is dropped.
  virtual void send(std::string_view events) = 0;
  // Ends the stream.
  virtual void end_stream() = 0;

  // What to do when nobody waits for the answer any more: the client went away, was dropped, or its connection
  // is cut at the server's end. Called at most once, never inside another call of the responder, never after the answer
  // is complete. Replaces an earlier function.
  virtual void on_gone(std::function<void()> function) = 0;
  // How the answer ends when the server ends before it: the function completes it with the error, in the shape of its
  // surface. Called as on_gone's is, but with the client still there. Without one the error has OpenAI's shape.
  virtual void on_stop(std::function<void(const ApiError& error)> function) = 0;
  // Whether somebody still waits for the answer.
  [[nodiscard]] virtual bool is_open() const = 0;
};

// "data: <json>\n\n", the event of OpenAI streams.
[[nodiscard]] std::string data_event(std::string_view json);
void append_data_event(std::string& events, std::string_view json);
// "event: <name>\ndata: <json>\n\n".
[[nodiscard]] std::string named_event(std::string_view name, std::string_view json);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

}  // namespace ps::server
