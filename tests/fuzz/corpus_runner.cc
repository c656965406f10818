// Runs one fuzzer over the files of a folder, without libFuzzer: each file whole, then cut off at up to 64 places.
// A fault ends the program as it would under libFuzzer, after the name of the input was printed.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  constexpr size_t kCuts = 64;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) files.push_back(entry.path());
  if (files.empty()) {
    std::fprintf(stderr, "%s: no inputs\n", argv[1]);
    return 1;
  }
  std::sort(files.begin(), files.end());
  size_t runs = 0;
  for (const auto& path : files) {
    std::printf("%s\n", path.filename().c_str());
    std::fflush(stdout);
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> whole((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const size_t step = std::max<size_t>(1, whole.size() / kCuts);
    for (size_t size = whole.size();; size -= std::min(size, step)) {
      // A copy of exact size, so that the address sanitizer sees a read past its end.
      const std::vector<uint8_t> input(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
      LLVMFuzzerTestOneInput(input.data(), input.size());
      ++runs;
      if (size == 0) break;
    }
  }
  std::printf("%zu inputs of %zu files\n", runs, files.size());
  return 0;
}
