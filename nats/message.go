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
	// Prev is the cursor of the previous message, "" in the first one. If older blocks
	// were removed, the Prev of the oldest block shows which cursors are still valid.
	// Without it, every cursor below the oldest block counts as too old.
	Prev  *chaingql.Cursor `json:"prev,omitempty"`
	SeqNo uint32           `json:"seq_no"`
	Hash  string           `json:"hash"`
	Time  time.Time        `json:"time"`
}

// A stored is a message of the stream, decoded as a block.
type stored struct {
	seq   uint64
	prev  *chaingql.Cursor // nil if the message does not contain it
	block chaingql.Block

	subject  string
	bad      error     // reason that the message cannot be a block, nil if it may be one
	received time.Time // by the server; only of messages that were read one by one
}

// follows reports whether the message names c as its predecessor.
func (s *stored) follows(c chaingql.Cursor) bool { return s.prev != nil && *s.prev == c }

// names contains the names of a chain's streams, subjects and bucket.
type names struct {
	stream       string // of blocks
	subject      string // prefix of the subjects of blocks, before workchain and shard
	bucket       string
	balances     string // the stream of the bucket
	index        string // the stream of the index
	indexSubject string // prefix of the subjects of the index, before creation time, level and number
}

func namesOf(chain string) names {
	bucket := chain + "_balances"
	return names{
		stream: chain + "_blocks", subject: chain + ".blocks.", bucket: bucket, balances: "KV_" + bucket,
		index: chain + "_index", indexSubject: chain + ".index.",
	}
}

// all returns the subject that matches everything. The server then compares no subjects,
// which is faster.
func (n names) all() string { return ">" }

func (n names) blockSubject(b *chaingql.Block) string {
	return n.subject + shardName(b)
}

func shardName(b *chaingql.Block) string { return fmt.Sprintf("%d.%016x", b.Workchain, b.Shard) }

// filter returns the subject of the blocks that a query selects.
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

func encode(b *chaingql.Block, prev *chaingql.Cursor) ([]byte, error) {
	return json.Marshal(message{Cursor: b.Cursor, Prev: prev, SeqNo: b.SeqNo, Hash: b.Hash.String(), Time: b.Time.UTC()})
}

var errSubject = errors.New("its subject does not end in a workchain and a shard")

// decode decodes a message. On error it sets bad.
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
		return stored{}, fmt.Errorf("it is not a block in JSON: %.120q", err.Error()) // cut: it may quote the whole message
	}
	s := stored{seq: seq, prev: m.Prev, block: chaingql.Block{SeqNo: m.SeqNo, Time: m.Time.UTC(), Cursor: m.Cursor}}
	if m.Cursor == "" || checkCursor(m.Cursor) != nil {
		return stored{}, fmt.Errorf("its cursor %.80q is malformed", m.Cursor)
	}
	if hash, err := hex.DecodeString(m.Hash); err != nil || len(hash) != len(s.block.Hash) {
		return stored{}, fmt.Errorf("its hash %.80q does not have 64 hex digits", m.Hash)
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
		err = fmt.Errorf("its subject must end in %s, not %.80s", shardName(&s.block), shard)
	}
	return s, err
}

// shardOf parses <workchain>.<shard in 16 hex digits>.
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

// MaxCursor is the maximum length of a cursor in bytes. Cursors consist of the
// characters of [chaingql.ChainOrder] and [chaingql.SeqCursor]: 0-9, a-f, m and -.
const MaxCursor = 64

func checkCursor(c chaingql.Cursor) error {
	if len(c) > MaxCursor || strings.Trim(string(c), "0123456789abcdefm-") != "" {
		return chaingql.ErrBadCursor
	}
	return nil
}
