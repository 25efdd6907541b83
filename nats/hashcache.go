package natschain

import (
	"sync"

	"github.com/chaingql/chaingql"
)

// A blockID identifies a block or another message in the stream.
type blockID struct {
	seq  uint64
	hash chaingql.Hash
}

// A leafCache contains the hashes of the messages in leaves that the index lacks.
type leafCache struct {
	mu     sync.Mutex
	leaves map[uint64]leafHashes // by the sequence number of the leaf's first message

	generation int // number of calls of forget
}

type leafHashes struct {
	from   uint64 // sequence number of the first message that was stored when the leaf was read
	next   uint64 // sequence number of the first message that is not cached
	hashes []blockID
}

func (x *leafCache) get(leaf uint64) (h leafHashes, generation int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.leaves[leaf], x.generation
}

// put adds hashes that were read after get had returned the generation.
func (x *leafCache) put(leaf uint64, h leafHashes, generation int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if generation != x.generation { // the messages may have been lost since they were read
		return
	}
	if x.leaves == nil {
		x.leaves = make(map[uint64]leafHashes)
	}
	for other := range x.leaves { // evicts leaves in random order
		if len(x.leaves) < 2*maxUnindexed {
			break
		}
		delete(x.leaves, other)
	}
	x.leaves[leaf] = h
}

func (x *leafCache) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.leaves)
	x.generation++
}
