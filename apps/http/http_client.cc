#include "apps/http/http_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/macros.h"

namespace ps::apps {
namespace {

constexpr size_t kMaxReplyBytes = 1 << 20;
constexpr long kConnectSeconds = 15;
constexpr std::chrono::milliseconds kPoll{50};  // how long Ctrl-C may go unseen

// CURL and CURLM are both void to the compiler: one deleter each.
struct EasyDeleter {
  void operator()(CURL* handle) const noexcept { curl_easy_cleanup(handle); }
};
struct MultiDeleter {
  void operator()(CURLM* handle) const noexcept { curl_multi_cleanup(handle); }
};
struct ListDeleter {
  void operator()(curl_slist* list) const noexcept { curl_slist_free_all(list); }
};

// A transfer on its way.
struct Transfer {
  std::unique_ptr<curl_slist, ListDeleter> headers;
  std::unique_ptr<CURL, EasyDeleter> handle;  // goes before what it refers to
  std::string json;
  HttpClient::OnBytes on_bytes;
  HttpClient::OnEnd on_end;
  Status failure;          // of on_bytes
  std::string error_body;  // where the status is no success

  [[nodiscard]] long status() const noexcept {
    long code = 0;
    curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &code);
    return code;
  }
  void add_header(const std::string& text) {
    curl_slist* longer = curl_slist_append(headers.get(), text.c_str());
    if (longer == nullptr) return;
    headers.release();  // NOLINT(bugprone-unused-return-value): `longer` is the same list, or begins with it
    headers.reset(longer);
  }
};

size_t take_bytes(char* bytes, size_t size, size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  const std::string_view text(bytes, size * count);
  if (transfer->status() < 200 || transfer->status() > 299) {
    transfer->error_body += text.substr(0, kMaxReplyBytes - std::min(kMaxReplyBytes, transfer->error_body.size()));
    return text.size();
  }
  transfer->failure = transfer->on_bytes(text);
  return transfer->failure.ok() ? text.size() : CURL_WRITEFUNC_ERROR;
}

// What the API's error body says, or the beginning of another one.
std::string message_of(const std::string& body) {
  const auto json = JsonValue::parse(body);
  if (json.ok()) {
    const JsonValue* error = json.value().find("error");
    const JsonValue* message = error != nullptr ? error->find("message") : nullptr;
    if (message != nullptr && message->is_string()) return message->text();
  }
  return body.substr(0, 300);
}

}  // namespace

struct HttpClient::State {
  std::string url;
  std::string key;
  std::unique_ptr<CURLM, MultiDeleter> multi;  // keeps connections between requests
  std::map<CURL*, std::unique_ptr<Transfer>> transfers;

  ~State() {
    for (const auto& [handle, transfer] : transfers) curl_multi_remove_handle(multi.get(), handle);
  }
  // `json`: of a POST; nullptr for a GET. Gives what names the transfer.
  Result<CURL*> add(std::string_view path, std::string* json, OnBytes on_bytes, OnEnd on_end);
  Status advance(std::chrono::milliseconds wait);
  void leave(CURL* handle);
  // From its beginning to its end.
  Status run(std::string_view path, std::string* json, OnBytes on_bytes, const std::function<bool()>& is_stopped);
  [[nodiscard]] Status verdict(Transfer& transfer, CURLcode result) const;
};

HttpClient::HttpClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
HttpClient::~HttpClient() = default;
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;

const std::string& HttpClient::url() const noexcept { return state_->url; }

Result<HttpClient> HttpClient::create(std::string_view url, std::string key) {
  if (!url.starts_with("http://") && !url.starts_with("https://")) {
    return Status::invalid(fmt::format("--url is {}; legal is an address such as http://127.0.0.1:8000", url));
  }
  while (url.ends_with('/')) url.remove_suffix(1);
  if (url.ends_with("/v1")) url.remove_suffix(3);
  if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return Status::internal("libcurl does not start");
  auto state = std::make_unique<State>();
  state->url = url;
  state->key = std::move(key);
  state->multi.reset(curl_multi_init());
  if (state->multi == nullptr) return Status::exhausted("libcurl has no memory");
  return HttpClient(std::move(state));
}

