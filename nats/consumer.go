package natschain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	heartbeat   = time.Second      // interval of an idle consumer's heartbeats; two missed ones count as a failure
	prefetch    = 1000             // maximum number of messages in flight
	consumerTTL = 30 * time.Second // the server deletes a consumer that is not read for this long

	sizeExceeded = "Message Size Exceeds MaxBytes" // the description in the response that ends a pull request early
)

// A consumer reads the messages of the block stream in order, as the server stores them. It sends its own pull
// requests: nats.go takes an empty message that was published with a header Status for a response of the server.
type consumer struct {
	b       *Backend
	name    string
	sub     *nats.Subscription
	answers chan *nats.Msg
	left    int         // number of messages that the current pull request may still deliver
	room    int         // their maximum size
	silence *time.Timer // fires if heartbeats are missing
}

var (
	errEnded  = errors.New("the server ended the consumer")
	errSilent = errors.New("the consumer sent no heartbeat")
)

// A pull is the payload of a request for the next messages of a consumer.
type pull struct {
	Expires   time.Duration `json:"expires"`
	Batch     int           `json:"batch"`
	Bytes     int           `json:"max_bytes,omitempty"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// consume creates a consumer that begins at the sequence number from. The caller must call stop.
func (b *Backend) consume(ctx context.Context, from uint64) (*consumer, error) {
	c := &consumer{b: b, silence: time.NewTimer(2 * heartbeat)}
	err := b.retry(ctx, func(ctx context.Context) error {
		created, err := b.js.CreateConsumer(ctx, b.names.stream, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
			AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: consumerTTL, MemoryStorage: true, Replicas: 1,
		})
		if err == nil {
			c.name = created.CachedInfo().Name
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	// There is room for all messages of a pull request, its heartbeats and the response that ends it.
	c.answers = make(chan *nats.Msg, prefetch+int(consumerTTL/heartbeat)+8)
	if c.sub, err = b.nc.ChanSubscribe(b.nc.NewInbox(), c.answers); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// stop deletes the consumer and does not wait for the response. If the connection breaks, the server deletes the
// consumer after consumerTTL.
func (c *consumer) stop() {
	c.silence.Stop()
	if c.sub != nil {
		_ = c.sub.Unsubscribe()
	}
	_ = c.b.nc.Publish("$JS.API.CONSUMER.DELETE."+c.b.names.stream+"."+c.name, nil)
}

// next returns the next message of the stream.
func (c *consumer) next(ctx context.Context) (stored, error) {
	for {
		if c.left == 0 || c.room == 0 { // the server ends a request without a response if its messages fill the room
			if err := c.pull(prefetch, batchBytes); err != nil {
				return stored{}, err
			}
		}
		var m *nats.Msg
		c.silence.Reset(2 * heartbeat)
		select {
		case m = <-c.answers:
		case <-c.silence.C:
			return stored{}, errSilent
		case <-ctx.Done():
			return stored{}, ctx.Err()
		}
		if m == nil {
			return stored{}, nats.ErrConnectionClosed
		}
		// The server sets the reply subject of each message of the stream, which contains the sequence number.
		if meta, err := m.Metadata(); err == nil {
			c.left--
			c.room -= m.Size()
			s := c.b.names.decode(meta.Sequence.Stream, m.Subject, m.Data)
			s.received = meta.Timestamp
			return s, nil
		}
		status, description := m.Header.Get("Status"), m.Header.Get("Description")
		switch pending := m.Header.Get("Nats-Pending-Messages"); {
		case status == "100", pending == "0": // a heartbeat, or the end of a request that delivered all its messages
		case pending != "" && status == "408": // the request expired
			c.left = 0
		case description == sizeExceeded:
			if err := c.pull(1, 0); err != nil { // the next message may be larger than batchBytes
				return stored{}, err
			}
		default:
			return stored{}, fmt.Errorf("%w: status %s %s", errEnded, status, description)
		}
	}
}

// pull requests the next n messages, but not more than fit into size bytes. If size is 0, their size is not limited.
func (c *consumer) pull(n, size int) error {
	ask, err := json.Marshal(pull{consumerTTL, n, size, heartbeat})
	if err == nil {
		err = c.b.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+c.b.names.stream+"."+c.name, c.sub.Subject, ask)
	}
	c.left, c.room = n, cmp.Or(size, math.MaxInt)
	return err
}
