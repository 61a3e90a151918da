// How a product of any size is cut, for every numerics class alike: `linear` is one group of rows against one weight,
// `moe_linear` one group for each expert in use. Knows nothing of formats; those are in the policies P of int8.h and
// float.h:
//
//   kMaxTile, kFullTile, tile_rows(rows)   most rows in a tile; in one of a large group; in those of a group of `rows`
//   units(cols), kSlice, kWhole            steps over K; units in a slice; up to kWhole tiles take all of K at once
//   kTilesPerBlock                         tiles whose slice of activations stays in L2
//   panel_bytes(cols), tile_bytes(cols)    of weights; of packed activations, at most
//   kScratch                               bytes for each thread
//   pack(rows, num, tile, from, to, acts)  activations of a tile, columns [from, to)
//   acts_at(acts, unit, tile)              where a unit's activations start
//   stage(panel, unit, units, tiles, scratch)           makes a slice of weights ready for so many tiles
//   ahead(panel, unit, units, index, tiles, rows)       what tile `index` of these may prefetch
//   run<T>(slice, acts, tile, units, tiles, out, ahead) T rows of a tile against the slice, added to out
//
// Each output is one chain over K in order, whatever the cut and the number of rows: a partial sum waits in the
// output as f32 and comes back the same. So the batch cannot change a bit of any row.
#pragma once
#include "cpu/simd/vec.h"
#include "cpu/stream.h"

namespace ix::cpu {
namespace {

constexpr int kPanel = 32;  // rows in a panel

template <class T>
constexpr T min(T a, T b) {
  return a < b ? a : b;
}
template <class T>
constexpr T max(T a, T b) {
  return a > b ? a : b;
}
constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr size_t align64(size_t n) { return (n + 63) & ~size_t(63); }

struct Row {
  const float* x;
  float* y;
};
struct Group {
  const uint8_t* weights;
  int first_tile, num_tiles;
  int first_chunk = 0, blocks = 0, tiles_per_block = 0;  // of tiles that pass a slice together
};
struct Tile {
  int first_row, num_rows;
  int tile;  // rows there is room for: those of the group's full tiles
};
// What a kernel may fetch while it works: `lines` cache lines from `next` per unit.
struct Prefetch {
  const uint8_t* next;
  int lines;
};

// Calls f with the number of rows as a compile-time constant.
template <int kMax, class F>
IX_INLINE void with_rows(int rows, F&& f) {
  if constexpr (kMax > 1) {
    if (rows < kMax) return with_rows<kMax - 1>(rows, f);
  }
  f(std::integral_constant<int, kMax>());
}

template <class P>
struct Job {
  ix_stream* stream;
  Row* rows;
  Tile* tiles;
  Group* groups;
  uint8_t *acts, *scratch;
  const float* bias;  // may be null
  int n, k, num_groups = 0, num_rows = 0, num_tiles = 0;

  // A tile has one row at least, and at most kFullTile rows in groups of any size but the small.
  static int64_t most_tiles(int64_t rows, int64_t groups) { return min(rows, rows / P::kFullTile + groups); }

  static size_t workspace(int64_t rows, int64_t groups, int64_t cols, int threads) {
    const int64_t tiles = most_tiles(rows, groups);
    return align64(rows * sizeof(Row)) + align64(tiles * sizeof(Tile)) + align64(groups * sizeof(Group)) +
           size_t(threads) * P::kScratch + size_t(tiles) * P::tile_bytes(cols);
  }

  // `max_rows` and `max_groups` of this call; the groups are then added one by one.
  Job(ix_stream* s, void* workspace, int64_t max_rows, int64_t max_groups, int rows_out, int cols, const float* b)
      : stream(s), bias(b), n(rows_out), k(cols) {
    uint8_t* p = static_cast<uint8_t*>(workspace);
    rows = reinterpret_cast<Row*>(p);
    p += align64(max_rows * sizeof(Row));
    tiles = reinterpret_cast<Tile*>(p);
    p += align64(most_tiles(max_rows, max_groups) * sizeof(Tile));
    groups = reinterpret_cast<Group*>(p);
    p += align64(max_groups * sizeof(Group));
    scratch = p;
    acts = p + size_t(s->num_threads) * P::kScratch;
  }

  // The caller has filled rows[num_rows ...].
  void add_group(const void* weights, int count) {
    const int tile = P::tile_rows(count), first = num_tiles;
    for (int done = 0; done < count; done += tile) {
      tiles[num_tiles++] = {num_rows + done, min(tile, count - done), tile};
    }
    groups[num_groups++] = {static_cast<const uint8_t*>(weights), first, num_tiles - first};
    num_rows += count;
  }

  uint8_t* tile_acts(int tile) const { return acts + size_t(tile) * P::tile_bytes(k); }

