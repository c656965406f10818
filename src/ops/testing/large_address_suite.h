// Byte offsets past 2^31 on every table under test: PAGE ids and STATE slots so high that a 32-bit product would wrap.
// The pools are address space only; the few rows in use take memory.
#pragma once

#include "ops/testing/cache_kit.h"

namespace ps::ops::test {

class LargeAddressSuite : public OpSuite {
 protected:
  static constexpr int32_t kPage = 7001;  // rows of 512 BF16 values, 640 a PAGE: 4.3 GiB
  static constexpr int32_t kSlot = 901;   // STATE slots of 5,276,672 bytes: 4.4 GiB
  static constexpr int64_t kPageBytes = 655360;
  static constexpr int64_t kSlotBytes = 5276672;

  static HostBuffer reserve(int64_t bytes) {
    Result<HostBuffer> buffer = HostBuffer::allocate(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status().to_string();
    return std::move(buffer).value();
  }
  static ScratchBounds bounds() {
    ScratchBounds bounds;
    bounds.head_dim = 512;
    bounds.heads = 1;
    bounds.top_k = 2;
    return bounds;
  }
};

TEST_P(LargeAddressSuite, RingsAndMainPlane) {
  HostBuffer state = reserve((kSlot + 1) * kSlotBytes);
  HostBuffer pages = reserve((kPage + 1) * kPageBytes);
  const WindowRing window{state.data() + 39 * 128 * 1024, kSlotBytes, 128, 512, RowFormat::kBF16};
  const MainPlane main{pages.data() + 384 * 1024, kPageBytes, 256, 1, 512, RowFormat::kBF16};
  const TestBatch first({{200, 2, kSlot, {3, kPage}}});
  Rows kv(2, 512, DType::kBF16);
  for (int32_t row = 0; row < 2; ++row) set_row(kv, row, on_mxfp8_grid(random_row(static_cast<uint64_t>(row), 512)));
  const Rows& kv_in = kv;
  run_op(table().window_write, WindowWriteArgs{kv_in.view(Grid::kMxfp8), first.get(), window}, bounds());
  Row got(512);
  decode_row(window.format, state.data() + kSlot * kSlotBytes + (39 * 128 + 201 % 128) * 1024, 512, got.data());
  expect_same_floats("window row", got, kv.row(1));

  const CompressedGroup group{0, 0, 300, 0};
  Rows latent(1, 512, DType::kBF16);
  set_row(latent, 0, on_compressed_grid(random_row(5, 512)));
  const Rows& latent_in = latent;
  run_op(table().compressed_store, CompressedStoreArgs{latent_in.view(), first.get(), &group, 1, main}, bounds());
  decode_row(main.format, pages.data() + kPage * kPageBytes + (384 + 44) * 1024, 512, got.data());
  expect_same_floats("main row", got, latent.row(0));

  // The ring's two rows, row 300 and a zero row through a query at 202: four equal scores and no sink.
  const TestBatch next({{202, 1, kSlot, {3, kPage}}});
  Rows zero(1, 512, DType::kBF16);
  set_row(zero, 0, Row(512, 0.0f));
  const int32_t selected[] = {300, -1};
  const float sink = -std::numeric_limits<float>::infinity();
  Rows o(1, 512, DType::kBF16);
  SparseAttentionArgs args;
  args.q = zero.view();
  args.kv = zero.view(Grid::kMxfp8);
  args.batch = next.get();
  args.ring = window;
  args.plane = main;
  args.selected = selected;
  args.top_k = 2;
  args.sink = {reinterpret_cast<const std::byte*>(&sink), DType::kF32, 1};
  args.scale = 1;
  args.heads = 1;
  args.window = 3;
  args.o = o.view();
  run_op(table().sparse_attention, args, bounds());
  for (int64_t d = 0; d < 512; ++d) {
    const float mean = (kv.at(0, d) + kv.at(1, d) + latent.at(0, d)) / 4;
    EXPECT_NEAR(o.at(0, d), mean, 0x1p-8f * std::fabs(mean) + 1e-6f) << d;
  }
}

TEST_P(LargeAddressSuite, CompressorRing) {
  HostBuffer state = reserve((kSlot + 1) * kSlotBytes);
  const CompressorRing ring{state.data() + 5242880, state.data() + 5259264, kSlotBytes, 2, 512};
  const TestBatch batch({{6, 1, kSlot, {}}});
  Rows kv(1, 512, DType::kF32);
  Rows score(1, 512, DType::kF32);
  set_row(kv, 0, Row(512, 3.0f));
  set_row(score, 0, Row(512, 1.0f));
  const CompressorRingRow row{0, 0, 6};
  run_op(table().compressor_ring_write, CompressorRingWriteArgs{kv.view(), score.view(), batch.get(), &row, 1, ring},
         bounds());
  float stored = 0;
  std::memcpy(&stored, state.data() + kSlot * kSlotBytes + 5242880, sizeof stored);
  EXPECT_EQ(stored, 3.0f);
  const TestBatch next({{7, 1, kSlot, {}}});
  set_row(kv, 0, Row(512, 5.0f));
  const CompressedGroup group{0, 0, 7, 1};
  Rows latent(1, 512, DType::kF32);
  run_op(table().compressor_pool,
         CompressorPoolArgs{kv.view(), score.view(), next.get(), &group, 1, ring, latent.view()}, bounds());
  EXPECT_EQ(latent.at(0, 17), 4.0f);
}

TEST_P(LargeAddressSuite, IndexPlanes) {
  constexpr int32_t kRows = 256;
  constexpr int32_t kHighPage = 140001;  // 256 keys of 68 bytes a PAGE: values alone pass 2^31
  for (const IndexFormat format : {IndexFormat::kFp4, IndexFormat::kFp8}) {
    const bool is_fp4 = format == IndexFormat::kFp4;
    HostBuffer values = reserve(int64_t{kHighPage + 1} * kRows * (is_fp4 ? 64 : 132));
    HostBuffer scales = reserve(int64_t{kHighPage + 1} * kRows * 4);
    const IndexPlane plane{values.data(), is_fp4 ? scales.data() : nullptr, kRows, 1, 128, format};
    const TestBatch batch({{258, 1, 0, {1, kHighPage}}});
    const std::vector<CompressedGroup> groups = {{0, 0, 256, 0}, {0, 0, 257, 0}, {0, 0, 258, 0}};
    Rows keys(3, 128, DType::kBF16);
    for (int64_t g = 0; g < 3; ++g)
      set_row(keys, g, on_index_grid(format, Row(128, static_cast<float>(g == 1 ? 4 : 1))));
    run_op(table().index_key_store, IndexKeyStoreArgs{keys.view(), batch.get(), groups.data(), 3, plane}, bounds());
    Row got(128);
    decode_index_key(plane, int64_t{kHighPage} * kRows + 1, got.data());
    expect_same_floats("key", got, Row(128, 4.0f));
    // The same, by address: 4 is code 6 of E2M1 with the scale 1, or 256 * 2^-6 in E4M3.
    const int64_t block = int64_t{kHighPage} * (kRows / 8);
    if (is_fp4) {
      EXPECT_EQ(values.data()[block * 512 + fp4_index_offset(1, 63, 128)], std::byte{0x66});
      EXPECT_EQ(scales.data()[block * 32 + fp4_index_scale_offset(1, 3)], std::byte{127});
    } else {
      EXPECT_EQ(values.data()[block * 1056 + fp8_index_offset(1, 127)], std::byte{0x78});
    }
    // Rows below 256 are zero keys in PAGE 1; of the three in the high PAGE, 257 scores best and 256 next.
    Rows q(1, 128, DType::kBF16);
    set_row(q, 0, Row(128, 1.0f));
    Rows weights(1, 1, DType::kBF16);
    weights.set(0, 0, 1.0f);
    std::vector<int32_t> selected(2, -7);
    IndexSelectArgs args;
    args.q = q.view();
    args.weights = weights.view();
    args.batch = batch.get();
    args.plane = plane;
    args.heads = 1;
    args.top_k = 2;
    args.selected = selected.data();
    run_op(table().index_select, args, bounds());
    EXPECT_EQ(selected, (std::vector<int32_t>{256, 257}));
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, LargeAddressSuite, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace ps::ops::test
