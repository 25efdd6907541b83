package natschain

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go/jetstream"
)

// errNewStream is returned by calls that began before the block stream was deleted and created again.
var errNewStream = fmt.Errorf("the stream was deleted and created again: %w", chaingql.ErrChainReplaced)

// epochKey is the key of the epoch in the metadata of the block stream. The epoch is the time at which the stream was
// created, in nanoseconds, as the servers reported it at first. They may change that time when they restore the stream,
// or when they are restarted after the stream was edited or encrypted.
const epochKey = "chaingql_epoch"

// Epoch returns the creation time of the block stream in nanoseconds, as [chaingql.Epocher] specifies. The stream's
// metadata contains it, so a restored stream keeps its epoch. Epoch changes after the first call of Blocks or Follow,
// or the first lookup, that notices a new stream.
func (b *Backend) Epoch() string { return *b.epoch.Load() }

// epochOf returns the epoch in the metadata of a stream. If they have none, as those of earlier versions of this
// package, it returns the creation time that the server reports.
func epochOf(created time.Time, metadata map[string]string) string {
	epoch, err := strconv.ParseInt(metadata[epochKey], 10, 64)
	if err != nil {
		epoch = created.UnixNano()
	}
	return strconv.FormatInt(epoch, 10)
}

// checkEpoch returns errNewStream if the block stream is not the one with the given epoch. Messages that were read
// before the call are then from another stream. Later calls read the new stream.
func (b *Backend) checkEpoch(ctx context.Context, epoch *string) error {
	_, err := b.rangeOfStream(ctx, epoch)
	return err
}

// rangeOfStream returns the range of the messages in the block stream, as state does. If the block stream is not the
// one with the given epoch, rangeOfStream returns errNewStream.
func (b *Backend) rangeOfStream(ctx context.Context, epoch *string) (seqRange, error) {
	now, whole, err := b.state(ctx)
	switch {
	case err != nil:
		return seqRange{}, err
	case now == *epoch:
		return whole, nil
	}
	if b.epoch.CompareAndSwap(epoch, &now) {
		b.reset()
	}
	return seqRange{}, failed("compare the epochs", errNewStream)
}

// state requests the epoch of the block stream, and the range of its messages: from the oldest one to the newest one
// that it ever had, even if that message was removed.
func (b *Backend) state(ctx context.Context) (epoch string, whole seqRange, err error) {
	type response struct {
		Error   *jetstream.APIError `json:"error"`
		Created time.Time           `json:"created"`
		Config  struct {
			Metadata map[string]string `json:"metadata"`
		} `json:"config"`
		State struct {
			FirstSeq uint64 `json:"first_seq"`
			LastSeq  uint64 `json:"last_seq"`
		} `json:"state"`
	}
	var info response
	since := b.nc.LastError()
	err = b.retry(ctx, func(ctx context.Context) error {
		info = response{}
		answer, err := b.nc.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+b.names.stream, nil)
		if err == nil {
			err = json.Unmarshal(answer.Data, &info)
		}
		if err == nil && info.Error != nil {
			err = info.Error
		}
		return err
	})
	if err != nil {
		return "", seqRange{}, failed("read the state of the stream", b.permissionError(since, err))
	}
	return epochOf(info.Created, info.Config.Metadata), seqRange{info.State.FirstSeq, info.State.LastSeq + 1}, nil
}
