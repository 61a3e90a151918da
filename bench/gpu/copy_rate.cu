// GB/s from page-locked memory to the GPU in pieces of 2 MB, one after another on one stream: what no load of weights can exceed.
#include "measure.cuh"

int main() {
  constexpr size_t kPiece = 2 << 20, kPieces = 4096;
  char* host;
  CHECK(cudaHostAlloc(&host, 64 * kPiece, cudaHostAllocPortable));
  Memory<char> device(64 * kPiece);
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaEvent_t start, end;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&end));
  float best = 0;
  for (int run = 0; run < 3; run++) {
    CHECK(cudaEventRecord(start, stream));
    for (size_t i = 0; i < kPieces; i++)
      CHECK(cudaMemcpyAsync(device.data + i % 64 * kPiece, host + i % 64 * kPiece, kPiece, cudaMemcpyHostToDevice, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, start, end));
    best = std::max(best, float(kPiece * kPieces / 1e6 / ms));
  }
  std::printf("%.1f\n", best);
}
