// A stack machine: a dense switch (jump table or branch tree), and calls through a table of function pointers.
typedef i64 (*Operation)(i64, i64);
DEVICE NOINLINE i64 add(i64 a, i64 b) { return a + b; }
DEVICE NOINLINE i64 subtract(i64 a, i64 b) { return a - b; }
DEVICE NOINLINE i64 multiply(i64 a, i64 b) { return a * b; }
DEVICE NOINLINE i64 divide(i64 a, i64 b) { return b == 0 || b == -1 ? 0 : a / b; }
DEVICE NOINLINE i64 shift(i64 a, i64 b) { return a >> (b & 63); }
static CONSTANT const Operation OPERATIONS[5] = {add, subtract, multiply, divide, shift};

DEVICE u64 program(u64 seed) {
  i64 stack[8] = {1, (i64)seed, 3, 7, -5, 11, 13, (i64)(seed >> 3)};
  int top = 7;
  u64 code = seed;
  for (int step = 0; step < 40; step++) {
    code = code * 2862933555777941757u + 3037000493u;
    i64 a = stack[top], b = stack[(top + 7) & 7];
    switch (code >> 60) {
      case 0: stack[top] = a ^ b; break;
      case 1: stack[top] = a & b; break;
      case 2: stack[top] = a | b; break;
      case 3: stack[top] = ~a; break;
      case 4: stack[top] = -a; break;
      case 5: stack[top] = a < b ? a : b; break;
      case 6: stack[top] = __builtin_popcountll(a) + __builtin_clzll(b | 1); break;
      case 7: stack[top] = __builtin_ctzll(a | 1ull << 40) + (i64)__builtin_bitreverse64(b); break;
      case 8: top = (top + 3) & 7; break;
      case 9: stack[(top + 1) & 7] = a + step; break;
      case 10: stack[top] = (signed char)a * (short)b; break;
      default: stack[top] = OPERATIONS[(code >> 40) % 5](a, b); break;
    }
    top = (top + 1) & 7;
  }
  u64 hash = 0;
  for (int i = 0; i < 8; i++) hash = hash * 31 + (u64)stack[i];
  return hash;
}
