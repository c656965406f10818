#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <mutex>

#include "base/process.h"

namespace ps::server {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Registry;

const Histogram::BucketBoundaries kFirstTokenSeconds = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,  2.5,
                                                        5,    10,    25,   50,  100,  250, 500};
const Histogram::BucketBoundaries kTokenSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                   0.25,  0.5,    1,     2.5,  5,     10};

Family<Counter>& counters(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
Family<Gauge>& gauges(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}
Histogram& histogram(Registry& registry, const char* name, const char* help,
                     const Histogram::BucketBoundaries& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
}

// Brings a counter up to a total that somebody else keeps.
void raise(Counter& counter, double total) {
  const double missing = total - counter.Value();
  if (missing > 0) counter.Increment(missing);
}

}  // namespace

struct Metrics::Series {
  std::mutex mutex;  // one text at a time
  Registry registry;

  Gauge& waiting = gauges(registry, "pagestate_waiting_sequences", "Sequences in the queue").Add({});
  Gauge& running = gauges(registry, "pagestate_running_sequences", "Sequences that run").Add({});
  Family<Gauge>& pages = gauges(registry, "pagestate_cache_pages", "PAGEs by state");
  Family<Gauge>& bytes =
      gauges(registry, "pagestate_memory_bytes", "Memory that the engine holds, by tier and purpose");
  Gauge& hit_ratio =
      gauges(registry, "pagestate_prefix_hit_ratio", "Share of looked-up prompt tokens that the cache held").Add({});
  Gauge& last_step = gauges(registry, "pagestate_last_step_seconds", "Duration of the latest step").Add({});
  Gauge& connections = gauges(registry, "pagestate_http_connections", "Open connections").Add({});

  Gauge& resident = gauges(registry, "pagestate_resident_bytes", "Memory that the process holds").Add({});

  Counter& processor_time =
      counters(registry, "pagestate_processor_seconds_total", "Processor time of all threads of the process").Add({});
  Counter& lookup_tokens =
      counters(registry, "pagestate_prefix_lookup_tokens_total", "Prompt tokens looked up in the cache").Add({});
  Counter& hit_tokens =
      counters(registry, "pagestate_prefix_hit_tokens_total", "Prompt tokens found in the cache").Add({});
  Counter& evictions = counters(registry, "pagestate_evicted_pages_total", "Cached PAGEs handed out anew").Add({});
  Counter& steps = counters(registry, "pagestate_steps_total", "Steps of the engine").Add({});
  Counter& prompt_rows =
      counters(registry, "pagestate_prompt_rows_total", "Prompt rows computed, repeated ones included").Add({});
  Counter& preemptions = counters(registry, "pagestate_preemptions_total", "Sequences put back into the queue").Add({});
  Counter& prompt_tokens =
      counters(registry, "pagestate_prompt_tokens_total", "Prompt tokens of ended sequences").Add({});
  Counter& cached_tokens =
      counters(registry, "pagestate_cached_prompt_tokens_total", "Those of them that the cache held").Add({});
  Counter& answer_tokens = counters(registry, "pagestate_answer_tokens_total", "Answer tokens sampled").Add({});
  Family<Counter>& sequences = counters(registry, "pagestate_sequences_total", "Sequences that ended, by outcome");
  Counter& refusals =
      counters(registry, "pagestate_refused_requests_total", "Requests refused because the queue was full").Add({});
  Counter& dropped =
      counters(registry, "pagestate_dropped_clients_total", "Clients dropped because they read too slowly").Add({});
  Family<Counter>& http = counters(registry, "pagestate_http_requests_total", "Answered requests");
  Histogram& http_seconds =
      histogram(registry, "pagestate_http_request_seconds", "From the request to its whole answer", kFirstTokenSeconds);
  Histogram& first_token = histogram(registry, "pagestate_time_to_first_token_seconds",
                                     "From the submission to the first token", kFirstTokenSeconds);
  Histogram& inter_token =
      histogram(registry, "pagestate_inter_token_seconds", "Between two tokens of a sequence", kTokenSeconds);
  Histogram& step_seconds = histogram(registry, "pagestate_step_seconds", "Duration of a step", kTokenSeconds);
};

Metrics::Metrics() : series_(std::make_unique<Series>()) {}
Metrics::~Metrics() = default;

void Metrics::observe_first_token(double seconds) { series_->first_token.Observe(seconds); }
void Metrics::observe_inter_token(double seconds) { series_->inter_token.Observe(seconds); }
void Metrics::observe_step(double seconds) { series_->step_seconds.Observe(seconds); }

void Metrics::count_sequence(std::string_view outcome, int64_t prompt_tokens, int64_t cached_tokens) {
  series_->sequences.Add({{"outcome", std::string(outcome)}}).Increment();
  series_->prompt_tokens.Increment(static_cast<double>(prompt_tokens));
  series_->cached_tokens.Increment(static_cast<double>(cached_tokens));
}

void Metrics::count_refusal() { series_->refusals.Increment(); }

void Metrics::count_http(std::string_view route, int status, double seconds) {
  series_->http.Add({{"route", std::string(route)}, {"status", std::to_string(status)}}).Increment();
  series_->http_seconds.Observe(seconds);
}

std::string Metrics::text(const Gauges& gauges) {
  Series& series = *series_;
  const EngineStatus& engine = gauges.engine;
  const std::lock_guard lock(series.mutex);
  const auto set = [](Gauge& gauge, int64_t value) { gauge.Set(static_cast<double>(value)); };
  const auto pages = [&](const char* state, int64_t count) { set(series.pages.Add({{"state", state}}), count); };
  const auto bytes = [&](const char* purpose, int64_t count) {
    set(series.bytes.Add({{"tier", "host"}, {"purpose", purpose}}), count);
  };
  set(series.waiting, engine.waiting);
  set(series.running, engine.running);
  pages("vacant", engine.pages_vacant);
  pages("cached", engine.pages_cached);
  pages("used", engine.pages_used);
  pages("image", engine.pages_image);
  bytes("pages", gauges.memory.page_bytes);
  bytes("state", gauges.memory.state_bytes);
  bytes("scratch", gauges.memory.scratch_bytes);
  bytes("logits", gauges.memory.logit_bytes);
  series.hit_ratio.Set(engine.lookup_tokens == 0
                           ? 0
                           : static_cast<double>(engine.hit_tokens) / static_cast<double>(engine.lookup_tokens));
  series.last_step.Set(static_cast<double>(engine.last_step_us) * 1e-6);
  set(series.connections, gauges.connections);
  raise(series.lookup_tokens, static_cast<double>(engine.lookup_tokens));
  raise(series.hit_tokens, static_cast<double>(engine.hit_tokens));
  raise(series.evictions, static_cast<double>(engine.evictions));
  raise(series.steps, static_cast<double>(engine.steps));
  raise(series.prompt_rows, static_cast<double>(engine.prompt_rows));
  raise(series.preemptions, static_cast<double>(engine.preemptions));
  raise(series.answer_tokens, static_cast<double>(engine.answer_tokens));
  raise(series.dropped, static_cast<double>(gauges.dropped_clients));
  raise(series.processor_time, processor_seconds());
  set(series.resident, resident_bytes());
  return prometheus::TextSerializer().Serialize(series.registry.Collect());
}

}  // namespace ps::server
