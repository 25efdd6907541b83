package natschain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A getRequest is the payload of a request for messages of a stream.
type getRequest struct {
	Seq    uint64 `json:"seq,omitempty"`
	Next   string `json:"next_by_subj,omitempty"` // requests the first message with this subject, from Seq on
	Last   string `json:"last_by_subj,omitempty"` // requests the last message with this subject
	Batch  int    `json:"batch,omitempty"`        // maximum number of messages
	Bytes  int    `json:"max_bytes,omitempty"`    // maximum size of a batch with several messages
	NoHead bool   `json:"no_hdr,omitempty"`       // omits the headers
}

// A getResponse contains the requested message or an error from the server.
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

// get requests one message from the stream's leader. It does not ask other replicas, because
// they may not have the message yet, or may still have it after it was removed.
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

// block requests one message of the block stream and decodes it.
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

// newest returns the newest message in the block stream with the given subject.
func (b *Backend) newest(ctx context.Context, subject string) (stored, bool, error) {
	return b.block(ctx, getRequest{Last: subject})
}

// messageFrom returns the first message from the sequence number seq on that can be decoded.
// It also returns the sequence number of the first message from seq on, whether or not that
// message can be decoded. Known strays are skipped without a request. Other messages that
// cannot be decoded are read in batches.
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

// batch requests the first messages of a subject whose sequence numbers are at least from:
// up to n of them, from any replica. It also returns the total number of such messages that
// the replica has, or unknown if only mirrors of the stream respond.
func (b *Backend) batch(ctx context.Context, subject string, from uint64, n int) (got []stored, all int, err error) {
	ask, err := json.Marshal(getRequest{Seq: max(from, 1), Next: subject, Batch: n, Bytes: batchBytes})
	if err != nil {
		return nil, 0, err
	}
	err = b.retry(ctx, func(ctx context.Context) error {
		err = errMirror
		for i := 0; i < mirrorAttempts && errors.Is(err, errMirror); i++ {
			got, all, err = b.batchOnce(ctx, ask, n)
		}
		return err
	})
	if errors.Is(err, errMirror) {
		all = unknown
		got, err = b.batchFromLeader(ctx, subject, from, n)
	}
	if err != nil {
		return nil, 0, failed("read blocks", err)
	}
	return got, all, nil
}

var errTorn = errors.New("the server's response is incomplete")

func (b *Backend) batchOnce(ctx context.Context, ask []byte, n int) (got []stored, all int, err error) {
	inbox, answers := b.nc.NewInbox(), make(chan *nats.Msg, n+1) // a channel of nats.go would take 512 kB
	sub, err := b.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	lost := b.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED) // after that, the rest of a response is lost
	defer b.nc.RemoveStatusListener(lost)
	if err := b.nc.PublishRequest("$JS.API.DIRECT.GET."+b.names.stream, inbox, ask); err != nil {
		return nil, 0, err
	}
	var last uint64
	for {
		var m *nats.Msg
		select {
		case m = <-answers:
		case <-lost:
			return nil, 0, nats.ErrConnectionClosed
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
		if m == nil {
			return nil, 0, nats.ErrConnectionClosed
		}
		status := m.Header.Get("Status")
		if stream := added(m, "Nats-Stream"); stream == b.names.stream {
			status = "" // a message of the stream, which may have been published with any header
		} else if stream != "" {
			b.reportMirror(stream)
			return nil, 0, errMirror
		}
		switch status {
		case "":
		case "404":
			return nil, 0, nil
		case "503":
			return nil, 0, nats.ErrNoResponders
		case "204":
			rest, err := number(m, "Nats-Num-Pending")
			if err == nil && before(m) != last {
				err = errTorn
			}
			return got, len(got) + int(rest), err
		default:
			return nil, 0, fmt.Errorf("the server responded with status %s %s", status, m.Header.Get("Description"))
		}
		if before(m) != last {
			return nil, 0, errTorn
		}
		if last, err = number(m, "Nats-Sequence"); err != nil {
			return nil, 0, err
		}
		b.pages.received(m.Size())
		s := b.names.decode(last, added(m, "Nats-Subject"), m.Data)
		if s.received, err = time.Parse(time.RFC3339Nano, added(m, "Nats-Time-Stamp")); err != nil {
			return nil, 0, fmt.Errorf("invalid header Nats-Time-Stamp: %w", err)
		}
		got = append(got, s)
	}
}

// before returns the sequence number of the message before m in the batch, or 0 if m is
// the first one.
func before(m *nats.Msg) uint64 {
	n, err := number(m, "Nats-Last-Sequence")
	if err != nil {
		return maxSeq
	}
	return n
}

func number(m *nats.Msg, header string) (uint64, error) {
	n, err := strconv.ParseUint(added(m, header), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("invalid header %s: %w", header, err)
	}
	return n, nil
}

// added returns the value of a header that the server added to m. If m was published with a header of that name, the
// server's value is the last one.
func added(m *nats.Msg, header string) string {
	values := m.Header.Values(header)
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// retry calls request until it succeeds, fails with an error that is not retryable, or
// Options.Timeout has passed. It is needed because a request may be lost with its
// connection, and because the stream may have no leader for a while. The pauses between
// attempts are random and grow, because many calls of many hosts may fail at once.
func (b *Backend) retry(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	var lastErr error // returned instead of a deadline error, because it is more useful
	for wait := pauseBetween; ; wait = min(2*wait, maxPause) {
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
		pause(ctx, wait/2+rand.N(wait))
	}
}

const (
	pauseBetween = 20 * time.Millisecond
	maxPause     = 10 * pauseBetween
)

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// retryable reports whether another attempt may succeed after err.
func (b *Backend) retryable(err error) bool {
	var broken net.Error
	// The request was in flight when the connection was lost.
	if errors.Is(err, nats.ErrConnectionClosed) || errors.As(err, &broken) {
		return !b.nc.IsClosed()
	}
	return isAny(err, context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected,
		nats.ErrReconnectBufExceeded, jetstream.ErrNoStreamResponse, jetstream.ErrAsyncPublishTimeout,
		jetstream.ErrTooManyStalledMsgs, errTorn) ||
		hasCode(err, clusterNotAvailable, clusterNotLeader, duplicateUnderway)
}

// These are error codes in the server's responses.
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
