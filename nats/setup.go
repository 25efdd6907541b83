package natschain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// oldestServer is the oldest supported NATS version. NATS 2.11 has no atomic batches.
var oldestServer = [2]int{2, 12}

// prepare checks the server, the streams and the permissions, so that Open and not the
// first query reports a problem. If Options.Create is set, it also creates missing streams.
func (b *Backend) prepare(ctx context.Context) error {
	version := b.nc.ConnectedServerVersion()
	if older(version, oldestServer) {
		return fmt.Errorf("natschain: the server is NATS %s, which is too old: %d.%d or newer is needed", version,
			oldestServer[0], oldestServer[1])
	}
	blocks, err := b.prepareStream(ctx)
	if err != nil {
		return err
	}
	if err := b.prepareBucket(ctx); err != nil {
		return err
	}
	b.prepareIndex(ctx)
	if err := b.checkReads(ctx, blocks.State.LastSeq); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	_, _, _, err = b.tail(ctx) // surveys the newest messages; if this fails, the first page surveys them
	b.opened.Store(err == nil)
	return nil
}

func older(version string, than [2]int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false // a development build without a version number
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return false
	}
	minor, err := strconv.Atoi(parts[1])
	return err == nil && (major < than[0] || major == than[0] && minor < than[1])
}

// prepared returns the state of a stream. If the stream does not exist and Options.Create is set, prepared calls create
// first. what names the stream or bucket in errors.
func (b *Backend) prepared(
	ctx context.Context, stream, what string, create func(context.Context) error,
) (*jetstream.StreamInfo, error) {
	info, err := b.info(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) && b.opts.Create != nil {
		since := b.nc.LastError()
		if err := b.retry(ctx, create); err != nil {
			return nil, failed("create "+what, b.permissionError(since, err))
		}
		info, err = b.info(ctx, stream)
	}
	return info, lookupError(what, err)
}

func (b *Backend) prepareStream(ctx context.Context) (*jetstream.StreamInfo, error) {
	name := b.names.stream
	info, err := b.prepared(ctx, name, fmt.Sprintf("the stream %q", name), func(ctx context.Context) error {
		_, err := b.js.CreateStream(ctx, b.streamConfig())
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // created concurrently by another process
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := b.checkStream(info); err != nil {
		return nil, err
	}
	epoch := epochOf(info.Created, info.Config.Metadata)
	b.epoch.Store(&epoch)
	if info.State.NumDeleted > 0 {
		if err := b.checkGaps(ctx, info.State.NumDeleted); err != nil {
			return nil, err
		}
	}
	if b.opts.Create != nil && (!info.Config.AllowAtomicPublish || info.Config.Metadata[epochKey] != epoch) {
		b.upgrade(ctx, info.Config, epoch)
	}
	return info, nil
}

// maxGapChecks is the maximum number of stream gaps that Open checks. Reads check every
// gap that they reach.
const maxGapChecks = 1000

// checkGaps returns an error if blocks were deleted from the middle of the stream. Gaps left by deleted stray messages
// are allowed: the predecessor of the block after such a gap is the block before the gap.
func (b *Backend) checkGaps(ctx context.Context, deleted int) error {
	var holes []uint64
	since := b.nc.LastError()
	err := b.retry(ctx, func(ctx context.Context) error {
		s, err := b.js.Stream(ctx, b.names.stream)
		if err != nil {
			return err
		}
		info, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
		if err == nil {
			holes = info.State.Deleted
		}
		return err
	})
	if err != nil {
		return failed("list the deleted messages of the stream", b.permissionError(since, err))
	}
	checked, through := 0, uint64(0)
	for _, seq := range holes {
		if seq <= through {
			continue
		}
		if checked++; checked > maxGapChecks {
			return nil
		}
		const around = 64
		through = seq + around
		if _, err := b.chain(ctx, nil, seq-min(seq-1, around), through+1, 2*around+1); err != nil {
			return fmt.Errorf("natschain: the stream %q is not suitable: it has gaps (deleted messages: %d): %w",
				b.names.stream, deleted, err)
		}
	}
	return nil
}

// upgrade adds the epoch to the metadata of a new stream, or of one that was created by an
// earlier version of this package or by another program, and enables atomic batches on it.
// If that fails, it only logs a warning, because a Writer works without batches too, but
// more slowly. A stream is created without the epoch so that several processes may do so at
// the same time: a cluster then requires that they send the same configuration.
func (b *Backend) upgrade(ctx context.Context, c jetstream.StreamConfig, epoch string) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout/attempts)
	defer cancel()
	c.AllowAtomicPublish = true
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	c.Metadata[epochKey] = epoch
	since := b.nc.LastError()
	if _, err := b.js.UpdateStream(ctx, c); err != nil {
		b.opts.Logger.WarnContext(ctx, "updating the stream failed: "+
			"blocks may be appended one by one, and the epoch may change without a new stream",
			slog.String("stream", c.Name), slog.Any("error", b.permissionError(since, err)))
	}
}

