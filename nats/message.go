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

	subject string
	bad     error // why it is no block, whatever is before it
}

// follows tells whether it says that it is the one behind a block; not all do.
func (s *stored) follows(c chaingql.Cursor) bool { return s.prev != nil && *s.prev == c }

// names are what a chain's stream, subjects and bucket are called.
type names struct {
	stream  string // of blocks
	subject string // of blocks, without workchain and shard
	bucket  string
	values  string // the stream beneath the bucket
	index   string // the stream of the index
	nodes   string // of the index, without the chain's time, level and number
}

func namesOf(chain string) names {
	bucket := chain + "_balances"
	return names{
		stream: chain + "_blocks", subject: chain + ".blocks.", bucket: bucket, values: "KV_" + bucket,
		index: chain + "_index", nodes: chain + ".index.",
	}
}

// all has the server look at no subject, which is quicker.
func (n names) all() string { return ">" }

func (n names) of(b *chaingql.Block) string {
	return n.subject + shardName(b)
}

func shardName(b *chaingql.Block) string { return fmt.Sprintf("%d.%016x", b.Workchain, b.Shard) }

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

// decode returns a message as a block, or as one that is bad.
func (n names) decode(seq uint64, subject string, payload []byte) stored {
	s, err := n.parse(seq, subject, payload)
	if err != nil {
		return stored{seq: seq, subject: subject, bad: err}
	}
	s.subject = subject
	return s
}

func (n names) parse(seq uint64, subject string, payload []byte) (stored, error) {
	var m message
	if err := json.Unmarshal(payload, &m); err != nil {
		return stored{}, fmt.Errorf("it is no block in JSON: %.120q", err.Error()) // which may quote all of the message
	}
	s := stored{seq: seq, prev: m.Prev, block: chaingql.Block{SeqNo: m.SeqNo, Time: m.Time.UTC(), Cursor: m.Cursor}}
	if m.Cursor == "" || checkCursor(m.Cursor) != nil {
		return stored{}, fmt.Errorf("its cursor %.80q is malformed", m.Cursor)
	}
	if hash, err := hex.DecodeString(m.Hash); err != nil || len(hash) != len(s.block.Hash) {
		return stored{}, fmt.Errorf("its hash %.80q has not 64 hex digits", m.Hash)
	} else {
		copy(s.block.Hash[:], hash)
	}
	shard, ok := strings.CutPrefix(subject, n.subject)
	if !ok {
		return stored{}, errSubject
	}
	var err error
	s.block.Workchain, s.block.Shard, err = shardOf(shard)
	if err == nil && shardName(&s.block) != shard { // pages of the shard would not find it
		err = fmt.Errorf("its subject must end in %s, not %.80s", shardName(&s.block), shard)
	}
	return s, err
}

// shardOf reads <workchain>.<shard in 16 hex digits>.
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

// MaxCursor is how many bytes a cursor may have at most. They are those that
// [chaingql.ChainOrder] and [chaingql.SeqCursor] use: 0-9, a-f, m and -.
const MaxCursor = 64

func checkCursor(c chaingql.Cursor) error {
	if len(c) > MaxCursor || strings.Trim(string(c), "0123456789abcdefm-") != "" {
		return chaingql.ErrBadCursor
	}
	return nil
}