Result<CURL*> HttpClient::State::add(std::string_view path, std::string* json, OnBytes on_bytes, OnEnd on_end) {
  auto transfer = std::make_unique<Transfer>();
  transfer->handle.reset(curl_easy_init());
  if (transfer->handle == nullptr) return Status::exhausted("libcurl has no memory");
  CURL* easy = transfer->handle.get();
  transfer->on_bytes = std::move(on_bytes);
  transfer->on_end = std::move(on_end);
  if (!key.empty()) transfer->add_header("Authorization: Bearer " + key);
  if (json != nullptr) {
    transfer->json = std::move(*json);
    transfer->add_header("Content-Type: application/json");
    transfer->add_header("Expect:");  // no round trip before a long body
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, transfer->json.data());
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(transfer->json.size()));
  }
  const std::string address = url + std::string(path);
  curl_easy_setopt(easy, CURLOPT_URL, address.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->headers.get());
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &take_bytes);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer.get());
  if (curl_multi_add_handle(multi.get(), easy) != CURLM_OK) return Status::internal("libcurl refused a transfer");
  transfers.emplace(easy, std::move(transfer));
  return easy;
}

Status HttpClient::State::verdict(Transfer& transfer, CURLcode result) const {
  PS_RETURN_IF_ERROR(std::move(transfer.failure));
  if (result != CURLE_OK) return Status::unavailable(fmt::format("{}: {}", url, curl_easy_strerror(result)));
  const long status = transfer.status();
  if (status >= 200 && status <= 299) return {};
  const std::string text = fmt::format("the server answered {}: {}", status, message_of(transfer.error_body));
  return status >= 400 && status < 500 ? Status::invalid(text) : Status::unavailable(text);
}

Status HttpClient::State::advance(std::chrono::milliseconds wait) {
  int running = 0;
  if (const CURLMcode code = curl_multi_perform(multi.get(), &running); code != CURLM_OK) {
    return Status::internal(fmt::format("libcurl: {}", curl_multi_strerror(code)));
  }
  std::vector<std::pair<CURL*, CURLcode>> ended;
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi.get(), &left)) {
    if (message->msg == CURLMSG_DONE) ended.emplace_back(message->easy_handle, message->data.result);
  }
  for (const auto& [handle, result] : ended) {
    const auto found = transfers.find(handle);
    if (found == transfers.end()) continue;
    const std::unique_ptr<Transfer> transfer = std::move(found->second);
    Status status = verdict(*transfer, result);
    leave(handle);
    transfer->on_end(std::move(status));
  }
  if (ended.empty()) curl_multi_poll(multi.get(), nullptr, 0, static_cast<int>(wait.count()), nullptr);
  return {};
}

void HttpClient::State::leave(CURL* handle) {
  curl_multi_remove_handle(multi.get(), handle);
  transfers.erase(handle);
}

Status HttpClient::State::run(std::string_view path, std::string* json, OnBytes on_bytes,
                              const std::function<bool()>& is_stopped) {
  bool is_through = false;
  Status outcome;
  PS_TRY(CURL* const handle, add(path, json, std::move(on_bytes), [&](Status status) {
           is_through = true;
           outcome = std::move(status);
         }));
  Status trouble;
  while (trouble.ok() && !is_through && !is_stopped()) trouble = advance(kPoll);
  if (is_through) return outcome;
  leave(handle);
  return trouble;
}

Result<std::string> HttpClient::get(std::string_view path) {
  std::string body;
  const auto collect = [&](std::string_view bytes) -> Status {
    if (body.size() + bytes.size() > kMaxReplyBytes) return Status::invalid("the server's reply is longer than 1 MiB");
    body += bytes;
    return {};
  };
  PS_RETURN_IF_ERROR(state_->run(path, nullptr, collect, [] { return false; }));
  return body;
}

Status HttpClient::post(std::string_view path, const std::string& json, const OnBytes& on_bytes,
                        const std::function<bool()>& is_stopped) {
  std::string body = json;
  return state_->run(path, &body, on_bytes, is_stopped);
}

Status HttpClient::start(std::string_view path, std::string json, OnBytes on_bytes, OnEnd on_end) {
  return state_->add(path, &json, std::move(on_bytes), std::move(on_end)).status();
}

Status HttpClient::advance(std::chrono::milliseconds wait) { return state_->advance(wait); }

}  // namespace ps::apps
