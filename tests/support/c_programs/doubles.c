// Double and single precision: sums, products, quotients, roots, comparisons, conversions to and from integers.
DEVICE u64 bits(double x) {
  union { double number; u64 word; } both = {x};
  return both.word;
}

DEVICE u64 program(u64 seed) {
  double x = (double)(seed % 1000003) / 997.0, y = (double)(i64)(seed * 77 - 5000) * 1e-3;
  float a = (float)x, b = (float)y;
  u64 hash = 0;
  for (int i = 1; i < 20; i++) {
    x = x * 1.25 - y / (x * x + i);
    y = __builtin_sqrt(y < 0 ? -y : y) + 1 / (double)i;
    a = a / (b + 3.5f * (float)i) + (float)y;
    b = __builtin_sqrtf(a < 0 ? -a : a) - (b < 2e9f && b > -2e9f ? (float)(int)b : 0);
    hash = (hash ^ bits(x) ^ bits(y) << 1 ^ bits((double)a) ^ bits((double)b)) * 0x100000001b3u;
    hash += (u64)(i64)(x < 1e9 && x > -1e9 ? x : 0) + (u32)(y < 4e9 ? __builtin_floor(y) : 2) + (u32)(a < 4e9f && a > 0 ? a : 1);
  }
  return hash;
}
