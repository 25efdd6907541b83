package natschain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
)

const (
	noEnd      = math.MaxUint64 // past every message
	batchBytes = 4 << 20        // that come at once, of messages that may be larger than blocks are
)

// read passes the messages of a subject, from one place in the stream to short of
// another, to take, which returns how many more it wants. It asks for more of them
// at once as long as none are of use. Messages that are known to be no blocks are
// passed over. Any server that keeps the stream may answer, and one may be behind
// the leader: an answer is complete only if it reaches to the end, is as long as
// was asked for, or the leader has no more.
func (b *Backend) read(
	ctx context.Context, subject string, from, end uint64, want int, take func([]stored) (int, error),
) error {
	for most := 1; ; {
		if subject == b.names.all() {
			from = b.skip(from)
		}
		if from >= end || want <= 0 {
			return nil
		}
		n := max(want, most)
		if subject == b.names.all() {
			n = int(min(uint64(n), end-from))
		}
		some, _, err := b.batch(ctx, subject, from, n)
		if err != nil {
			return err
		}
		full := len(some) == n
		for i := range some {
			if some[i].seq >= end {
				some, end = some[:i], 0
				break
			}
			from = some[i].seq + 1
		}
		wanted := want
		if want, err = take(some); err != nil {
			return err
		}
		if most = 1; want >= wanted {
			most = min(2*n, chaingql.MaxPage)
		}
		if full || end == 0 {
			continue
		}
		newest, any, err := b.newest(ctx, subject)
		if err != nil {
			return err
		}
		if !any || newest.seq < from {
			return nil
		}
		if len(some) == 0 {
			pause(ctx, pauseBetween) // it lags
		}
		if err := ctx.Err(); err != nil {
			return failed("read blocks", err)
		}
	}
}

// chain returns the blocks from one place in the stream to short of another, the
// lowest ones if there are more than most. They follow the place at, if that is
// given. Else they begin with the first that is known to be a block, or that
// another names, and there are none if no two of them belong together.
func (b *Backend) chain(ctx context.Context, at *place, from, end uint64, most int) ([]stored, error) {
	var (
		l     *links
		early []stored // whose predecessor is not known
		got   []stored
		want  = most + 1 // the next one confirms the first
	)
	if at != nil {
		l, want = &links{b: b, at: *at, seen: from - 1}, most
	}
	add := func(messages []stored) error {
		for _, s := range messages {
			if s.seq <= l.seen { // before the chain's beginning, or that of what was read
				if s.bad != nil {
					b.strays.found(b, s.seq, s.bad)
				}
				continue
			}
			blocks, err := l.add(s)
			if errors.Is(err, errForked) || errors.Is(err, errMissing) && l.doubt {
				if err = b.doubted(ctx, l); err != nil {
					return err
				}
			}
			if err != nil {
				return err
			}
			if s.seq >= from {
				got = append(got, blocks...)
			}
		}
		return nil
	}
	err := b.read(ctx, b.names.all(), from, end, want, func(messages []stored) (int, error) {
		if l == nil {
			if early = append(early, messages...); len(early) == 0 {
				return window, nil
			}
			if i, _ := b.start(early); i < 0 {
				early = early[max(0, len(early)-surveyed):]
				return window, nil
			}
			var err error
			if early, err = b.more(ctx, early); err != nil {
				return 0, err
			}
			if l, err = b.linksAt(ctx, early); err != nil {
				return 0, err
			}
			messages = early
		}
		err := add(messages)
		return most - len(got), err
	})
	if l == nil && err == nil && len(early) > 0 {
		var oldest stored
		if oldest, _, err = b.block(ctx, wanted{Seq: 1, Next: b.names.all()}); err == nil && oldest.seq == early[0].seq {
			if l, err = b.linksAt(ctx, early); err == nil { // the chain may have one block alone
				err = add(early)
			}
		}
	}
	if err == nil && l != nil && l.doubt && l.gap && len(got) < most {
		err = b.unbroken(ctx, *l)
	}
	switch {
	case errors.Is(err, errMissing):
		return nil, failed("read blocks", b.missing(ctx, l.at))
	case errors.Is(err, errForked): // the whole chain expired, and its next block names none before it
		l.at.linked = false
		rest, err := b.chain(ctx, &l.at, l.at.seq+1, end, most-len(got))
		return append(got, rest...), err
	case err != nil:
		return nil, err
	}
	return got[:min(len(got), most)], nil
}

// window is how many messages are read to find two that belong together.
const window = 256

// more reads messages before some whose predecessor is not known, until it is
// sure which of them are blocks, or there are no more, or they are many.
func (b *Backend) more(ctx context.Context, messages []stored) ([]stored, error) {
	for span := uint64(window); ; span *= 4 {
		if _, sure := b.start(messages); sure || messages[0].seq == 1 || len(messages) >= surveyed {
			return messages, nil
		}
		to := messages[0].seq
		before, err := b.between(ctx, to-min(to-1, span), to)
		if err != nil {
			return nil, err
		}
		if len(before) == 0 && span > surveyed || to <= span+1 {
			return append(before, messages...), nil
		}
		messages = append(before, messages...)
	}
}

// some returns the blocks of a subject that is not all of them, as chain does. It
// sees one message of many, so those before it are looked at only if its cursor
// is out of order, and for the last.
func (b *Backend) some(ctx context.Context, subject string, from, end uint64, most int) ([]stored, error) {
	var got []stored
	drop := func() error { // the newest, unless it is a block
		is, err := b.linked(ctx, got[len(got)-1])
		if err == nil && !is {
			got = got[:len(got)-1]
		}
		return err
	}
	err := b.read(ctx, subject, from, end, most, func(messages []stored) (int, error) {
		for _, s := range messages {
			if s.bad != nil {
				b.strays.found(b, s.seq, s.bad)
				continue
			}
			if n := len(got); n > 0 && suspect(&got[n-1], &s) {
				if err := drop(); err != nil {
					return 0, err
				}
				got = append(got, s)
				if err := drop(); err != nil {
					return 0, err
				}
				continue
			}
			got = append(got, s)
		}
		if len(got) >= most {
			if err := drop(); err != nil {
				return 0, err
			}
		}
		return most - len(got), nil
	})
	if err == nil && len(got) > 0 && len(got) < most {
		err = drop()
	}
	return got[:min(len(got), most)], err
}

// count is about how many blocks of a subject there are from a place on.
func (b *Backend) count(ctx context.Context, subject string, from uint64) (int, error) {
	_, n, err := b.batch(ctx, subject, from, 1)
	return n, err
}

// batch asks any server for up to n messages from a place in the stream on, and
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
		got = append(got, b.names.decode(last, m.Header.Get("Nats-Subject"), m.Data))
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