func (b *Backend) streamConfig() jetstream.StreamConfig {
	s := b.opts.Create
	return jetstream.StreamConfig{
		Name: b.names.stream, Subjects: []string{b.names.subject + ">"}, Description: "blocks, by chaingql",
		Replicas: s.Replicas, MaxBytes: s.MaxBytes, MaxAge: s.MaxAge, Duplicates: s.Duplicates, Storage: s.storage(),
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld, AllowDirect: true, AllowAtomicPublish: true,
	}
}

func (s *Storage) storage() jetstream.StorageType {
	if s.Memory {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// checkStream returns an error if the stream's settings could lose blocks or prevent reads.
func (b *Backend) checkStream(info *jetstream.StreamInfo) error {
	c := &info.Config
	wrong := ""
	switch {
	case c.Retention != jetstream.LimitsPolicy:
		wrong = fmt.Sprintf("its retention policy is %v, which deletes blocks after they were read: "+
			"set retention to limits", c.Retention)
	case !c.AllowDirect:
		wrong = "it does not allow direct gets: set allow_direct to true"
	case c.MaxMsgsPerSubject > 0:
		wrong = "it limits the number of messages per subject, which leaves gaps: " +
			"set max_msgs_per_subject to -1"
	case c.AllowMsgTTL:
		wrong = "it lets individual messages expire, which leaves gaps: set allow_msg_ttl to false"
	case c.AllowRollup:
		wrong = "it lets one message remove all earlier ones: set allow_rollup_hdrs to false"
	default:
		return nil
	}
	return fmt.Errorf("natschain: the stream %q is not suitable: %s", b.names.stream, wrong)
}

func (b *Backend) prepareBucket(ctx context.Context) error {
	what := fmt.Sprintf("the key-value bucket %q", b.names.bucket)
	info, err := b.prepared(ctx, b.names.balances, what, func(ctx context.Context) error {
		_, err := b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: b.names.bucket, Description: "balances, by chaingql",
			Replicas: b.opts.Create.Replicas, Storage: b.opts.Create.storage(),
		})
		if errors.Is(err, jetstream.ErrBucketExists) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return b.checkBucket(info)
}

// checkBucket returns an error if the bucket's settings could lose balances. Queries would
// then report that existing accounts do not exist.
func (b *Backend) checkBucket(info *jetstream.StreamInfo) error {
	c := &info.Config
	wrong := ""
	switch {
	case c.MaxAge > 0:
		wrong = fmt.Sprintf("its values expire after %v: set max_age (ttl) to 0", c.MaxAge)
	case c.Discard == jetstream.DiscardOld && (c.MaxBytes > 0 || c.MaxMsgs > 0):
		wrong = "it drops the oldest values when it is full: set discard to new"
	default:
		return nil
	}
	return fmt.Errorf("natschain: the key-value bucket %q is not suitable: %s", b.names.bucket, wrong)
}

// lookupError returns an error that explains why the state of a stream or bucket could not
// be read. what names the stream or bucket.
func lookupError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("natschain: %s does not exist: set Options.Create to create it", what)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return failed("JetStream is not enabled on the server, or not for this account", err)
	}
	return failed("read the state of "+what, err)
}

// checkReads sends one request of each kind that Blocks, Balance and Follow send. It
// returns an error if a permission for such a request is missing.
func (b *Backend) checkReads(ctx context.Context, last uint64) error {
	unknown := b.names.balanceSubject(&chaingql.Address{})
	for _, try := range []struct {
		what string
		do   func() error
	}{
		{"read the stream", func() error { _, _, err := b.newest(ctx, b.names.all()); return err }},
		{"read the stream in batches",
			func() error { _, _, err := b.batch(ctx, b.names.all(), max(last, 1), 1); return err }},
		{"read the bucket", func() error {
			_, _, err := b.get(ctx, b.names.balances, getRequest{Last: unknown})
			return err
		}},
		{"create a consumer of the stream", func() error {
			c, err := b.consume(ctx, last+1)
			if err == nil {
				c.stop()
			}
			return err
		}},
	} {
		since := b.nc.LastError()
		if err := try.do(); err != nil {
			return &failure{"cannot " + try.what, b.permissionError(since, err)}
		}
	}
	return nil
}
