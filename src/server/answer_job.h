// One generating request from its submission to the end of its answer: the sink of its sequences, their text, and the
// responder. What the answer looks like is the business of an AnswerFormat, one per surface.
//
// The client going away cancels the sequences. Parts of several sequences that one step brought leave together. A
// complete answer is written on a worker, since it can be large.
// Threading: the I/O thread, but AnswerFormat::whole().
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_context.h"
#include "server/engine_service.h"
#include "server/generation.h"
#include "server/responder.h"

namespace ps::server {

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // Stream: events before the first token.
  virtual void open(std::string& events) { (void)events; }
  // What one event gave to sequence `index`; called also when it is empty but ends the sequence. In a stream, appends
  // events; otherwise keeps the delta. True: the sequence has said enough, and its answer ends here.
  virtual bool take(size_t index, const Generation& generation, TextDelta delta, std::string* events) = 0;
  // Stream: events after the last sequence has ended.
  virtual void close(const std::vector<Generation>& generations, std::string& events) = 0;
  // Stream: the events of a failure after the stream has begun.
  virtual void fail(const ApiError& error, std::string& events) { events += data_event(error_body(error)); }
  // The complete reply. On a worker thread, after the last take().
  virtual HttpReply whole(const std::vector<Generation>& generations) = 0;
};

struct AnswerRequest {
  std::vector<engine::Request> requests;     // one per sequence
  std::vector<Generation::Options> options;  // likewise
  std::unique_ptr<AnswerFormat> format;
  bool is_stream = false;
};

// Submits and answers. The error is sent where the engine refuses.
void start_answer(ApiContext& context, AnswerRequest request, std::shared_ptr<Responder> responder);

}  // namespace ps::server
