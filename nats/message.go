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

// A message is a block's payload, in JSON. Its workchain and shard are in the
// subject: <chain>.blocks.<workchain>.<shard in 16 hex digits>.
type message struct {
	Cursor chaingql.Cursor `json:"cursor"`
	// Prev is the cursor of the message before it, "" in the first. It tells what
	// the newest block was that is gone, where the oldest ones are; without it
	// every cursor below the oldest block counts as too old.
	Prev  *chaingql.Cursor `json:"prev,omitempty"`
	SeqNo uint32           `json:"seq_no"`
	Hash  string           `json:"hash"`
	Time  time.Time        `json:"time"`
}

// A stored is a block and where it is.
type stored struct {
	seq   uint64
	prev  *chaingql.Cursor // nil where the message does not tell
	block chaingql.Block
}

// follows tells whether it says that it is the one behind a block; not all do.
func (s *stored) follows(c chaingql.Cursor) bool { return s.prev != nil && *s.prev == c }

// names are what a chain's stream, subjects and bucket are called.
type names struct {
	stream  string // of blocks
	subject string // of blocks, without workchain and shard
	bucket  string
	values  string // the stream beneath the bucket
}

func namesOf(chain string) names {
	bucket := chain + "_balances"
	return names{stream: chain + "_blocks", subject: chain + ".blocks.", bucket: bucket, values: "KV_" + bucket}
}

// all has the server look at no subject, which is quicker.
func (n names) all() string { return ">" }

func (n names) of(b *chaingql.Block) string {
	return n.subject + strconv.Itoa(int(b.Workchain)) + "." + fmt.Sprintf("%016x", b.Shard)
}

// filter is the subject of the blocks that a query selects.
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

// value is the subject of an account's balance.
func (n names) value(a *chaingql.Address) string {
	return "$KV." + n.bucket + "." + strconv.Itoa(int(a.Workchain)) + "_" + hex.EncodeToString(a.ID[:])
}

func encode(b *chaingql.Block, prev *chaingql.Cursor) ([]byte, error) {
	return json.Marshal(message{Cursor: b.Cursor, Prev: prev, SeqNo: b.SeqNo, Hash: b.Hash.String(), Time: b.Time.UTC()})
}

var errSubject = errors.New("its subject does not end in a workchain and a shard")

func (n names) decode(seq uint64, subject string, payload []byte) (stored, error) {
	var m message
	if err := json.Unmarshal(payload, &m); err != nil {
		return stored{}, malformed(seq, err)
	}
	s := stored{seq: seq, prev: m.Prev, block: chaingql.Block{SeqNo: m.SeqNo, Time: m.Time.UTC(), Cursor: m.Cursor}}
	if m.Cursor == "" || checkCursor(m.Cursor) != nil {
		return stored{}, malformed(seq, fmt.Errorf("cursor %.80q: %w", m.Cursor, chaingql.ErrBadCursor))
	}
	if hash, err := hex.DecodeString(m.Hash); err != nil || len(hash) != len(s.block.Hash) {
		return stored{}, malformed(seq, fmt.Errorf("its hash %.80q has not 64 hex digits", m.Hash))
	} else {
		copy(s.block.Hash[:], hash)
	}
	workchain, shard, _ := strings.Cut(strings.TrimPrefix(subject, n.subject), ".")
	w, err := strconv.ParseInt(workchain, 10, 32)
	if err != nil || !strings.HasPrefix(subject, n.subject) {
		return stored{}, malformed(seq, errSubject)
	}
	if s.block.Shard, err = strconv.ParseUint(shard, 16, 64); err != nil || len(shard) != 16 {
		return stored{}, malformed(seq, errSubject)
	}
	s.block.Workchain = int32(w)
	return s, nil
}

// MaxCursor is how many bytes a cursor may have at most. They are those that
// [chaingql.ChainOrder] and [chaingql.SeqCursor] use: 0-9, a-f, m and -.
const MaxCursor = 64

func checkCursor(c chaingql.Cursor) error {
	if len(c) > MaxCursor || strings.Trim(string(c), "0123456789abcdefm-") != "" {
		return chaingql.ErrBadCursor
	}
	return nil
}