  void run() {
    if (num_rows == 0 || n == 0) return;
    pack();
    const int panels = int(divide_up(n, kPanel)), threads = stream->num_threads;
    int64_t work = 0;
    for (int g = 0; g < num_groups; g++) {
      Group& group = groups[g];
      group.blocks = int(divide_up(group.num_tiles, P::kTilesPerBlock));
      group.tiles_per_block = int(divide_up(group.num_tiles, group.blocks));
      work += int64_t(panels) * group.blocks;
    }
    const int panels_per_chunk = int(min<int64_t>(panels, max<int64_t>(1, work / (threads * 8))));
    const int panel_chunks = int(divide_up(panels, panels_per_chunk));
    int chunks = 0;
    for (int g = 0; g < num_groups; g++) {
      groups[g].first_chunk = chunks;
      chunks += panel_chunks * groups[g].blocks;
    }
    parallel(stream, chunks, [&](int chunk, int thread) {
      int g = num_groups - 1;
      while (groups[g].first_chunk > chunk) g--;
      const int i = chunk - groups[g].first_chunk;
      const int p0 = i % panel_chunks * panels_per_chunk, p1 = min(panels, p0 + panels_per_chunk);
      const int t0 = i / panel_chunks * groups[g].tiles_per_block;
      const int t1 = min(groups[g].num_tiles, t0 + groups[g].tiles_per_block);
      multiply(groups[g], p0, p1, groups[g].first_tile + t0, groups[g].first_tile + t1,
               scratch + size_t(thread) * P::kScratch);
    });
  }

 private:
  // A lone row is not worth a dispatch; a few rows are cut along K.
  void pack() {
    const int most = stream->num_threads * 4, wanted = int(min<int64_t>(most, int64_t(num_rows) * k / 8192 + 1));
    const int pieces = num_tiles >= wanted ? 1 : int(divide_up(wanted, num_tiles));
    const int piece = int(divide_up(divide_up(k, pieces), 64) * 64);
    const int work = num_tiles * pieces, chunks = min(wanted, work);
    parallel(stream, chunks, [&](int chunk, int) {
      for (int64_t i = int64_t(work) * chunk / chunks; i < int64_t(work) * (chunk + 1) / chunks; i++) {
        const Tile& t = tiles[i / pieces];
        const int from = min(k, int(i % pieces) * piece), to = min(k, from + piece);
        if (from < to) P::pack(rows + t.first_row, t.num_rows, t.tile, from, to, tile_acts(int(i / pieces)));
      }
    });
  }

  // Panels [p0, p1) against tiles [t0, t1).
  //  * few tiles: panel after panel, a straight walk through the weights;
  //  * many: slices of K outermost, so that the activations in use stay in L2 while the panels pass, and a slice of
  //    weights stays in L1 while the tiles pass.
  void multiply(const Group& group, int p0, int p1, int t0, int t1, uint8_t* thread_scratch) {
    const int units = P::units(k);
    if (t1 - t0 <= P::kWhole) {
      for (int p = p0; p < p1; p++) slice(group, p, 0, units, t0, t1, thread_scratch);
    } else if (t1 - t0 <= 4) {
      for (int p = p0; p < p1; p++)
        for (int u = 0; u < units; u += P::kSlice)
          slice(group, p, u, min(P::kSlice, units - u), t0, t1, thread_scratch);
    } else {
      for (int u = 0; u < units; u += P::kSlice)
        for (int p = p0; p < p1; p++) slice(group, p, u, min(P::kSlice, units - u), t0, t1, thread_scratch);
    }
  }

  void slice(const Group& group, int panel, int unit, int units, int t0, int t1, uint8_t* thread_scratch) {
    const uint8_t* weights = group.weights + size_t(panel) * P::panel_bytes(k);
    const int first = panel * kPanel, width = min(kPanel, n - first);
    const uint8_t* ready = P::stage(weights, unit, units, t1 - t0, thread_scratch);
    for (int t = t0; t < t1; t++) {
      const Tile& tile = tiles[t];
      // The last panel may be narrower than the kernels: they work on a copy of its outputs.
      alignas(64) float narrow[P::kMaxTile][kPanel];
      float* out[P::kMaxTile];
      for (int r = 0; r < tile.num_rows; r++) {
        float* y = rows[tile.first_row + r].y + first;
        out[r] = width == kPanel ? y : narrow[r];
        if (unit == 0) {
          if (bias)
            __builtin_memcpy(out[r], bias + first, size_t(width) * sizeof(float));
          else
            __builtin_memset(out[r], 0, size_t(width) * sizeof(float));
        } else if (width < kPanel) {
          __builtin_memcpy(narrow[r], y, size_t(width) * sizeof(float));
        }
      }
      const Prefetch ahead = P::ahead(weights, unit, units, t - t0, t1 - t0, tile.num_rows);
      with_rows<P::kMaxTile>(tile.num_rows, [&](auto T) {
        P::template run<T()>(ready, P::acts_at(tile_acts(t), unit, tile.tile), tile.tile, units, t1 - t0, out, ahead);
      });
      if (width < kPanel) {
        for (int r = 0; r < tile.num_rows; r++) {
          __builtin_memcpy(rows[tile.first_row + r].y + first, narrow[r], size_t(width) * sizeof(float));
        }
      }
    }
  }
};

}  // namespace
}  // namespace ix::cpu
