// Asking for memory ahead of time. In assembly, since GCC 12 takes a function that only prefetches for one without
// effect and drops its calls. Included inside the anonymous namespace of an instruction-set file.

inline void prefetch_first(const void* at) { __asm__ volatile("prefetcht0 %a0" ::"p"(at)); }  // into the first cache
inline void prefetch(const void* at) { __asm__ volatile("prefetcht1 %a0" ::"p"(at)); }        // into the second
