#include "apps/chat/http_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/macros.h"

namespace ps::apps::chat {
namespace {

constexpr size_t kMaxReplyBytes = 1 << 20;
constexpr long kConnectSeconds = 15;
constexpr int kPollMs = 50;  // how long Ctrl-C may go unseen

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
  CURL* handle = nullptr;
  const std::function<Status(std::string_view)>* on_bytes = nullptr;
  Status failure;          // of on_bytes
  std::string error_body;  // where the status is no success

  [[nodiscard]] long status() const noexcept {
    long code = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &code);
    return code;
  }
};

size_t take_bytes(char* bytes, size_t size, size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  const std::string_view text(bytes, size * count);
  if (transfer->status() < 200 || transfer->status() > 299) {
    transfer->error_body += text.substr(0, kMaxReplyBytes - std::min(kMaxReplyBytes, transfer->error_body.size()));
    return text.size();
  }
  transfer->failure = (*transfer->on_bytes)(text);
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
  std::unique_ptr<CURLM, MultiDeleter> multi;  // keeps the connection between requests

  Status run(Transfer& transfer, const std::function<bool()>& is_stopped);
  Status perform(std::string_view path, const std::string* json,
                 const std::function<Status(std::string_view)>& on_bytes, const std::function<bool()>& is_stopped);
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

Status HttpClient::State::run(Transfer& transfer, const std::function<bool()>& is_stopped) {
  if (curl_multi_add_handle(multi.get(), transfer.handle) != CURLM_OK)
    return Status::internal("libcurl refused a transfer");
  int running = 1;
  CURLcode result = CURLE_OK;
  bool is_left = false;
  while (running > 0 && !(is_left = is_stopped())) {
    if (curl_multi_perform(multi.get(), &running) != CURLM_OK) break;
    if (running > 0) curl_multi_poll(multi.get(), nullptr, 0, kPollMs, nullptr);
  }
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi.get(), &left)) {
    if (message->msg == CURLMSG_DONE) result = message->data.result;
  }
  curl_multi_remove_handle(multi.get(), transfer.handle);
  if (is_left) return {};
  PS_RETURN_IF_ERROR(std::move(transfer.failure));
  if (result != CURLE_OK) return Status::unavailable(fmt::format("{}: {}", url, curl_easy_strerror(result)));
  const long status = transfer.status();
  if (status >= 200 && status <= 299) return {};
  const std::string text = fmt::format("the server answered {}: {}", status, message_of(transfer.error_body));
  return status >= 400 && status < 500 ? Status::invalid(text) : Status::unavailable(text);
}

Status HttpClient::State::perform(std::string_view path, const std::string* json,
                                  const std::function<Status(std::string_view)>& on_bytes,
                                  const std::function<bool()>& is_stopped) {
  const std::unique_ptr<CURL, EasyDeleter> handle(curl_easy_init());
  if (handle == nullptr) return Status::exhausted("libcurl has no memory");
  CURL* easy = handle.get();
  Transfer transfer{.handle = easy, .on_bytes = &on_bytes, .failure = {}, .error_body = {}};
  std::unique_ptr<curl_slist, ListDeleter> headers;
  const auto add_header = [&](const std::string& text) {
    curl_slist* longer = curl_slist_append(headers.get(), text.c_str());
    if (longer == nullptr) return;
    headers.release();  // NOLINT(bugprone-unused-return-value): `longer` is the same list, or begins with it
    headers.reset(longer);
  };
  if (!key.empty()) add_header("Authorization: Bearer " + key);
  if (json != nullptr) {
    add_header("Content-Type: application/json");
    add_header("Expect:");  // no round trip before a long body
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, json->data());
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json->size()));
  }
  const std::string address = url + std::string(path);
  curl_easy_setopt(easy, CURLOPT_URL, address.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &take_bytes);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
  return run(transfer, is_stopped);
}

Result<std::string> HttpClient::get(std::string_view path) {
  std::string body;
  const auto collect = [&](std::string_view bytes) -> Status {
    if (body.size() + bytes.size() > kMaxReplyBytes) return Status::invalid("the server's reply is longer than 1 MiB");
    body += bytes;
    return {};
  };
  PS_RETURN_IF_ERROR(state_->perform(path, nullptr, collect, [] { return false; }));
  return body;
}

Status HttpClient::post(std::string_view path, const std::string& json,
                        const std::function<Status(std::string_view)>& on_bytes,
                        const std::function<bool()>& is_stopped) {
  return state_->perform(path, &json, on_bytes, is_stopped);
}

}  // namespace ps::apps::chat
