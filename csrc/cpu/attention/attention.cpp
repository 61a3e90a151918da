// attention: causal attention over the paged cache, see docs/plan.md. Head widths up to 256; tokens per block divide
// 256.
//
// Work is cut into items (a tile of query rows of one KV head) and, where the items do not fill the threads evenly,
// into units (one split of one item). Units run in rounds of a fixed number of slots, so that memory does not grow with
// the context, and their results are merged in the same order as an item alone would do it.
#include "cpu/attention/tile.h"
#include "cpu/elementwise/rows.h"

namespace {
using namespace ix::cpu;

constexpr int kSlotsPerThread = 24;

struct Tile {
  int seq, first, count;  // queries first .. first + count - 1 of the sequence
  int first_split, num_splits;
  int unit;  // units of one group of heads before this tile
};

struct Problem {
  const ix_tensor &q, &seq_start, &seq_context, &seq_row, &block_table, &sinks, &y;
  int heads, kv_heads, window;
  ScoreRule rule;
  int group, splits_of_group, group_heads;  // query heads of a KV head, the parts they fall into, heads of a part
  int queries;                              // of a tile

  explicit Problem(const ix_kernel_call* call)
      : q(call->operands[0]),
        seq_start(call->operands[2]),
        seq_context(call->operands[3]),
        seq_row(call->operands[4]),
        block_table(call->operands[5]),
        sinks(call->operands[6]),
        y(call->operands[7]) {
    heads = max(1, int(call->attrs[0].i));
    rule = {float(call->attrs[1].f), float(call->attrs[3].f)};
    window = int(call->attrs[2].i);
    kv_heads = call->operands[1].dims[2];
    group = max(1, heads / max(1, kv_heads));
    splits_of_group = (group + kTileRows - 1) / kTileRows;
    group_heads = (group + splits_of_group - 1) / splits_of_group;
    queries = max(1, kTileRows / group_heads);
  }
  int lanes() const { return kv_heads * splits_of_group; }  // items of a tile
  int first_seen(int position) const { return window > 0 ? max(0, position - window + 1) : 0; }
  int first_position(int seq) const {
    const int32_t* start = ints(seq_start);
    return ints(seq_context)[seq] - (start[seq + 1] - start[seq]);
  }
};

struct Workspace {
  Tile* tiles;
  TileScratch* scratch;  // of each thread
  TileState* slots;
  TileState* carry;  // two: of the item that the last round left unfinished, and for the one that this round leaves
  int num_slots;
  size_t bytes;

  Workspace(void* base, int num_tokens, int num_threads) : num_slots(kSlotsPerThread * num_threads) {
    size_t at = 0;
    const auto take = [&](size_t size) {
      const size_t here = at;
      at += (size + 63) / 64 * 64;
      return static_cast<char*>(base) + here;
    };
    scratch = reinterpret_cast<TileScratch*>(take(sizeof(TileScratch) * num_threads));
    slots = reinterpret_cast<TileState*>(take(sizeof(TileState) * num_slots));
    carry = reinterpret_cast<TileState*>(take(2 * sizeof(TileState)));
    tiles = reinterpret_cast<Tile*>(take(sizeof(Tile) * num_tokens));
    bytes = at;
  }
};

size_t workspace(const ix_kernel_call* call, int num_threads) {
  return Workspace(nullptr, call->operands[0].dims[0], num_threads).bytes;
}

// An item: `lane` names the KV head and, in large groups, the part of its query heads.
template <int kPair>
struct Item {
  const Problem& p;
  const Tile& tile;
  int first_head, num_heads;
  TileView<kPair> view;

  Item(const Problem& p, const KvCache<kPair>& cache, const Tile& tile, int lane)
      : p(p), tile(tile), view{cache,
                               row_i(p.block_table, ints(p.seq_row)[tile.seq]),
                               lane / p.splits_of_group,
                               0,
                               ints(p.seq_context)[tile.seq],
                               {},
                               {}} {
    const int skipped = lane % p.splits_of_group * p.group_heads;
    first_head = view.kv_head * p.group + skipped;
    num_heads = min(p.group_heads, p.group - skipped);
    view.rows = tile.count * num_heads;
    for (int t = 0; t < view.rows; t++) {
      view.last[t] = p.first_position(tile.seq) + tile.first + t / num_heads;
      view.first[t] = p.first_seen(view.last[t]);
    }
  }
  int token(int t) const { return ints(p.seq_start)[tile.seq] + tile.first + t / num_heads; }
  int head(int t) const { return first_head + t % num_heads; }

