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

// A getRequest requests messages of a stream.
type getRequest struct {
	Seq    uint64 `json:"seq,omitempty"`
	Next   string `json:"next_by_subj,omitempty"` // the first of this subject, from Seq on
	Last   string `json:"last_by_subj,omitempty"`
	Batch  int    `json:"batch,omitempty"`
	Bytes  int    `json:"max_bytes,omitempty"` // of a batch, which has at least one message
	NoHead bool   `json:"no_hdr,omitempty"`
}

// A getResponse is the message, or an error of the server.
type getResponse struct {
	Error   *jetstream.APIError `json:"error"`
	Message struct {
		Subject string    `json:"subject"`
		Seq     uint64    `json:"seq"`
		Header  []byte    `json:"hdrs"`
		Data    []byte    `json:"data"`
		Time    time.Time `json:"time"`
	} `json:"message"`
}

// get requests one message from the stream's leader. Other replicas may not have it yet,
// or may still have it after it was removed.
func (b *Backend) get(ctx context.Context, stream string, w getRequest) (f getResponse, found bool, err error) {
	ask, err := json.Marshal(w)
	if err != nil {
		return f, false, err
	}
	err = b.retry(ctx, func(ctx context.Context) error {
		f = getResponse{}
		answer, err := b.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, ask)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(answer.Data, &f); err != nil {
			return fmt.Errorf("malformed response: %w", err)
		}
		if f.Error != nil && f.Error.ErrorCode != noMessageFound {
			return f.Error
		}
		return nil
	})
	return f, err == nil && f.Error == nil, err
}

// block requests a message of the stream of blocks and decodes it.
func (b *Backend) block(ctx context.Context, w getRequest) (s stored, found bool, err error) {
	w.NoHead = true
	f, found, err := b.get(ctx, b.names.stream, w)
	if err != nil || !found {
		return stored{}, false, failed("read blocks", err)
	}
	s = b.names.decode(f.Message.Seq, f.Message.Subject, f.Message.Data)
	s.received = f.Message.Time
	return s, true, nil
}

// newest returns the newest message of a subject.
func (b *Backend) newest(ctx context.Context, subject string) (stored, bool, error) {
	return b.block(ctx, getRequest{Last: subject})
}

// messageFrom returns the first message from seq on that can be decoded, and the number
// of the first message at all. Messages that are known not to be blocks are skipped
// without a request; others that cannot be decoded are read in batches.
func (b *Backend) messageFrom(ctx context.Context, seq uint64) (s stored, first uint64, found bool, err error) {
	s, found, err = b.block(ctx, getRequest{Seq: max(seq, 1), Next: b.names.all()})
	if first = s.seq; err != nil || !found || b.skip(s.seq) == s.seq && s.bad == nil {
		return s, first, found, err
	}
	found = false
	err = b.read(ctx, b.names.all(), s.seq, maxSeq, 1, func(messages []stored) (int, error) {
		for _, m := range messages {
			if m.bad == nil {
				s, found = m, true
				return 0, nil
			}
			b.strays.report(b, m.seq, m.bad)
		}
		return 1, nil
	})
	return s, first, found, err
}

// retry sends a request until it gets a response or the deadline ends: a request may be
// lost with its connection, or the stream may have no leader for a while.
func (b *Backend) retry(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	var lastErr error // more useful than a deadline error
	for {
		once, done := context.WithTimeout(ctx, b.opts.Timeout/attempts)
		err := request(once)
		done()
		if err == nil || !b.retryable(err) {
			return err
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			lastErr = err
		}
		if ctx.Err() != nil {
			return cmp.Or(lastErr, err)
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

// retryable reports whether the next attempt may succeed.
func (b *Backend) retryable(err error) bool {
	var broken net.Error
	// the request was in flight when the connection was lost
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
	return hasCode(err, clusterNotAvailable, clusterNotLeader, duplicateUnderway, batchIncomplete, tooManyBatches)
}

// Error codes of the server.
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
