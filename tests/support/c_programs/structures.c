// Records by value and in memory, unaligned members, a linked list in an array.
typedef struct __attribute__((packed)) { unsigned char kind; u32 value; unsigned short next; u64 weight; } Node;
typedef struct { u64 sum; u32 count; } Total;

DEVICE NOINLINE Total extend(Total total, Node node) {
  total.sum += node.weight * node.kind + node.value;
  total.count++;
  return total;
}

DEVICE u64 program(u64 seed) {
  Node nodes[10];
  for (int i = 0; i < 10; i++) {
    seed = seed * 6364136223846793005u + 1;
    nodes[i].kind = (unsigned char)(seed >> 56);
    nodes[i].value = (u32)(seed >> 20);
    nodes[i].next = (unsigned short)((i + 1 + (seed >> 60) % 4) % 11);
    nodes[i].weight = seed ^ seed >> 31;
  }
  Total total = {0, 0};
  for (u32 at = 0; at < 10 && total.count < 32; at = nodes[at].next) total = extend(total, nodes[at]);
  return total.sum ^ (u64)total.count << 56;
}
