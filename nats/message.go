package natschain

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/chaingql/chaingql"
)

// A message is the JSON payload of a message in the block stream. It describes one block,
// except for its workchain and shard, which are in the subject of the message:
// <chain>.blocks.<workchain>.<shard in 16 hex digits>.
type message struct {
	Cursor chaingql.Cursor `json:"cursor"`
	// Prev is the cursor of the previous block, or "" in the first block of the chain. If
	// older blocks were removed, the Prev of the oldest block shows which cursors are still
	// valid. If Prev is missing, every cursor below the oldest block counts as too old.
	Prev  *chaingql.Cursor `json:"prev,omitempty"`
	SeqNo uint32           `json:"seq_no"`
	Hash  string           `json:"hash"`
	Time  time.Time        `json:"time"`
	// Epoch is the epoch of the stream for which the message was published, or the epoch of the
	// previous block if that is higher. It is 0 if the message was published by another program.
	Epoch int64 `json:"epoch,omitempty,string"`
}

// A stored value describes a message of the block stream and the block that was decoded from
// the message.
type stored struct {
	seq   uint64
	prev  *chaingql.Cursor // nil if the message does not contain a prev
	epoch int64            // 0 if the message does not contain an epoch
	block chaingql.Block

	subject  string
	bad      error     // reason why the message cannot be a block, nil if it may be one
	received time.Time // when the server received the message; zero for blocks of this Backend's own Writers
}

// same reports whether now, the message with the same sequence number, is still the message s. After a restore from a
// backup, it may be an equal message that was stored again, after other messages than before.
func (s *stored) same(now *stored) bool {
	if s.received.IsZero() {
		return now.block.Cursor == s.block.Cursor && now.block.Hash == s.block.Hash
	}
	return now.received.Equal(s.received)
}

// follows reports whether c is the cursor of the message's predecessor.
func (s *stored) follows(c chaingql.Cursor) bool { return s.prev != nil && *s.prev == c }

// isOlder reports whether the message was published for a stream that was replaced before a block with the given epoch
// was published. Such a message was on its way while the stream was replaced.
func (s *stored) isOlder(epoch int64) bool { return s.epoch != 0 && s.epoch < epoch }

// names contains the names of a chain's streams, subjects and bucket.
type names struct {
	stream       string // the block stream
	subject      string // prefix of block subjects, before the workchain and the shard
	bucket       string // the bucket of balances
	balances     string // the stream that stores the bucket
	index        string // the index stream
	indexSubject string // prefix of index subjects, before the epoch, the level and the number
}

func namesOf(chain string) names {
	bucket := chain + "_balances"
	return names{
		stream: chain + "_blocks", subject: chain + ".blocks.", bucket: bucket, balances: "KV_" + bucket,
		index: chain + "_index", indexSubject: chain + ".index.",
	}
}

// all returns the subject filter that matches every message. Reads with this filter are
// faster, because the server then compares no subjects.
func (n names) all() string { return ">" }

func (n names) blockSubject(b *chaingql.Block) string {
	return n.subject + shardName(b)
}

func shardName(b *chaingql.Block) string { return fmt.Sprintf("%d.%016x", b.Workchain, b.Shard) }

// filter returns the subject filter that matches the blocks that q selects.
func (n names) filter(q chaingql.BlocksQuery) string {
	if q.Workchain == nil && q.Shard == nil {
		return n.all()
	}
	workchain, shard := "*", "*"
	if q.Workchain != nil {
		workchain = strconv.Itoa(int(*q.Workchain))
	}
	if q.Shard != nil {
		shard = fmt.Sprintf("%016x", *q.Shard)
	}
	return n.subject + workchain + "." + shard
}

// balanceSubject returns the subject of an account's balance.
func (n names) balanceSubject(a *chaingql.Address) string {
	return "$KV." + n.bucket + "." + strconv.Itoa(int(a.Workchain)) + "_" + hex.EncodeToString(a.ID[:])
}

func encode(b *chaingql.Block, prev *chaingql.Cursor, epoch int64) ([]byte, error) {
	return json.Marshal(message{
		Cursor: b.Cursor, Prev: prev, SeqNo: b.SeqNo, Hash: b.Hash.String(), Time: b.Time.UTC(), Epoch: epoch,
	})
}

// maxPayload is the maximum size of a message in bytes. Messages of a [Writer] have less than 500. Messages of other
// programs may contain more fields.
const maxPayload = 16 << 10

var errSubject = errors.New("the subject does not end in a workchain and a shard")

// decode decodes a message as a block. If the message is not a block, decode records the
// reason in the field bad of the result.
func (n names) decode(seq uint64, subject string, payload []byte) stored {
	s, err := n.parse(seq, subject, payload)
	if err != nil {
		return stored{seq: seq, subject: subject, bad: err}
	}
	s.subject = subject
	return s
}

func (n names) parse(seq uint64, subject string, payload []byte) (stored, error) {
	if len(payload) > maxPayload {
		return stored{}, fmt.Errorf("the message has %d bytes, which is more than %d", len(payload), maxPayload)
	}
	var m message
	if err := json.Unmarshal(payload, &m); err != nil {
		// err may quote the complete payload.
		return stored{}, fmt.Errorf("the message is not a block in JSON: error %.120q", err.Error())
	}
	s := stored{seq: seq, prev: m.Prev, epoch: m.Epoch,
		block: chaingql.Block{SeqNo: m.SeqNo, Time: m.Time.UTC(), Cursor: m.Cursor}}
	if m.Cursor == "" || checkCursor(m.Cursor) != nil {
		return stored{}, fmt.Errorf("the cursor %.80q is malformed", m.Cursor)
	}
	if m.Prev != nil && checkCursor(*m.Prev) != nil {
		return stored{}, fmt.Errorf("the prev %.80q is malformed", *m.Prev)
	}
	if y := s.block.Time.Year(); y < 0 || y > 9999 { // the index could not list the block
		return stored{}, fmt.Errorf("the time %v is not representable in UTC", m.Time)
	}
	if hash, err := hex.DecodeString(m.Hash); err != nil || len(hash) != len(s.block.Hash) {
		return stored{}, fmt.Errorf("the hash %.80q does not have 64 hex digits", m.Hash)
	} else {
		copy(s.block.Hash[:], hash)
	}
	shard, ok := strings.CutPrefix(subject, n.subject)
	if !ok {
		return stored{}, errSubject
	}
	var err error
	s.block.Workchain, s.block.Shard, err = shardOf(shard)
	if err == nil && shardName(&s.block) != shard { // pages of the shard would not contain it
		err = fmt.Errorf("the subject must end in %s, not in %.80s", shardName(&s.block), shard)
	}
	return s, err
}

// shardOf parses a shard name, which has the form <workchain>.<shard in 16 hex digits>.
func shardOf(name string) (workchain int32, shard uint64, err error) {
	before, after, _ := strings.Cut(name, ".")
	w, err := strconv.ParseInt(before, 10, 32)
	if err != nil {
		return 0, 0, errSubject
	}
	if shard, err = strconv.ParseUint(after, 16, 64); err != nil || len(after) != 16 {
		return 0, 0, errSubject
	}
	return int32(w), shard, nil
}

// MaxCursor is the maximum length of a cursor in bytes. A cursor may contain the characters
// that [chaingql.ChainOrder] and [chaingql.SeqCursor] use: 0-9, a-f, m and -.
const MaxCursor = 64

func checkCursor(c chaingql.Cursor) error {
	if len(c) > MaxCursor || strings.Trim(string(c), "0123456789abcdefm-") != "" {
		return chaingql.ErrBadCursor
	}
	return nil
}
