package natschain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A wanted asks a stream for a message.
type wanted struct {
	Seq    uint64 `json:"seq,omitempty"`
	Next   string `json:"next_by_subj,omitempty"` // from Seq on, the first of this subject
	Last   string `json:"last_by_subj,omitempty"`
	Batch  int    `json:"batch,omitempty"`
	Bytes  int    `json:"max_bytes,omitempty"` // of a batch, which has one message at least
	NoHead bool   `json:"no_hdr,omitempty"`
}

// A found is the answer, or the server's no.
type found struct {
	Error   *jetstream.APIError `json:"error"`
	Message struct {
		Subject string `json:"subject"`
		Seq     uint64 `json:"seq"`
		Header  []byte `json:"hdrs"`
		Data    []byte `json:"data"`
	} `json:"message"`
}

// get asks the stream's leader for one message, which the others may not have
// yet, or may still have.
func (b *Backend) get(ctx context.Context, stream string, w wanted) (f found, some bool, err error) {
	ask, err := json.Marshal(w)
	if err != nil {
		return f, false, err
	}
	err = b.try(ctx, func(ctx context.Context) error {
		f = found{}
		answer, err := b.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, ask)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(answer.Data, &f); err != nil {
			return fmt.Errorf("the answer makes no sense: %w", err)
		}
		if f.Error != nil && f.Error.ErrorCode != noMessageFound {
			return f.Error
		}
		return nil
	})
	return f, err == nil && f.Error == nil, err
}

// block is get for blocks.
func (b *Backend) block(ctx context.Context, w wanted) (s stored, some bool, err error) {
	w.NoHead = true
	f, some, err := b.get(ctx, b.names.stream, w)
	if err != nil || !some {
		return stored{}, false, failed("read blocks", err)
	}
	return b.names.decode(f.Message.Seq, f.Message.Subject, f.Message.Data), true, nil
}

// newest is the newest message of a subject.
func (b *Backend) newest(ctx context.Context, subject string) (stored, bool, error) {
	return b.block(ctx, wanted{Last: subject})
}

// at is the first well-formed message from a place in the stream on, and the
// number of the first of all. Messages that are known to be no blocks are passed
// over without a request, and others that cannot be decoded many at a time.
func (b *Backend) at(ctx context.Context, seq uint64) (s stored, first uint64, some bool, err error) {
	s, some, err = b.block(ctx, wanted{Seq: max(seq, 1), Next: b.names.all()})
	if first = s.seq; err != nil || !some || b.skip(s.seq) == s.seq && s.bad == nil {
		return s, first, some, err
	}
	some = false
	err = b.read(ctx, b.names.all(), s.seq, noEnd, 1, func(messages []stored) (int, error) {
		for _, m := range messages {
			if m.bad == nil {
				s, some = m, true
				return 0, nil
			}
			b.strays.found(b, m.seq, m.bad)
		}
		return 1, nil
	})
	return s, first, some, err
}

// try makes a request, and makes it again where it was not answered: it was lost
// with a connection, or the stream has no leader at the moment.
func (b *Backend) try(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	var told error // says more than that time is up
	for {
		once, done := context.WithTimeout(ctx, b.opts.Timeout/attempts)
		err := ask(once)
		done()
		if err == nil || !b.passing(err) {
			return err
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			told = err
		}
		if ctx.Err() != nil {
			return cmp.Or(told, err)
		}
		pause(ctx, pauseBetween)
	}
}

const pauseBetween = 20 * time.Millisecond

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// passing tells errors that may be over at the next attempt.
func (b *Backend) passing(err error) bool {
	var broken net.Error
	// it was under way when the connection was lost
	if errors.Is(err, nats.ErrConnectionClosed) || errors.As(err, &broken) {
		return !b.nc.IsClosed()
	}
	for _, is := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected, nats.ErrReconnectBufExceeded,
		jetstream.ErrNoStreamResponse, jetstream.ErrAsyncPublishTimeout, jetstream.ErrTooManyStalledMsgs, errTorn,
	} {
		if errors.Is(err, is) {
			return true
		}
	}
	return refused(err, clusterNotAvailable, clusterNotLeader, duplicateUnderway, batchIncomplete, tooManyBatches)
}

// The server's own codes.
const (
	clusterNotAvailable jetstream.ErrorCode = 10008
	clusterNotLeader    jetstream.ErrorCode = 10009
	noMessageFound      jetstream.ErrorCode = 10037
	streamNotFound      jetstream.ErrorCode = 10059
	noSuchSequence      jetstream.ErrorCode = 10043
	wrongLastSequence   jetstream.ErrorCode = 10071
	duplicateUnderway   jetstream.ErrorCode = 10158
	sequenceUnderway    jetstream.ErrorCode = 10164
	batchesDisabled     jetstream.ErrorCode = 10174
	batchIncomplete     jetstream.ErrorCode = 10176
	batchTooLarge       jetstream.ErrorCode = 10199
	batchHasDuplicate   jetstream.ErrorCode = 10201
	tooManyBatches      jetstream.ErrorCode = 10210
)
