// Recursive quicksort of an array on the stack: calls, a dynamic stack, divergent depth.
DEVICE NOINLINE void sort(int *data, int low, int high) {
  if (low >= high) return;
  int pivot = data[(low + high) / 2], i = low, j = high;
  while (i <= j) {
    while (data[i] < pivot) i++;
    while (data[j] > pivot) j--;
    if (i <= j) {
      int swapped = data[i];
      data[i++] = data[j];
      data[j--] = swapped;
    }
  }
  sort(data, low, j);
  sort(data, i, high);
}

DEVICE u64 program(u64 seed) {
  int data[24];
  for (int i = 0; i < 24; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    data[i] = (int)(seed >> 33) % 100;
  }
  sort(data, 0, 23);
  u64 hash = 14695981039346656037u;
  for (int i = 0; i < 24; i++) hash = (hash ^ (u32)data[i]) * 1099511628211u;
  return hash;
}
