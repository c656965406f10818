// Safetensors files: what is written reads back, what is hostile is refused with the tensor's name.
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>

#include "checkpoint/test_data.h"

namespace ps::checkpoint {
namespace {

using test::TemporaryFolder;
using testing::HasSubstr;

// A file of that header and that many data bytes.
std::string file_of(std::string header, size_t data_bytes) {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(uint64_t{header.size()} >> (8 * i));
  return file + header + std::string(data_bytes, 'x');
}

Result<SafetensorsHeader> parse(const std::string& file) {
  return parse_safetensors({reinterpret_cast<const std::byte*>(file.data()), file.size()},
                           static_cast<int64_t>(file.size()));
}

// The header with spaces up to a multiple of 8, as writers do.
std::string padded(std::string header) {
  while (header.size() % 8 != 0) header += ' ';
  return header;
}

TEST(Safetensors, ReadsEntriesInFileOrder) {
  const std::string file =
      file_of(padded(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I8","shape":[2,3],"data_offsets":[8,14]},
      "a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"none":{"dtype":"BF16","shape":[0,7],"data_offsets":[14,14]},
      "scalar":{"dtype":"F8_E4M3","shape":[],"data_offsets":[14,15]}})"),
              15);
  const Result<SafetensorsHeader> header = parse(file);
  ASSERT_TRUE(header.ok()) << header.status().to_string();
  ASSERT_EQ(header.value().entries.size(), 4u);
  EXPECT_EQ(header.value().entries[0].name, "a");
  EXPECT_EQ(header.value().entries[1].name, "b");
  EXPECT_EQ(header.value().entries[1].shape, (Shape{2, 3}));
  EXPECT_EQ(header.value().entries[2].name, "none");
  EXPECT_EQ(header.value().entries[3].shape.elements(), 1);
  EXPECT_EQ(header.value().data_offset % 8, 0);
}

struct Hostile {
  const char* name;
  const char* header;
  size_t data_bytes;
  const char* message;
};

constexpr Hostile kHostile[] = {
    {"empty_header", "", 4, "no JSON object"},
    {"array_header", "[]", 4, "no JSON object"},
    {"open_header", R"({"a")", 4, "header: "},
    {"bad_utf8", "{\"\xff\":1}", 0, "header: "},
    {"text_after", "{} x", 0, "header: "},
    {"entry_is_number", R"({"a":1})", 4, "a: entry is a number"},
    {"no_dtype", R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "a: dtype is missing"},
    {"dtype_is_number", R"({"a":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})", 4, "a: dtype is missing or no string"},
    {"unknown_dtype", R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})", 4,
     "a: dtype F16 is not used by this model"},
    {"lower_dtype", R"({"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4, "a: dtype f32"},
    {"no_shape", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "a: shape is missing"},
    {"shape_negative", R"({"a":{"dtype":"F32","shape":[-1,-1],"data_offsets":[0,4]}})", 4,
     "a: shape has an entry that is no size"},
    {"shape_fraction", R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "a: shape has an entry"},
    {"shape_string", R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4, "a: shape has an entry"},
    {"shape_huge", R"({"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}})", 4,
     "a: shape has an entry"},
    {"shape_overflows", R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
     "overflows"},
    {"shape_wraps_to_4", R"({"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})", 4, "overflows"},
    {"shape_deep", R"({"a":{"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[0,4]}})", 4, "a: shape has 5 axes"},
    {"no_offsets", R"({"a":{"dtype":"F32","shape":[1]}})", 4, "a: data_offsets"},
    {"one_offset", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "a: data_offsets is no pair"},
    {"offsets_negative", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4, "a: data_offsets is no pair"},
    {"offsets_reversed", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
     "a: data_offsets [4, 0] do not hold 4 bytes"},
    {"size_differs", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "do not hold 8 bytes of [2] F32"},
    {"end_huge", R"({"a":{"dtype":"I8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}})", 4,
     "truncated"},
    {"extra_field", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, "a: has fields other than"},
    {"field_twice", R"({"a":{"dtype":"I8","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
     "a: field dtype occurs twice"},
    {"tensor_twice",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
     8, "a occurs twice"},
    {"metadata_number", R"({"__metadata__":{"x":1},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
     "__metadata__"},
    {"metadata_list", R"({"__metadata__":[]})", 0, "__metadata__"},
    {"truncated", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7,
     "a: ends at byte 8 of 7: the file is truncated"},
    {"trailing", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "1 bytes follow the last tensor"},
    {"only_trailing", "{}", 3, "3 bytes follow the last tensor"},
    {"hole",
     R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"I8","shape":[2],"data_offsets":[4,6]}})", 6,
     "b: starts at byte 4, after a hole from byte 2"},
    {"hole_at_start", R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[2,4]}})", 4,
     "a: starts at byte 2, after a hole from byte 0"},
    {"overlap",
     R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"I8","shape":[4],"data_offsets":[2,6]}})", 6,
     "b: starts at byte 2, inside of the tensor before it"},
    {"same_bytes",
     R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})", 4,
     "b: starts at byte 0, inside of the tensor before it"},
    {"misaligned",
     R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})", 5,
     "which is not aligned to F32"},
};

