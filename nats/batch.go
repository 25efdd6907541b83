package natschain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/nats-io/nats.go"
)

const (
	noEnd      = math.MaxUint64 // past every message
	batchBytes = 4 << 20        // that come at once, of messages that may be larger than blocks are
)

// read returns the blocks of a subject from one place in the stream to short of
// another, the lowest ones where there are more than most. Any server that keeps
// the stream may answer, and one may be behind the leader: what comes is taken
// for all there is only where it reaches to the end, is as much as was asked for,
// or the leader has no more.
func (b *Backend) read(ctx context.Context, subject string, from, end uint64, most int) ([]stored, error) {
	var got []stored
	for from < end && len(got) < most {
		n := most - len(got)
		if subject == b.names.all() {
			n = int(min(uint64(n), end-from))
		}
		some, _, err := b.batch(ctx, subject, from, n)
		if err != nil {
			return nil, err
		}
		for _, s := range some {
			if s.seq >= end {
				return got, nil
			}
			got, from = append(got, s), s.seq+1
		}
		if len(some) == n {
			continue
		}
		newest, any, err := b.newest(ctx, subject)
		if err != nil {
			return nil, err
		}
		if !any || newest.seq < from {
			return got, nil
		}
		if len(some) == 0 {
			pause(ctx, pauseBetween) // it lags
		}
		if err := ctx.Err(); err != nil {
			return nil, failed("read blocks", err)
		}
	}
	return got, nil
}

// count is about how many blocks of a subject there are from a place on.
func (b *Backend) count(ctx context.Context, subject string, from uint64) (int, error) {
	_, n, err := b.batch(ctx, subject, from, 1)
	return n, err
}

// batch asks any server for up to n blocks from a place in the stream on, and
// how many it has of them in all.
func (b *Backend) batch(ctx context.Context, subject string, from uint64, n int) (got []stored, all int, err error) {
	ask, err := json.Marshal(wanted{Seq: max(from, 1), Next: subject, Batch: n, Bytes: batchBytes})
	if err != nil {
		return nil, 0, err
	}
	err = b.try(ctx, func(ctx context.Context) error {
		got, all, err = b.batchOnce(ctx, ask, n)
		return err
	})
	if err != nil {
		return nil, 0, failed("read blocks", err)
	}
	return got, all, nil
}

var errTorn = errors.New("a part of the answer is missing")

func (b *Backend) batchOnce(ctx context.Context, ask []byte, n int) (got []stored, all int, err error) {
	inbox, answers := b.nc.NewInbox(), make(chan *nats.Msg, n+1) // nats.go's own would be 512 kB each
	sub, err := b.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	lost := b.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED) // what is under way then will not come
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
		switch status := m.Header.Get("Status"); status {
		case "": // a block
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
			return nil, 0, fmt.Errorf("the server said %s %s", status, m.Header.Get("Description"))
		}
		if before(m) != last {
			return nil, 0, errTorn
		}
		if last, err = number(m, "Nats-Sequence"); err != nil {
			return nil, 0, err
		}
		s, err := b.names.decode(last, m.Header.Get("Nats-Subject"), m.Data)
		if err != nil {
			return nil, 0, err
		}
		got = append(got, s)
	}
}

// before is the message of the batch that came before this one, 0 for the first.
func before(m *nats.Msg) uint64 {
	n, err := number(m, "Nats-Last-Sequence")
	if err != nil {
		return noEnd
	}
	return n
}

func number(m *nats.Msg, header string) (uint64, error) {
	n, err := strconv.ParseUint(m.Header.Get(header), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the server's %s makes no sense: %w", header, err)
	}
	return n, nil
}