  void load(TileScratch& s) const {
    const int width = view.cache.width;
    for (int t = 0; t < view.rows; t++) load_query<kPair>(s.query[t], row(p.q, token(t)) + head(t) * width, width);
  }
  void finish(const TileState& total) const {
    const int width = view.cache.width;
    for (int t = 0; t < view.rows; t++)
      finish_row(total, t, p.sinks.data ? floats(p.sinks) + head(t) : nullptr, row(p.y, token(t)) + head(t) * width,
                 width);
  }
};

template <int kPair>
void run_items(ix_stream* stream, const Problem& p, const KvCache<kPair>& cache, const Workspace& ws, int num_tiles) {
  const int lanes = p.lanes(), num_items = num_tiles * lanes;
  const int per_chunk = max(1, num_items / (16 * stream->num_threads));
  parallel(stream, (num_items + per_chunk - 1) / per_chunk, [&](int chunk, int thread) {
    TileScratch& s = ws.scratch[thread];
    for (int i = chunk * per_chunk; i < min(num_items, (chunk + 1) * per_chunk); i++) {
      const Tile& tile = ws.tiles[num_tiles - 1 - i / lanes];  // a prompt's last tiles take longest: first
      const Item<kPair> item(p, cache, tile, i % lanes);
      item.load(s);
      s.total.clear(item.view.rows, cache.width);
      for (int split = 0; split < tile.num_splits; split++) {
        attend_split(item.view, tile.first_split + split, p.rule, s, s.part);
        merge(s.total, s.part, item.view.rows, cache.width);
      }
      item.finish(s.total);
    }
  });
}

template <int kPair>
void run_units(ix_stream* stream, const Problem& p, const KvCache<kPair>& cache, const Workspace& ws, int num_tiles,
               int num_units) {
  const int lanes = p.lanes();
  // units in order: tile, lane, split
  const auto tile_of = [&](int unit) -> const Tile& {
    int low = 0, high = num_tiles - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (ws.tiles[middle].unit * lanes <= unit) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return ws.tiles[low];
  };
  int carried = 0;
  for (int begin = 0; begin < num_units; begin += ws.num_slots) {
    const int count = min(ws.num_slots, num_units - begin);
    parallel(stream, count, [&](int chunk, int thread) {
      const Tile& tile = tile_of(begin + chunk);
      const int within = begin + chunk - tile.unit * lanes;
      const Item<kPair> item(p, cache, tile, within / tile.num_splits);
      item.load(ws.scratch[thread]);
      attend_split(item.view, tile.first_split + within % tile.num_splits, p.rule, ws.scratch[thread], ws.slots[chunk]);
    });
    // the chunk that holds an item's first unit of this round merges the item
    parallel(stream, count, [&](int chunk, int thread) {
      const Tile& tile = tile_of(begin + chunk);
      const int within = begin + chunk - tile.unit * lanes, split = within % tile.num_splits;
      if (split > 0 && chunk > 0) return;
      const Item<kPair> item(p, cache, tile, within / tile.num_splits);
      const int merged = min(tile.num_splits - split, count - chunk);
      const bool done = split + merged == tile.num_splits;
      TileState& total = split > 0 ? ws.carry[carried] : done ? ws.scratch[thread].total : ws.carry[1 - carried];
      if (split == 0) total.clear(item.view.rows, cache.width);
      for (int i = 0; i < merged; i++) merge(total, ws.slots[chunk + i], item.view.rows, cache.width);
      if (done) item.finish(total);
    });
    const Tile& tile = tile_of(begin + count - 1);
    const int split = (begin + count - 1 - tile.unit * lanes) % tile.num_splits;
    if (split + 1 < tile.num_splits && split < count) carried = 1 - carried;  // the last item began in this round
  }
}

template <int kPair>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const Problem p(call);
  const KvCache<kPair> cache(call->operands[1]);
  const Workspace ws(call->workspace, p.q.dims[0], stream->num_threads);
  int num_tiles = 0, units = 0, longest = 0;
  for (int seq = 0; seq < p.seq_context.dims[0]; seq++) {
    const int new_tokens = ints(p.seq_start)[seq + 1] - ints(p.seq_start)[seq], offset = p.first_position(seq);
    for (int first = 0; first < new_tokens; first += p.queries) {
      const int count = min(p.queries, new_tokens - first);
      const int first_split = p.first_seen(offset + first) / kSplit;
      const int num_splits = (offset + first + count - 1) / kSplit + 1 - first_split;
      ws.tiles[num_tiles++] = {seq, first, count, first_split, num_splits, units};
      units += num_splits;
      longest = max(longest, num_splits);
    }
  }
  const int num_units = units * p.lanes();
  if (num_units >= int64_t(longest) * 2 * stream->num_threads || stream->num_threads == 1 || longest == 1) {
    run_items(stream, p, cache, ws, num_tiles);
  } else {
    run_units(stream, p, cache, ws, num_tiles, num_units);
  }
}
}  // namespace

IX_KERNEL(attention_f32,
          "attention(q: f32[T,N], cache: kv_f32[B,L,K,D], seq_start: i32[R], seq_context: i32[R], seq_row: i32[R], "
          "block_table: i32[P,C], sinks?: f32[H], heads: i32, scale: f32, window: i32, softcap: f32) -> f32[T,N]",
          "", launch<1>, workspace)
IX_KERNEL(attention_bf16,
          "attention(q: f32[T,N], cache: kv_bf16[B,L,K,D], seq_start: i32[R], seq_context: i32[R], seq_row: i32[R], "
          "block_table: i32[P,C], sinks?: f32[H], heads: i32, scale: f32, window: i32, softcap: f32) -> f32[T,N]",
          "", launch<2>, workspace)
