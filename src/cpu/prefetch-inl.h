// Asking for memory ahead of time. In assembly, since GCC 12 takes a function that only prefetches for one without
// effect and drops its calls. Included inside the anonymous namespace of an instruction-set file.

inline void prefetch_first(const void* at) {  // into the first cache
  __asm__ volatile("prefetcht0 (%0)" ::"r"(at));
}
inline void prefetch(const void* at) {  // into the second
  __asm__ volatile("prefetcht1 (%0)" ::"r"(at));
}
