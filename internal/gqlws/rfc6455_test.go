package gqlws

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	modernInit = `{"type":"connection_init"}`
	modernAck  = `{"type":"connection_ack"}`
)

// The test checks rules of RFC 6455 for servers. Some of them are enforced by this package, others by coder/websocket.
// If an expected line starts with "CLOSE 10", the received line may continue with a reason.
func TestServerFollowsRFC6455(t *testing.T) {
	text := func(s string) []byte { return frameOf(true, opText, []byte(s)) }
	noted := func(s string) []byte { return text(`{"type":"connection_init","note":"` + s + `"}`) }
	join := func(frames ...[]byte) []byte { return bytes.Join(frames, nil) }
	part := func(op byte, s string) []byte { return frameOf(false, op, []byte(s)) }
	last := func(s string) []byte { return frameOf(true, 0, []byte(s)) }
	ping := func(s string) []byte { return frameOf(true, opPing, []byte(s)) }
	unmasked := append([]byte{0x81, byte(len(modernInit))}, modernInit...)
	unmaskedPing := []byte{0x89, 0}
	wide := join([]byte{0x81, 0x80 | 127}, binary.BigEndian.AppendUint64(nil, uint64(len(modernInit))), make([]byte, 4),
		[]byte(modernInit))
	negative := join([]byte{0x81, 0x80 | 127}, bytes.Repeat([]byte{0xff}, 8), make([]byte, 4))
	long := strings.Repeat("x", 125)

	type frames struct {
		bytes []byte
		want  []string
	}
	cases := map[string]frames{
		"a message":                    {text(modernInit), []string{modernAck}},
		"a binary message":             {frameOf(true, opBinary, []byte(modernInit)), []string{modernAck}},
		"a length with too many bytes": {wide, []string{modernAck}},
		"a fragmented message": {join(part(opText, ""), part(0, modernInit[:1]), part(0, ""),
			part(0, modernInit[1:9]), last(modernInit[9:])), []string{modernAck}},
		"an empty last fragment": {join(part(opText, modernInit), last("")), []string{modernAck}},
		"a ping between fragments": {join(part(opText, modernInit[:5]), ping("x"), ping(""),
			last(modernInit[5:])), []string{"PONG x", "PONG", modernAck}},
		"a pong between fragments": {join(part(opText, modernInit[:5]), frameOf(true, opPong, []byte("x")),
			last(modernInit[5:])), []string{modernAck}},
		"an unexpected pong": {join(frameOf(true, opPong, nil), text(modernInit)),
			[]string{modernAck}},
		"a close between fragments": {join(part(opText, modernInit[:5]), closeFrame(1000, "")),
			[]string{"CLOSE 1000"}},
		"the longest ping": {ping(long), []string{"PONG " + long}},
		"many pings": {join(ping("1"), ping("2"), ping("3")),
			[]string{"PONG 1", "PONG 2", "PONG 3"}},
		"a message after a close": {join(closeFrame(1000, ""), text(modernInit)), []string{"CLOSE 1000"}},
		"a close without a code":  {frameOf(true, opClose, nil), []string{"CLOSE"}},
		"the longest reason":      {closeFrame(4999, long[:123]), []string{"CLOSE 4999 " + long[:123]}},
		"a reason in UTF-8":       {closeFrame(1000, "ж😀"), []string{"CLOSE 1000 ж😀"}},
		"a character in two fragments": {join(part(opText, `{"type":"connection_init","note":"`+"\xd0"),
			last("\xb6"+`"}`)), []string{modernAck}},
		"the highest characters":              {noted("\U0010ffff\uffff\ufffe"), []string{modernAck}},
		"one byte of a close code":            {frameOf(true, opClose, []byte{3}), []string{"CLOSE 1002"}},
		"a fragmented ping":                   {frameOf(false, opPing, nil), []string{"CLOSE 1002"}},
		"a fragmented close":                  {frameOf(false, opClose, []byte{3, 232}), []string{"CLOSE 1002"}},
		"a ping too long":                     {ping(long + "x"), []string{"CLOSE 1002"}},
		"a close too long":                    {closeFrame(1000, long), []string{"CLOSE 1002"}},
		"a continuation of nothing":           {last("x"), []string{"CLOSE 1002"}},
		"a continuation of nothing, not last": {part(0, "x"), []string{"CLOSE 1002"}},
		"a message between fragments":         {join(part(opText, "{"), text("{}")), []string{"CLOSE 1002"}},
		"a reserved bit on a ping":            {frameOf(true, 0x40|opPing, nil), []string{"CLOSE 1002"}},
		"a reserved bit on a fragment": {join(part(opText, "{"), frameOf(true, 0x40, []byte("}"))),
			[]string{"CLOSE 1002"}},
		"too large a message": {text(strings.Repeat(" ", 513)),
			[]string{"CLOSE 1009 Message is larger than 512 bytes"}},
		"too large a message, fragmented": {join(part(opText, strings.Repeat(" ", 300)), ping("x"),
			part(0, strings.Repeat(" ", 300)), last("")), []string{"PONG x", "CLOSE 1009"}},
		"too large and not UTF-8": {text(strings.Repeat("\xff", 513)), []string{"CLOSE 1009"}},
		// For the following frames, a server may close the connection without a close frame.
		"no mask":           {unmasked, []string{"CUT"}},
		"a ping, no mask":   {unmaskedPing, []string{"CUT"}},
		"a negative length": {negative, []string{"CUT"}},
	}
	for _, bit := range []byte{0x40, 0x20, 0x10, 0x70} {
		cases[fmt.Sprintf("reserved bits %#x", bit)] = frames{frameOf(true, bit|opText, []byte(modernInit)),
			[]string{"CLOSE 1002"}}
	}
	for _, op := range []byte{3, 4, 5, 6, 7, 11, 12, 13, 14, 15} {
		cases[fmt.Sprintf("reserved opcode %d", op)] = frames{frameOf(true, op, nil), []string{"CLOSE 1002"}}
	}
	for _, code := range []uint16{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999,
		4000, 4400, 4999} {
		cases[fmt.Sprintf("close code %d", code)] = frames{closeFrame(code, "bye"),
			[]string{fmt.Sprintf("CLOSE %d bye", code)}}
	}
	for _, code := range []uint16{0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535} {
		cases[fmt.Sprintf("invalid close code %d", code)] = frames{closeFrame(code, ""), []string{"CLOSE 1002"}}
	}
	for name, bad := range map[string]string{
		"a byte": "\xff", "a continuation": "\x80", "an overlong form": "\xc0\xaf", "a surrogate": "\xed\xa0\x80",
		"above the maximum": "\xf4\x90\x80\x80", "an incomplete character": "\xf0\x9f\x98",
	} {
		cases["not UTF-8: "+name] = frames{noted(bad), []string{"CLOSE 1007"}}
		cases["not UTF-8 at the end: "+name] = frames{text(bad), []string{"CLOSE 1007"}}
		cases["not UTF-8 in fragments: "+name] = frames{join(part(opText, `{"type":"ping","note":"`+bad[:1]),
			last(bad[1:]+`"}`)), []string{"CLOSE 1007"}}
		cases["not UTF-8 in binary: "+name] = frames{frameOf(true, opBinary, []byte(bad)), []string{"CLOSE 1007"}}
		// coder/websocket does not validate the reason and sends it back.
		cases["not UTF-8 in a reason: "+name] = frames{closeFrame(1000, "bye "+bad), []string{"CLOSE 1000 bye " + bad}}
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer(testOptions)
				p := dialAs(t, s, newFakeSession(t), "graphql-transport-ws", nil).startReading()
				_ = p.write(tc.bytes) // fails if the server closes first
				for _, want := range tc.want {
					exact := !strings.HasPrefix(want, "CLOSE 10") // a reason may follow
					if got := p.next(); got != want && (exact || !strings.HasPrefix(got, want)) {
						t.Errorf("received %s\nwant     %s", got, want)
					}
				}
				p.expectNothing()
				if end := slices.ContainsFunc(tc.want, func(l string) bool { return strings.HasPrefix(l, "C") }); end {
					time.Sleep(closeTimeout)
					if remainingSockets(s) != 0 {
						t.Error("the connection is still open after the close handshake")
					}
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}

func closeFrame(code uint16, reason string) []byte {
	return frameOf(true, opClose, append(binary.BigEndian.AppendUint16(nil, code), reason...))
}

func TestLegacyPeerReceivesErrorForInvalidUTF8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		p.sendText(startA, "{\"id\":\"\xff\",\"type\":\"stop\"}", `{"type":"connection_init"}`)
		p.expect(legacyError("Message is not UTF-8", "BAD_REQUEST"), "CLOSE 1007 not UTF-8")
		p.expectNothing()
		if remainingSockets(s) != 0 || ss.openStreams() != 0 {
			t.Error("the connection is still open after a message that is not UTF-8")
		}
	})
}
