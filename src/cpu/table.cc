#include "cpu/table.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/cpu_info.h"
#include "base/macros.h"
#include "cpu/avx512_kernels.h"
#include "cpu/decode_tables.h"
#include "cpu/drivers.h"

namespace ps::cpu {
namespace {

bool has_vnni() { return cpu_info().has_avx512_vnni && __builtin_cpu_supports("avx512vbmi") != 0; }

using KernelsOf = const Kernels& (*)();

template <KernelsOf kKernels, auto kDriver, typename Args>
void driven(const Args& args, ops::Exec& exec) {
  kDriver(kKernels(), args, exec);
}

// The widest kernels of the level that this machine runs.
const Kernels& widest_avx512_kernels() {
  static const Kernels& kKernels = has_vnni() ? avx512_vnni_kernels() : avx512_kernels();
  return kKernels;
}

template <KernelsOf kKernels>
int64_t scratch_bytes(const ops::ScratchBounds& bounds) {
  return std::max({ops::reference_table().scratch_bytes(bounds), linear_scratch_bytes(bounds),
                   moe_scratch_bytes(bounds), rows_scratch_bytes(bounds), router_scratch_bytes(bounds),
                   attention_scratch_bytes(kKernels(), bounds), index_select_scratch_bytes(bounds)});
}

template <KernelsOf kKernels>
ops::OpTable make_table(const char* name) {
  ops::OpTable table = ops::reference_table();
  table.name = name;
  table.scratch_bytes = scratch_bytes<kKernels>;
  table.quantize_mxfp8 = driven<kKernels, quantize_mxfp8, ops::QuantizeMxfp8Args>;
  table.linear = driven<kKernels, linear, ops::LinearArgs>;
  table.grouped_linear = driven<kKernels, grouped_linear, ops::GroupedLinearArgs>;
  table.moe = driven<kKernels, moe, ops::MoeArgs>;
  table.sparse_attention = driven<kKernels, sparse_attention, ops::SparseAttentionArgs>;
  table.index_select = driven<kKernels, index_select, ops::IndexSelectArgs>;
  table.embed = driven<kKernels, embed, ops::EmbedArgs>;
  table.rms_norm = driven<kKernels, rms_norm, ops::RmsNormArgs>;
  table.rope = driven<kKernels, rope, ops::RopeArgs>;
  table.scale = driven<kKernels, scale, ops::ScaleArgs>;
  table.hc_mix = driven<kKernels, hc_mix, ops::HcMixArgs>;
  table.hc_collapse = driven<kKernels, hc_collapse, ops::HcCollapseArgs>;
  table.hc_expand = driven<kKernels, hc_expand, ops::HcExpandArgs>;
  table.engram_gather = driven<kKernels, engram_gather, ops::EngramGatherArgs>;
  table.engram_mix = driven<kKernels, engram_mix, ops::EngramMixArgs>;
  table.index_query_quantize = driven<kKernels, index_query_quantize, ops::IndexQueryQuantizeArgs>;
  table.window_write = driven<kKernels, window_write, ops::WindowWriteArgs>;
  table.compressor_pool = driven<kKernels, compressor_pool, ops::CompressorPoolArgs>;
  table.compressor_ring_write = driven<kKernels, compressor_ring_write, ops::CompressorRingWriteArgs>;
  table.compressed_store = driven<kKernels, compressed_store, ops::CompressedStoreArgs>;
  table.index_key_store = driven<kKernels, index_key_store, ops::IndexKeyStoreArgs>;
  table.router = driven<kKernels, router, ops::RouterArgs>;
  (void)decode_tables();
  return table;
}

// Linux hands out the tile registers only to a process that asked for them.
bool ask_for_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  static const bool kGranted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return kGranted;
}

}  // namespace

std::string_view isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAmx: return "amx";
  }
  return "?";
}

Status supported(Isa isa) {
  const CpuInfo info = cpu_info();
  switch (isa) {
    case Isa::kAvx2:
      if (!info.has_avx2 || !info.has_fma) return Status::unsupported("this processor has no AVX2 with FMA");
      return {};
    case Isa::kAvx512:
      if (!info.has_avx512) return Status::unsupported("this processor has no AVX-512 with BW, DQ and VL");
      return {};
    case Isa::kAmx:
      if (!info.has_avx512_bf16 || !has_vnni()) {
        return Status::unsupported("this processor has no AVX-512 with VNNI, VBMI and BF16");
      }
      if (!info.has_amx_bf16) return Status::unsupported("this processor has no AMX-BF16");
      if (!ask_for_tiles()) return Status::unsupported("the system does not grant the AMX tile registers");
      return {};
  }
  return Status::invalid("no such instruction set");
}

Result<const ops::OpTable*> table_for(Isa isa) {
  PS_RETURN_IF_ERROR(supported(isa));
  static const ops::OpTable kAvx2 = make_table<avx2_kernels>("avx2");
  static const ops::OpTable kAvx512 = make_table<widest_avx512_kernels>("avx512");
  static const ops::OpTable kAmx = make_table<amx_kernels>("amx");
  switch (isa) {
    case Isa::kAvx2: return &kAvx2;
    case Isa::kAvx512: return &kAvx512;
    case Isa::kAmx: return &kAmx;
  }
  return Status::invalid("no such instruction set");
}

const ops::OpTable& table() {
  for (const Isa isa : {Isa::kAmx, Isa::kAvx512}) {
    if (supported(isa).ok()) return *table_for(isa).value();
  }
  return *table_for(Isa::kAvx2).value();
}

}  // namespace ps::cpu
