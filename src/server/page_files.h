// The files of the page at "/", which are part of the program (src/server/page/, embedded by tools/embed_files.py).
//
// Knows no HTTP beyond what a reply has to say about a file. Threading: constant data; read from any thread.
#pragma once

#include <span>
#include <string_view>

namespace ps::server {

struct PageFile {
  std::string_view path;          // as requested: "/" or "/page/<file>"
  std::string_view content_type;  // with the charset of texts
  std::string_view etag;          // with its quotes; changes with the bytes
  std::string_view bytes;
};

// nullptr for a path that the page does not have.
[[nodiscard]] const PageFile* find_page_file(std::string_view path) noexcept;
// Ascending by path.
[[nodiscard]] std::span<const PageFile> page_files() noexcept;

// The Content-Security-Policy of each of them: own files only, nothing inline, no frame around the page.
inline constexpr std::string_view kPageSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

}  // namespace ps::server
