#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/testing.h"

namespace ps {
namespace {

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, ShowsTheBytesOfAFile) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "weights";
  const std::string content = std::string("a\0b", 3) + std::string(100000, 'x');
  ASSERT_TRUE(write_file(path, content).ok());
  MappedFile file = MappedFile::open(path).value();
  EXPECT_EQ(file.size_bytes(), static_cast<int64_t>(content.size()));
  EXPECT_EQ(text_of(file), content);
  EXPECT_EQ(read_file(path, 1 << 20).value(), content);

  MappedFile moved = std::move(file);
  EXPECT_EQ(text_of(moved), content);
  EXPECT_TRUE(file.bytes().empty());  // NOLINT(bugprone-use-after-move): the moved-from state is part of the contract
}

TEST(MappedFile, AnEmptyFileIsAnEmptyView) {
  const test::TemporaryFolder folder;
  ASSERT_TRUE(write_file(folder.path() / "empty", "").ok());
  EXPECT_TRUE(MappedFile::open(folder.path() / "empty").value().bytes().empty());
  EXPECT_EQ(read_file(folder.path() / "empty", 0).value(), "");
}

TEST(MappedFile, NamesWhatIsMissingOrNoFile) {
  const test::TemporaryFolder folder;
  const auto missing = MappedFile::open(folder.path() / "nothing");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_NE(missing.status().message().find("nothing"), std::string_view::npos);
  EXPECT_EQ(read_file(folder.path() / "nothing", 10).status().code(), Code::kNotFound);

  const auto directory = MappedFile::open(folder.path());
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.status().code(), Code::kInvalid);
  EXPECT_NE(directory.status().message().find("not a regular file"), std::string_view::npos);

  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(pipe).status().code(), Code::kInvalid) << "and opening it does not wait for a writer";
}

TEST(MappedFile, OpensFromAReadOnlyFolderAndLeavesNothingThere) {
  const test::TemporaryFolder folder;
  ASSERT_TRUE(write_file(folder.path() / "weights", "abc").ok());
  ASSERT_EQ(chmod((folder.path() / "weights").c_str(), 0400), 0);
  ASSERT_EQ(chmod(folder.path().c_str(), 0500), 0);
  EXPECT_EQ(text_of(MappedFile::open(folder.path() / "weights").value()), "abc");
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++entries;
  EXPECT_EQ(entries, 1);
  if (geteuid() != 0) {
    EXPECT_EQ(write_file(folder.path() / "other", "x").code(), Code::kInvalid);
  }
}

TEST(MappedFile, SeesATruncatedFileAtItsTrueSize) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "weights";
  ASSERT_TRUE(write_file(path, std::string(8192, 'w')).ok());
  ASSERT_EQ(truncate(path.c_str(), 5000), 0);
  EXPECT_EQ(MappedFile::open(path).value().size_bytes(), 5000);
  EXPECT_EQ(read_file(path, 1 << 20).value().size(), 5000u);
}

TEST(ReadFile, RefusesAFileAboveItsLimit) {
  const test::TemporaryFolder folder;
  ASSERT_TRUE(write_file(folder.path() / "config.json", "12345").ok());
  EXPECT_TRUE(read_file(folder.path() / "config.json", 5).ok());
  const auto refused = read_file(folder.path() / "config.json", 4);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kInvalid);
  EXPECT_NE(refused.status().message().find("5 bytes, at most 4 are read"), std::string_view::npos);
}

TEST(WriteFile, ReplacesAFileWholeAndLeavesNoTemporary) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "report.json";
  ASSERT_TRUE(write_file(path, "old").ok());
  const MappedFile reader = MappedFile::open(path).value();
  ASSERT_TRUE(write_file(path, "replacement").ok());
  EXPECT_EQ(text_of(reader), "old") << "an open reader keeps the old file";
  EXPECT_EQ(read_file(path, 100).value(), "replacement");

  ASSERT_TRUE(std::filesystem::create_directory(folder.path() / "taken"));
  EXPECT_FALSE(write_file(folder.path() / "taken", "x").ok());
  EXPECT_EQ(write_file(folder.path() / "missing" / "file", "x").code(), Code::kNotFound);
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++entries;
  EXPECT_EQ(entries, 2);
}

TEST(WriteFile, ReportsAFullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  // The temporary name beside the target is made a link to a device that is always full.
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "image";
  std::filesystem::create_symlink("/dev/full", path.string() + ".partial." + std::to_string(getpid()));
  const Status status = write_file(path, "content");
  EXPECT_EQ(status.code(), Code::kExhausted) << status.to_string();
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace ps