class SafetensorsHostile : public testing::TestWithParam<Hostile> {};

TEST_P(SafetensorsHostile, IsRefused) {
  const std::string header = GetParam().header;
  const Result<SafetensorsHeader> result =
      parse(file_of(header.empty() ? header : padded(header), GetParam().data_bytes));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kCorrupt);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(GetParam().message));
}
INSTANTIATE_TEST_SUITE_P(Headers, SafetensorsHostile, testing::ValuesIn(kHostile),
                         [](const auto& test) { return std::string(test.param.name); });

// An odd header length leaves F32 data unaligned in the file.
TEST(Safetensors, RefusesDataBehindAnUnpaddedHeader) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string odd = header + std::string(9 - header.size() % 8, ' ');
  EXPECT_THAT(std::string(parse(file_of(odd, 4)).status().message()), HasSubstr("not aligned to F32"));
}

TEST(Safetensors, RefusesLengthsThatDoNotFit) {
  EXPECT_THAT(std::string(parse("1234567").status().message()), HasSubstr("has 7 bytes"));
  std::string file = file_of("{}", 0);
  for (const uint64_t length : {uint64_t{3}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - 7, uint64_t{1} << 63}) {
    for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i));
    EXPECT_THAT(std::string(parse(file).status().message()),
                HasSubstr("announces a header of " + std::to_string(length)));
  }
  EXPECT_FALSE(parse("").ok());
}

std::vector<SafetensorsWriter::Declaration> two_tensors() {
  return {{"wide", DType::kF32, {2, 2}}, {"narrow", DType::kF8E4M3, {3}}};
}

std::vector<std::byte> numbered(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7);
  return bytes;
}

TEST(SafetensorsWriter, WritesWhatIsReadBack) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "a.safetensors";
  SafetensorsWriter writer = std::move(SafetensorsWriter::create(path, two_tensors())).value();
  const std::vector<std::byte> bytes = numbered(19);
  const std::span<const std::byte> all(bytes);
  ASSERT_TRUE(writer.append(all.first(5)).ok());
  ASSERT_TRUE(writer.append(all.subspan(5)).ok());
  EXPECT_FALSE(std::filesystem::exists(path)) << "the name appears only when the file is whole";
  ASSERT_TRUE(writer.finish().ok());
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const TensorView wide = file.value().view(file.value().entries()[0]);
  const TensorView narrow = file.value().view(file.value().entries()[1]);
  EXPECT_EQ(wide.shape, (Shape{2, 2}));
  EXPECT_EQ(std::memcmp(wide.data, bytes.data(), 16), 0);
  EXPECT_EQ(narrow.size_bytes, 3);
  EXPECT_EQ(std::memcmp(narrow.data, bytes.data() + 16, 3), 0);
}

TEST(SafetensorsWriter, LeavesNothingUnlessFinished) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "a.safetensors";
  {
    SafetensorsWriter writer = std::move(SafetensorsWriter::create(path, two_tensors())).value();
    ASSERT_TRUE(writer.append(numbered(18)).ok());
    EXPECT_THAT(std::string(writer.finish().message()), HasSubstr("1 declared bytes were not written"));
  }
  {
    const auto abandoned = SafetensorsWriter::create(path, two_tensors());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsWriter, ReportsAFullDisk) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "a.safetensors";
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {4096, before.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  Status status;
  {
    Result<SafetensorsWriter> writer = SafetensorsWriter::create(path, {{"a", DType::kI8, {1 << 20}}});
    status = writer.ok() ? writer->append(std::vector<std::byte>(1 << 20)) : Status::internal("create failed");
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot write"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsFile, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(SafetensorsFile::open(folder.path() / "none").status().code(), Code::kNotFound);
  EXPECT_FALSE(SafetensorsFile::open(folder.path()).ok());
  ASSERT_TRUE(write_file(folder.path() / "empty", "").ok());
  EXPECT_EQ(SafetensorsFile::open(folder.path() / "empty").status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace ps::checkpoint
