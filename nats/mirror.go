package natschain

import (
	"context"
	"errors"
	"log/slog"
)

// errMirror is returned if a mirror of the block stream responds to a direct get. NATS lets each
// mirror in the account of the stream respond, and does not allow to turn that off. A mirror may
// have fewer messages than the stream, other limits, or the messages of a stream that was replaced.
var errMirror = errors.New("a mirror of the stream responded: " +
	"its account must be another one than that of the stream")

const (
	// mirrorAttempts is the number of times that a batch is requested if mirrors respond. If a
	// cluster has a stream without replicas and one mirror, each responds to about half of the
	// requests. If none of the responses is the stream's, the leader is asked.
	mirrorAttempts = 10
	// unknown is returned instead of a number of messages that no response contains.
	unknown = -1
	// maxLeaderBatch is the maximum number of messages of a batch that is read from the leader.
	maxLeaderBatch = 100
)

// batchFromLeader returns the first messages of a subject whose sequence numbers are at least from:
// up to n of them, but at most maxLeaderBatch. It requests them from the leader one by one.
func (b *Backend) batchFromLeader(ctx context.Context, subject string, from uint64, n int) (got []stored, err error) {
	for range min(n, maxLeaderBatch) {
		s, found, err := b.block(ctx, getRequest{Seq: max(from, 1), Next: subject})
		if err != nil {
			return nil, err
		}
		if !found {
			break
		}
		got, from = append(got, s), s.seq+1
	}
	return got, nil
}

// reportMirror logs a warning when a mirror responds for the first time.
func (b *Backend) reportMirror(name string) {
	if b.mirrored.CompareAndSwap(false, true) {
		b.opts.Logger.Warn("a mirror of the block stream responds to reads, which makes them slower: "+
			"create the mirror in another account", slog.String("stream", b.names.stream), slog.String("mirror", name))
	}
}
