// 128-bit products and quotients, 64-bit division of both signs, narrow types, overflow checks.
DEVICE u64 program(u64 seed) {
  u64 x = seed * 0x9e3779b97f4a7c15u, y = (seed ^ 0xdeadbeef) * 0xbf58476d1ce4e5b9u | 1, hash = 0;
  for (int i = 0; i < 12; i++) {
    unsigned __int128 product = (unsigned __int128)x * y;
    u64 low = (u64)product, high = (u64)(product >> 64);
    u64 divisor = (y >> (i * 5 & 63)) | 1;
    i64 signed_quotient = (i64)low / ((i64)divisor >> 3 | 1);
    u32 narrow = (u32)high / ((u32)divisor | 1) + (u32)high % ((u32)low | 1);
    i64 sum;
    if (__builtin_saddll_overflow((i64)x, (i64)y, (long long *)&sum)) sum ^= 0x5555;
    hash = (hash ^ low / divisor ^ low % divisor ^ (u64)signed_quotient ^ narrow ^ (u64)sum) * 0x100000001b3u + high;
    x = hash ^ low;
    y = (high << 7 | high >> 57) | 1;
  }
  return hash;
}
