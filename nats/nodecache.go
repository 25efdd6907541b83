package natschain

import (
	"strings"
	"sync"
)

// A nodeCache contains index nodes that were read.
type nodeCache struct {
	mu            sync.Mutex
	subjectPrefix string           // prefix of the nodes' subjects, "" if unknown
	known         map[string]*node // by subject
	size          int              // sum of the sizes of these nodes

	verified map[position]struct{} // messages in the stream that are the End of a node of the hash index
}

// nodeCacheBytes is the maximum total size of the cached nodes, measured as JSON.
const nodeCacheBytes = 8 << 20

func (x *nodeCache) prefix() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.subjectPrefix
}

func (x *nodeCache) get(subject string) (*node, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, known := x.known[subject]
	return n, known
}

func (x *nodeCache) put(nodes ...*node) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range nodes {
		if _, known := x.known[n.subject]; known || !strings.HasPrefix(n.subject, x.subjectPrefix) {
			continue
		}
		x.known[n.subject], x.size = n, x.size+n.size
		for subject, other := range x.known { // evicts nodes in random order
			if x.size <= nodeCacheBytes {
				break
			}
			x.size -= other.size
			delete(x.known, subject)
		}
	}
}

// forget drops all nodes. Nodes that are added later must have the given subject prefix.
func (x *nodeCache) forget(prefix string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.subjectPrefix, x.known, x.size = prefix, make(map[string]*node), 0
	x.verified = make(map[position]struct{})
}

// isVerified reports whether end is known to be in the stream.
func (x *nodeCache) isVerified(end position) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, is := x.verified[end]
	return is
}

// verify records that end is in the stream.
func (x *nodeCache) verify(end position) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.verified) >= maxVerifiedEnds {
		clear(x.verified)
	}
	x.verified[end] = struct{}{}
}

// maxVerifiedEnds is the maximum number of messages that are remembered as verified.
const maxVerifiedEnds = 4096
