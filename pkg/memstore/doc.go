// Package memstore keeps counters in the memory of the process.
//
// The number of keys is bounded: at the bound a new key takes the place of a dead one, or else of the least recently used
// key of its shard. A long sliding log weighs as many keys as its marks have the memory of. Keys that died, because their
// counters equal ones never used, are also removed in the background, a few at a time.
//
// # Memory
//
// Shards divide the keys by their hashes. A shard keeps entries in pages and the bytes of keys in chunks, all of fixed
// size, none holding a pointer, linked by numbers: the garbage collector has nothing to follow, and nothing is ever moved
// or copied because it grew, so no call waits for that. The hash index has its final size from the beginning. Memory of
// removed keys is used again for new ones and not returned to the system.
package memstore
