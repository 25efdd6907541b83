package attack

import (
	"bytes"
	"compress/flate"
	"fmt"
	"slices"
	"strings"
)

// frames returns frames that RFC 6455 forbids and frames with wrong lengths.
func frames() []attack {
	const protocolError = "closed 1002|cut"
	var all []attack
	both := func(name, want string, chunks ...[]byte) {
		for _, protocol := range []string{legacy, modern} {
			all = append(all, framed(name+" ("+protocol+")", want, protocol, chunks...))
		}
	}
	unmasked := func(f []byte) []byte {
		g := bytes.Clone(f)
		g[1] &^= masked
		return append(g[:2], g[6:]...)
	}
	ping := frame(final|opPing, "")
	for bit, name := range map[byte]string{0x40: "1 (compression)", 0x20: "2", 0x10: "3"} {
		both("reserved bit "+name, protocolError, frame(final|opText|bit, "{}"))
		both("reserved bit "+name+" on a ping", protocolError, frame(final|opPing|bit, ""))
		both("reserved bit "+name+" on a close", protocolError, frame(final|opClose|bit, "\x03\xe8"))
	}
	for op := range byte(16) {
		switch op {
		case opContinue, opText, opBinary, opClose, opPing, opPong:
			both(fmt.Sprintf("unmasked opcode %x", op), protocolError+"|closed 1000", unmasked(frame(final|op, "")))
		default:
			both(fmt.Sprintf("opcode %x", op), protocolError, frame(final|op, ""))
		}
	}
	for op, name := range map[byte]string{opClose: "close", opPing: "ping", opPong: "pong"} {
		both(name+" of 126 bytes", protocolError, frame(final|op, strings.Repeat("a", 126)))
		both(name+" of 64 KiB", protocolError, frame(final|op, strings.Repeat("a", 1<<16)))
		both(name+" of 2^63 bytes", protocolError, header(final|op, 1<<63))
		both(name+" in fragments", protocolError, frame(op, "a"), frame(final|opContinue, "b"))
	}
	for _, n := range []uint64{1 << 31, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		both(fmt.Sprintf("fragment of %d bytes, %d sent", n, 1<<20), protocolError+"|closed 1009",
			append(header(opText, n), strings.Repeat("a", 1<<20)...))
	}
	both("length in more bytes than necessary", protocolError+"|served|closed 4400",
		append([]byte{final | opText, masked | 126, 0, 2, 0, 0, 0, 0}, "{}"...))
	both("length in far more bytes than necessary", protocolError+"|served|closed 4400",
		append([]byte{final | opText, masked | 127, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0}, "{}"...))
	both("continuation without a start", protocolError, frame(final|opContinue, "{}"))
	both("continuation without a start or an end", protocolError, frame(opContinue, "{}"))
	both("a text within a text", protocolError, frame(opText, "{"), frame(final|opText, "}"))
	both("a binary within a text", protocolError, frame(opText, "{"), frame(final|opBinary, "}"))
	both("compressed without compression", protocolError, frame(final|opText|0x40,
		deflated(`{"type":"connection_init"}`)))
	both("compressed bomb", protocolError, frame(final|opText|0x40, deflated(strings.Repeat(" ", 50<<20))))
	for name, text := range map[string]string{
		"an invalid byte": "\xff", "half a rune": "\xe2\x82", "an overlong slash": "\xc0\xaf",
		"a surrogate":         "\xed\xa0\x80",
		"after the last rune": "\xf4\x90\x80\x80", "a continuation byte alone": "\x80",
		"in a string":      "{\"type\":\"\xff\"}",
		"in an id":         "{\"id\":\"\xff\",\"type\":\"start\",\"payload\":{\"query\":\"{info{version}}\"}}",
		"in a key":         "{\"\xff\":1}",
		"after valid JSON": "{\"type\":\"stop\",\"id\":\"1\"}\xff",
	} {
		both("not UTF-8: "+name, "closed 1007|closed 4400", textFrame(text))
	}
	both("not UTF-8 over two fragments, which is UTF-8", "served|closed 4400", frame(opText, "{\"type\":\"\xe2\x82"),
		frame(final|opContinue, "\xac\"}"))
	for name, payload := range map[string]string{
		"without a code": "", "of one byte": "\x03", "1000": "\x03\xe8", "999": "\x03\xe7", "1004": "\x03\xec",
		"1005": "\x03\xed",
		"1006": "\x03\xee", "1015": "\x03\xf7", "1016": "\x03\xf8", "2999": "\x0b\xb7", "5000": "\x13\x88",
		"0": "\x00\x00", "65535": "\xff\xff",
		"4000": "\x0f\xa0", "with a reason that is not UTF-8": "\x03\xe8\xff",
		"with a long reason": "\x03\xe8" + strings.Repeat("a", 123), "with JSON": "\x03\xe8{}",
	} {
		both("close "+name, "closed|cut", frame(final|opClose, payload))
		both("close "+name+" in a message", "closed|cut", frame(opText, "{"), frame(final|opClose, payload))
	}
	both("messages after a close", "closed|cut", frame(final|opClose, "\x03\xe8"),
		bytes.Repeat(textFrame(`{"type":"ping"}`), 100))
	both("two closes", "closed|cut", frame(final|opClose, "\x03\xe8"), frame(final|opClose, "\x03\xe8"))
	both("binary JSON", "served|closed", frame(final|opBinary, `{"type":"ping"}`))
	both("an empty text", "served|closed 4400", textFrame(""))
	both("an empty binary", "served|closed", frame(final|opBinary, ""))
	both("HTTP instead of frames", protocolError, request("GET", path, ""))
	both("TLS instead of frames", protocolError, []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"))
	both("zeros", protocolError, make([]byte, 4096))
	both("ones", protocolError, bytes.Repeat([]byte{0xff}, 4096))
	both("an unsolicited pong", "served", frame(final|opPong, "x"))
	both("pings of 125 bytes, 100", "served", bytes.Repeat(frame(final|opPing, strings.Repeat("a", 125)), 100))
	both("a ping in each gap of a message", "served|closed 4400", frame(opText, `{"type":`), ping,
		frame(opContinue, `"x"`), ping, frame(final|opContinue, "}"))
	for n := 1 << 10; n <= 1<<20; n *= 4 {
		both(fmt.Sprintf("%d empty fragments", n), "closed|cut|served|no answer", frame(opText, ""),
			bytes.Repeat(frame(opContinue, ""), n), frame(final|opContinue, "{}"))
		both(fmt.Sprintf("%d fragments of a byte", n), "closed|cut|served", frame(opText, "{"),
			bytes.Repeat(frame(opContinue, " "), n), frame(final|opContinue, "}"))
		both(fmt.Sprintf("a message of %d bytes", n), "closed|cut|served",
			textFrame(`{"type":"x"`+strings.Repeat(" ", n)+"}"))
		both(fmt.Sprintf("a message of %d bytes in two fragments", 2*n), "closed|cut|served",
			frame(opText, strings.Repeat(" ", n)), frame(final|opContinue, strings.Repeat(" ", n)))
	}
	both("a message of 100 MB", "closed 1009|cut", slices.Concat([][]byte{header(final|opText, 100<<20)},
		slices.Repeat([][]byte{bytes.Repeat([]byte(" "), 1<<20)}, 100))...)
	both("a message of 100 MB in fragments", "closed 1009|cut",
		slices.Concat([][]byte{frame(opText, "")}, slices.Repeat([][]byte{frame(opContinue,
			strings.Repeat(" ", 60<<10))}, 1700))...)
	for i := range all {
		if strings.Contains(all[i].name, "100 MB") || strings.Contains(all[i].name, "fragments") {
			all[i].within = 5 * usual
		}
	}
	return all
}

func deflated(text string) string {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		panic(err) // the level is valid
	}
	if _, err := w.Write([]byte(text)); err != nil {
		panic(err) // a bytes.Buffer does not fail
	}
	if err := w.Flush(); err != nil {
		panic(err)
	}
	return b.String()
}
