package chaingql

import (
	"encoding/base32"
	"encoding/binary"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/chaingql/chaingql/internal/blocklog"
)

// Once a stream has been sent back (STREAM_GAP), the cursors that the Handler
// makes for it have a suffix: the stream's mark, so that its client is told of
// each gap once.
//
//	2323m!5.k3v9q0tma1b2c3d
//	^     ^ ^       ^ checksum of all before
//	|     | the Handler
//	|     mark in base 36
//	the Backend's cursor
//
// It is short and printable, and as "!" is the lowest of the printable bytes,
// cursors compare with it as without. Handlers ignore the marks of others,
// queries all marks. The checksum keeps a Backend's own "!" from being cut off.
const (
	markSign    = "!"
	handlerSize = 8
	sumSize     = 7
)

var markText = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// marked returns a cursor with a mark, if it has one.
func (h *Handler) marked(cursor string, mark blocklog.Mark) string {
	if mark == 0 {
		return cursor
	}
	cursor += markSign + strconv.FormatUint(uint64(mark), 36) + "." + h.id
	return cursor + sumOf(cursor)
}

// unmarked returns a cursor as the Backend knows it, its mark, and the handler
// that made the mark.
func unmarked(cursor string) (plain string, mark blocklog.Mark, handler string) {
	i := strings.LastIndex(cursor, markSign)
	if i < 0 || len(cursor) < i+handlerSize+sumSize+3 {
		return cursor, 0, ""
	}
	text, sum := cursor[:len(cursor)-sumSize], cursor[len(cursor)-sumSize:]
	number, handler, ok := strings.Cut(text[i+1:], ".")
	n, err := strconv.ParseUint(number, 36, 64)
	if !ok || err != nil || len(handler) != handlerSize || sum != sumOf(text) {
		return cursor, 0, ""
	}
	return cursor[:i], blocklog.Mark(n), handler
}

// resumeAt returns the place that a client's cursor names, and its mark if this
// Handler made it.
func (h *Handler) resumeAt(cursor string) (plain string, mark blocklog.Mark) {
	plain, mark, handler := unmarked(cursor)
	if handler != h.id {
		mark = 0
	}
	return plain, mark
}

// plainCursor returns a cursor without its mark.
func plainCursor(cursor string) Cursor {
	plain, _, _ := unmarked(cursor)
	return Cursor(plain)
}

func sumOf(text string) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(text))
	return markText.EncodeToString(binary.BigEndian.AppendUint32(nil, sum.Sum32()))
}
